//! Tenants that need no program.

use crate::support::Place;
use insta::assert_snapshot;

#[test]
fn a_constant_answers_a_call() {
    let place = Place::new().file(
        "sandtide.toml",
        "[tenants.shop]\ndefault = true\n\
         respond = { status = 404, headers = { x-a = [\"b\", \"c\"] }, body = \"gone\\n\" }\n",
    );
    assert_snapshot!(place.run(&["call", "-i", "shop", "GET", "/"]), @r"
    exit: 0
    --- stdout
    HTTP/1.1 404 Not Found
    x-a: b
    x-a: c

    gone
    --- stderr
    ");
    assert_snapshot!(place.run(&["call", "shop", "GET", "/"]), @r"
    exit: 0
    --- stdout
    gone
    --- stderr
    ");
}
