// C++ exceptions across frames, destructors, rethrow, nesting, function try blocks.
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Trace {
    explicit Trace(int id) : id(id) {}
    ~Trace() { std::printf("~%d ", id); }
    int id;
};

struct Custom : std::runtime_error {
    using std::runtime_error::runtime_error;
};

__attribute__((noinline)) void deep(int depth)
{
    Trace trace(depth);
    if (depth == 0)
        throw Custom("at the bottom");
    deep(depth - 1);
}

struct Member {
    Member() { throw std::logic_error("member"); }
};

struct Holder {
    Holder() try : first(77), member() {
    } catch (const std::exception &error) {
        std::printf("[constructor: %s] ", error.what());
    }
    Trace first;
    Member member;
};

void nested()
{
    try {
        try {
            throw std::out_of_range("inner");
        } catch (...) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    } catch (const std::exception &outer) {
        std::printf("%s <- ", outer.what());
        try {
            std::rethrow_if_nested(outer);
        } catch (const std::exception &inner) {
            std::printf("%s\n", inner.what());
        }
    }
}

int main()
{
    try {
        deep(6);
    } catch (const std::runtime_error &error) {
        std::printf("%s\n", error.what());
    }
    try {
        Holder holder;
    } catch (const std::logic_error &error) {
        std::printf("%s\n", error.what());
    }
    nested();
    try {
        std::vector<int> numbers(3);
        numbers.at(5) = 1;
    } catch (const std::out_of_range &) {
        std::puts("out of range");
    }
    try {
        static_cast<void>(std::string("x").substr(9));
    } catch (const std::exception &) {
        std::puts("substr");
    }
    std::exception_ptr kept;
    try {
        throw 42;
    } catch (...) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (int number) {
        std::printf("%d\n", number);
    }
    long caught = 0;
    for (int i = 0; i < 2000; i++) {
        try {
            auto holder = std::make_unique<std::string>("freed");
            if (i % 3)
                throw i;
            throw *holder;
        } catch (int value) {
            caught += value;
        } catch (const std::string &text) {
            caught += static_cast<long>(text.size());
        }
    }
    std::printf("%ld %d\n", caught, std::uncaught_exceptions());
    return 0;
}
