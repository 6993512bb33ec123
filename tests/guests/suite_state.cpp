// Keeps a text from request to request and from version to version. $VERSION names the version.
//
//     /           the version and the text
//     /set?TEXT   sets the text
//     /hints      early hints first
//
// Some texts make on_save (`save-…`) or on_restore (`restore-…`) fail: `-throw` refuses, `-trap`
// faults, `-spin` computes for ever. `big-N` saves N bytes. The suite is tests/tests/state.rs.
#include <cstdlib>

#include "sandtide.hpp"

static std::string kept = "fresh";

static void misbehave(std::string_view when)
{
    if (kept == std::string(when) + "-throw")
        throw std::runtime_error("asked to");
    if (kept == std::string(when) + "-trap")
        __builtin_trap();
    if (kept == std::string(when) + "-spin")
        for (volatile unsigned turn = 0;; turn = turn + 1)
            ;
}

int main()
{
    const char *version = std::getenv("VERSION");
    sandtide::on_save([] {
        misbehave("save");
        if (kept.rfind("big-", 0) == 0)
            return std::string(std::stoul(kept.substr(4)), 'b');
        return kept;
    });
    sandtide::on_restore([](std::string_view state) {
        kept = state;
        misbehave("restore");
        if (kept.size() > 1000)
            kept = "big-" + std::to_string(kept.size());
    });
    return sandtide::serve([&](sandtide::Request &request) {
        if (request.path() == "/set")
            kept = request.query();
        if (request.path() == "/hints")
            request.early_hints("</style.css>; rel=preload");
        return sandtide::Response().text(std::string(version ? version : "?") + " " + kept);
    });
}
