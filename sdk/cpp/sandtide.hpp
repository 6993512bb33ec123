// Sandtide for C++17: answer HTTP requests. A layer over sdk/c/sandtide.h, which says how
// sandboxes and snapshots work.
//
//     #include "sandtide.hpp"
//
//     int main()
//     {
//         return sandtide::serve([](sandtide::Request &request) {
//             return sandtide::Response(200).text("You asked for " + std::string(request.path()));
//         });
//     }
//
// A handler takes a Request& and returns a Response; or it returns nothing and streams its
// response with Request::begin. An exception that leaves it is written to standard error and
// answered with 500.
//
// A program that keeps its state between requests can hand it over to the next version of itself:
//
//     sandtide::on_save([] { return std::to_string(count); });
//     sandtide::on_restore([](std::string_view state) { count = std::stoul(std::string(state)); });
#ifndef SANDTIDE_HPP
#define SANDTIDE_HPP

#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../c/sandtide.h"

namespace sandtide {

// A guest call that failed; `code` is the errno value.
class Error : public std::runtime_error {
public:
    Error(const char *what, long result)
        : std::runtime_error(std::string(what) + ": " + std::strerror(static_cast<int>(-result))),
          code(static_cast<int>(-result))
    {
    }

    const int code;
};

// A header or trailer field that somebody else owns.
struct Field {
    std::string_view name;
    std::string_view value;
};

namespace detail {

inline std::string_view view(sandtide_string text) { return {text.data, text.length}; }

inline long check(const char *what, long result)
{
    if (result < 0)
        throw Error(what, result);
    return result;
}

inline sandtide_field raw(Field field)
{
    return {field.name.data(), field.value.data(), static_cast<uint32_t>(field.name.size()),
            static_cast<uint32_t>(field.value.size())};
}

inline std::vector<sandtide_field> raw(const std::vector<Field> &fields)
{
    std::vector<sandtide_field> result;
    result.reserve(fields.size());
    for (const Field &field : fields)
        result.push_back(raw(field));
    return result;
}

inline void say(std::string_view text)
{
    std::string line = "sandtide: " + std::string(text) + "\n";
    if (::write(2, line.data(), line.size()) < 0)
        return;
}

} // namespace detail

// A whole response.
class Response {
public:
    explicit Response(int status = 200) : status_(status) {}

    Response &header(std::string name, std::string value) &
    {
        headers_.emplace_back(std::move(name), std::move(value));
        return *this;
    }

    Response &&header(std::string name, std::string value) &&
    {
        return std::move(header(std::move(name), std::move(value)));
    }

    Response &body(std::string content_type, std::string bytes) &
    {
        body_ = std::move(bytes);
        return header("content-type", std::move(content_type));
    }

    Response &&body(std::string content_type, std::string bytes) &&
    {
        return std::move(body(std::move(content_type), std::move(bytes)));
    }

    // A body of `text/plain`.
    Response &text(std::string bytes) & { return body(plain, std::move(bytes)); }
    Response &&text(std::string bytes) && { return std::move(text(std::move(bytes))); }

    // Sends it. sandtide::serve does that for what a handler returns.
    void send() const
    {
        std::vector<sandtide_field> fields;
        fields.reserve(headers_.size());
        for (const auto &[name, value] : headers_)
            fields.push_back(detail::raw({name, value}));
        detail::check("respond", sandtide_respond(status_, fields.data(), fields.size(),
                                                  body_.data(), body_.size()));
    }

private:
    static constexpr const char *plain = "text/plain; charset=utf-8";

    int status_;
    std::vector<std::pair<std::string, std::string>> headers_;
    std::string body_;
};

// A response that is sent piece by piece. Made by Request::begin.
class Stream {
public:
    // Sends a piece of the body; waits while the client is slow.
    void write(std::string_view piece)
    {
        detail::check("write", sandtide_write(piece.data(), piece.size()));
    }

    // Ends the response. Without it, the client sees a response that was cut off.
    void finish(const std::vector<Field> &trailers = {})
    {
        std::vector<sandtide_field> fields = detail::raw(trailers);
        detail::check("finish", sandtide_finish(fields.data(), fields.size()));
    }

private:
    friend class Request;
    Stream() = default;
};

// The headers of a request, in the client's order; names in lower case.
class Headers {
public:
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Field;
        using difference_type = std::ptrdiff_t;
        using pointer = const Field *;
        using reference = Field;

        iterator(const sandtide_request *request, size_t index) : request_(request), index_(index) {}

        Field operator*() const
        {
            sandtide_field field = sandtide_header_at(request_, index_);
            return {{field.name, field.name_length}, {field.value, field.value_length}};
        }

        iterator &operator++()
        {
            ++index_;
            return *this;
        }

        bool operator!=(const iterator &other) const { return index_ != other.index_; }
        bool operator==(const iterator &other) const { return index_ == other.index_; }

    private:
        const sandtide_request *request_;
        size_t index_;
    };

    explicit Headers(const sandtide_request *request) : request_(request) {}

    size_t size() const { return sandtide_header_count(request_); }
    iterator begin() const { return {request_, 0}; }
    iterator end() const { return {request_, size()}; }

private:
    const sandtide_request *request_;
};

// A request. Its texts are valid until the handler returns.
class Request {
public:
    explicit Request(const sandtide_request &request) : request_(request) {}
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;

    std::string_view method() const { return detail::view(sandtide_method(&request_)); }
    // Path and query as the client sent them.
    std::string_view target() const { return detail::view(sandtide_target(&request_)); }
    std::string_view path() const { return detail::view(sandtide_path(&request_)); }
    // Behind the first `?`; empty if there is none.
    std::string_view query() const { return detail::view(sandtide_query(&request_)); }
    std::string_view authority() const { return detail::view(sandtide_authority(&request_)); }

    // The first header with this name, whatever its case.
    std::optional<std::string_view> header(const char *name) const
    {
        sandtide_string value = sandtide_header(&request_, name);
        if (!value.data)
            return std::nullopt;
        return detail::view(value);
    }

    Headers headers() const { return Headers(&request_); }

    // The correlation id, which the server's log has too.
    uint64_t id() const { return sandtide_id(&request_); }
    // Nanoseconds since 1970 UTC.
    uint64_t time_ns() const { return sandtide_time_ns(&request_); }
    // 32 bytes, fresh for this request.
    std::string_view random() const
    {
        return {reinterpret_cast<const char *>(sandtide_random(&request_)),
                SANDTIDE_REQUEST_RANDOM_LENGTH};
    }

    // What the client announced, if it did.
    std::optional<uint64_t> body_length() const
    {
        uint64_t length = sandtide_body_length(&request_);
        if (length == SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN)
            return std::nullopt;
        return length;
    }

    // The whole body. Throws Error (EFBIG) if it is longer than `limit` bytes.
    std::string_view body(size_t limit = size_t{1} << 20) const
    {
        sandtide_string body;
        detail::check("read the body", sandtide_read_body(&request_, limit, &body));
        return detail::view(body);
    }

    // The next piece of the body; 0 at its end. Not to be mixed with body().
    size_t read(char *buffer, size_t capacity)
    {
        return static_cast<size_t>(detail::check("read", sandtide_read(buffer, capacity)));
    }

    // The request's trailers, once the body was read to its end.
    std::vector<Field> trailers() const
    {
        const sandtide_field *fields;
        long count = detail::check("trailers", sandtide_trailers(&fields));
        std::vector<Field> result;
        for (long i = 0; i < count; i++)
            result.push_back({{fields[i].name, fields[i].name_length},
                              {fields[i].value, fields[i].value_length}});
        return result;
    }

    // Sends an interim response, with a status from 102 to 199, before the response; the client may
    // never see it. See sandtide_inform.
    void inform(int status, const std::vector<Field> &headers = {})
    {
        std::vector<sandtide_field> fields = detail::raw(headers);
        detail::check("inform", sandtide_inform(status, fields.data(), fields.size()));
    }

    // Tells the client what to fetch meanwhile: `link` is the value of a Link header.
    void early_hints(std::string_view link) { inform(103, {{"link", link}}); }

    // Begins a response that is sent piece by piece.
    Stream begin(int status, const std::vector<Field> &headers = {})
    {
        std::vector<sandtide_field> fields = detail::raw(headers);
        detail::check("begin", sandtide_begin(status, fields.data(), fields.size()));
        begun_ = true;
        return Stream();
    }

    bool begun() const { return begun_; }

private:
    sandtide_request request_;
    bool begun_ = false;
};

namespace detail {

template <class Handler>
void answer(Handler &handler, Request &request)
{
    try {
        if constexpr (std::is_void_v<std::invoke_result_t<Handler &, Request &>>)
            handler(request);
        else
            static_cast<const Response &>(handler(request)).send();
        return;
    } catch (const std::exception &error) {
        say(std::string("exception in the handler: ") + error.what());
    } catch (...) {
        say("exception in the handler, not a std::exception");
    }
    if (!request.begun())
        sandtide_respond_text(500, "Internal Server Error\n");
}

} // namespace detail

namespace detail {

inline std::function<std::string()> save_handler;
inline std::function<void(std::string_view)> restore_handler;

// Whether it ran without an exception.
template <class Run>
bool runs(const char *where, Run run)
{
    try {
        run();
        return true;
    } catch (const std::exception &error) {
        say(std::string("exception in ") + where + ": " + error.what());
    } catch (...) {
        say(std::string("exception in ") + where + ", not a std::exception");
    }
    return false;
}

inline int save(sandtide_string *state)
{
    static std::string saved;
    if (!runs("on_save", [] { saved = save_handler(); }))
        return 1;
    *state = {saved.data(), saved.size()};
    return 0;
}

inline int restore(sandtide_string state)
{
    return runs("on_restore", [&] { restore_handler(view(state)); }) ? 0 : 1;
}

} // namespace detail

// Before serve: what returns the program's state when another version takes its place. An exception
// that leaves it says that the state cannot be handed over. docs/state.md says when it is called.
inline void on_save(std::function<std::string()> handler)
{
    detail::save_handler = std::move(handler);
    detail::check("on_save", sandtide_on_save(detail::save));
}

// Before serve: what takes the state that the version before this one has saved. An exception that
// leaves it says that it cannot be taken.
inline void on_restore(std::function<void(std::string_view)> handler)
{
    detail::restore_handler = std::move(handler);
    detail::check("on_restore", sandtide_on_restore(detail::restore));
}

// Answers requests until there are no more; returns what main should. Everything before this call
// is done once, when the program is loaded.
template <class Handler>
int serve(Handler &&handler)
{
    sandtide_request raw;
    int error;
    while ((error = sandtide_next_request(&raw)) == 0) {
        Request request(raw);
        detail::answer(handler, request);
    }
    detail::say(std::string("cannot get requests: ") + std::strerror(-error));
    return 1;
}

} // namespace sandtide

#endif
