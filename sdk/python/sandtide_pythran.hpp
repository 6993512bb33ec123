// What generated glue is made of: a program that Pythran turned into C++, served by Sandtide.
//
// docs/python-pythran.md says what such a program may look like. Included after the header that
// Pythran wrote, by the glue that sandtide_glue.py wrote.
#ifndef SANDTIDE_PYTHRAN_HPP
#define SANDTIDE_PYTHRAN_HPP

#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <pythonic/core.hpp>
#include <pythonic/functools/partial.hpp>
#include <pythonic/types/exceptions.hpp>
#include <pythonic/types/list.hpp>
#include <pythonic/types/str.hpp>
#include <pythonic/types/tuple.hpp>

#include "../c/sandtide.h"

// Pythran's own types are in an anonymous namespace.
namespace {
namespace sandtide_pythran {

using str = pythonic::types::str;
using pair = decltype(pythonic::types::make_tuple(str(), str()));

inline str text(sandtide_string view) { return str(view.data, view.length); }

// The request, as the parameters of a handler.
class Request {
public:
    explicit Request(const sandtide_request &raw) : raw_(raw) {}

    str method() const { return text(sandtide_method(&raw_)); }
    str target() const { return text(sandtide_target(&raw_)); }
    str path() const { return text(sandtide_path(&raw_)); }
    str query() const { return text(sandtide_query(&raw_)); }
    str authority() const { return text(sandtide_authority(&raw_)); }
    long id() const { return static_cast<long>(sandtide_id(&raw_)); }
    double time() const { return static_cast<double>(sandtide_time_ns(&raw_)) / 1e9; }

    str random() const
    {
        return str(reinterpret_cast<const char *>(sandtide_random(&raw_)),
                   SANDTIDE_REQUEST_RANDOM_LENGTH);
    }

    pythonic::types::list<pair> headers() const
    {
        pythonic::types::list<pair> result(0);
        std::size_t count = sandtide_header_count(&raw_);
        result.reserve(count);
        for (std::size_t i = 0; i < count; i++) {
            sandtide_field field = sandtide_header_at(&raw_, i);
            result.push_back(pythonic::types::make_tuple(str(field.name, field.name_length),
                                                         str(field.value, field.value_length)));
        }
        return result;
    }

    str body() const
    {
        sandtide_string bytes;
        if (int error = sandtide_read_body(&raw_, SIZE_MAX / 4, &bytes))
            throw std::runtime_error("cannot read the request body: "
                                     + std::string(std::strerror(-error)));
        return text(bytes);
    }

private:
    sandtide_request raw_;
};

// A response that owns its texts.
class Answer {
public:
    Answer(long status, str body) : status_(status), body_(std::move(body)) {}

    void add(str name, str value)
    {
        texts_.emplace_back(std::move(name), std::move(value));
        const str &n = texts_.back().first, &v = texts_.back().second;
        fields_.push_back({n.c_str(), v.c_str(), static_cast<uint32_t>(n.size()),
                           static_cast<uint32_t>(v.size())});
    }

    void send() const
    {
        sandtide_respond(static_cast<int>(status_), fields_.data(), fields_.size(), body_.c_str(),
                         static_cast<std::size_t>(body_.size()));
    }

private:
    long status_;
    str body_;
    std::vector<std::pair<str, str>> texts_; // strings share their text: it does not move
    std::vector<sandtide_field> fields_;
};

template <class T, class = void>
struct arity : std::integral_constant<std::size_t, 0> {};
template <class T>
struct arity<T, std::void_t<decltype(std::tuple_size<T>::value)>> : std::tuple_size<T> {};

template <class T>
constexpr bool is_text = std::is_convertible_v<T, str>;
template <class T>
constexpr bool is_empty_list = std::is_same_v<T, pythonic::types::empty_list>;
template <class>
constexpr bool never = false;

// What a handler returned, as an answer. Text can be a `str`, a slice or a single character.
template <class T>
Answer answer(const T &result)
{
    if constexpr (arity<T>::value == 2) {
        Answer made(200, std::get<1>(result));
        made.add("content-type", std::get<0>(result));
        return made;
    } else if constexpr (arity<T>::value == 3) {
        using second = std::decay_t<decltype(std::get<1>(result))>;
        Answer made(std::get<0>(result), std::get<2>(result));
        if constexpr (is_text<second>)
            made.add("content-type", std::get<1>(result));
        else if constexpr (!is_empty_list<second>)
            for (const auto &field : std::get<1>(result))
                made.add(std::get<0>(field), std::get<1>(field));
        return made;
    } else if constexpr (is_text<T>) {
        Answer made(200, result);
        made.add("content-type", "text/plain; charset=utf-8");
        return made;
    } else if constexpr (std::is_invocable_v<const T &>) {
        return answer(result());
    } else {
        static_assert(never<T>, "on_client_request must return one of: body; content_type, body; "
                                "status, content_type, body; status, headers, body; or a function "
                                "without parameters that returns one of these");
    }
}

inline void complain(const char *where, const std::exception &error)
{
    int status;
    char *name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
    std::string kind = name ? name : "exception";
    std::free(name);
    if (auto cut = kind.rfind(':'); cut != std::string::npos)
        kind.erase(0, cut + 1);
    std::cout.flush();
    std::cerr << where << ": " << kind;
    if (auto *python = dynamic_cast<const pythonic::types::BaseException *>(&error)) {
        const char *separator = ": ";
        for (const str &argument : python->args) {
            std::cerr << separator << argument;
            separator = ", ";
        }
    } else {
        std::cerr << ": " << error.what();
    }
    std::cerr << std::endl;
}

inline std::function<str()> save_handler;
inline std::function<void(const str &)> restore_handler;

// Before serve: the program's `on_save`. What it returned stays until it is called again.
inline void on_save(std::function<str()> handler)
{
    save_handler = std::move(handler);
    sandtide_on_save([](sandtide_string *state) {
        static str saved;
        try {
            saved = save_handler();
            std::cout.flush();
        } catch (const std::exception &error) {
            complain("on_save", error);
            return 1;
        }
        state->data = saved.c_str();
        state->length = static_cast<std::size_t>(saved.size());
        return 0;
    });
}

// Before serve: the program's `on_restore`.
inline void on_restore(std::function<void(const str &)> handler)
{
    restore_handler = std::move(handler);
    sandtide_on_restore([](sandtide_string state) {
        try {
            restore_handler(text(state));
            std::cout.flush();
        } catch (const std::exception &error) {
            complain("on_restore", error);
            return 1;
        }
        return 0;
    });
}

// Boots the program and answers requests. Returns what main should.
//
// What is printed is flushed before the answer goes out: with it, the sandbox and its buffers end.
template <class Boot, class Call>
int serve(Boot boot, Call call)
{
    sandtide_request raw;
    try {
        boot();
    } catch (const std::exception &error) {
        complain("at start", error);
        return 1;
    }
    std::cout.flush();
    while (sandtide_next_request(&raw) == 0) {
        try {
            Answer made = answer(call(Request(raw)));
            std::cout.flush();
            made.send();
        } catch (const std::exception &error) {
            complain("on_client_request", error);
            sandtide_respond_text(500, "Internal Server Error\n");
        }
    }
    return 1;
}

} // namespace sandtide_pythran
} // namespace

#endif
