//! Variables of the environment in a configuration.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::{bad_tenant, good};
use crate::{Serves, variables::substitute};

fn value(text: &str) -> String {
    substitute(text, super::SURROUNDINGS.variable).unwrap().into_owned()
}

#[test]
fn variables_and_defaults_are_put_in() {
    assert_eq!(value("a ${NAME} b ${NAME}"), "a value b value");
    assert_eq!(value("${NAME:-x}${EMPTY:-y}${UNSET:-z}${EMPTY}${UNSET:-}"), "valueyz");
    assert_eq!(value("${UNSET:-a:-b}"), "a:-b");
    assert_eq!(value("$NAME $$ $5 $"), "$NAME $$ $5 $");
    assert_eq!(value("$${NAME} $$${NAME}"), "${NAME} $${NAME}");
    // What looks like a variable in a value is none.
    assert_eq!(value("${NESTED}"), "${NAME}");
}

#[test]
fn numbers_and_booleans_may_come_from_variables() {
    let config = good(
        "[server]\nthreads = \"${FOUR}\"\nwatch = \"${UNSET:-false}\"\nmax_head = \"${FOUR} KiB\"\n\
         max_headers = \"${FOUR}0\"\nlisten = \"127.0.0.1:${PORT:-80}\"\ndrain = \"${FOUR} s\"\n\
         [tenants.a]\ndefault = \"${UNSET:-true}\"\nprogram = \"${NAME}.elf\"\n",
    );
    let server = &config.server;
    assert_eq!(server.threads.map(|threads| threads.get()), Some(4));
    assert_eq!((server.watch, server.max_head, server.max_headers), (false, 4096, 40));
    assert_eq!(server.listen[0].address.to_string(), "127.0.0.1:80");
    let Serves::Program(program) = &config.tenants[0].serves else { panic!("{config:?}") };
    assert_eq!(program.file.to_str(), Some("/srv/value.elf"));
}

#[test]
fn what_is_wrong_with_a_variable_is_said() {
    assert_snapshot!(bad_tenant("env = { A = \"x${UNSET}\", B = \"${NAME\" }"), @"
    sandtide.toml:4:13: `env.A`: environment variable `UNSET` is not set
    hint: set it, or say what to use instead: `${UNSET:-default}`

    sandtide.toml:4:30: `env.B`: has a `${` without a `}`
    hint: close it, or write `$${` for a `${` that stays
    ");
    assert_snapshot!(bad_tenant("args = [\"${}\", \"${1A}\", \"${A B}\", \"${A:=x}\", \"${A:-${B}}\", \"${BYTES}\"]"), @"
    sandtide.toml:4:9: `args`: `` cannot be the name of a variable
    hint: write `${NAME}` or `${NAME:-default}`, or `$${` for a `${` that stays

    sandtide.toml:4:16: `args`: `1A` cannot be the name of a variable
    hint: write `${NAME}` or `${NAME:-default}`, or `$${` for a `${` that stays

    sandtide.toml:4:25: `args`: `A B` cannot be the name of a variable
    hint: write `${NAME}` or `${NAME:-default}`, or `$${` for a `${` that stays

    sandtide.toml:4:35: `args`: `A:=x` cannot be the name of a variable
    hint: write `${NAME}` or `${NAME:-default}`, or `$${` for a `${` that stays

    sandtide.toml:4:46: `args`: the default of variable `A` has a variable in it
    hint: a default is plain text

    sandtide.toml:4:60: `args`: environment variable `BYTES` is not UTF-8
    hint: set it to a text
    ");
    assert_snapshot!(bad_tenant("weight = \"${NAME}\"\nreseed = \"${NAME}\"\nqueue = \"4\""), @"
    sandtide.toml:4:10: `weight`: `value` is not a whole number

    sandtide.toml:5:10: `reseed`: `value` is not `true` or `false`

    sandtide.toml:6:9: `queue`: must be an integer, not a string
    ");
    assert_snapshot!(bad_tenant("weight = \"${FOUR}0000\"\nlimits.threads = \"-${FOUR}\""), @"
    sandtide.toml:4:10: `weight`: 40000 is outside 1 to 10000

    sandtide.toml:5:18: `threads`: -4 is outside 1 to 4096
    ");
}

proptest! {
    #[test]
    fn what_is_escaped_stays(text in "[a-z${}: -]{0,20}") {
        prop_assert_eq!(value(&text.replace("${", "$${")), text);
    }

    #[test]
    fn text_around_a_variable_stays(before in "[a-z}: -]*", after in "[a-z}: $-]*") {
        prop_assume!(!after.contains("${"));
        prop_assert_eq!(value(&format!("{before}${{NAME}}{after}")), format!("{before}value{after}"));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*[${}:-]*\\PC*") {
        drop(substitute(&text, super::SURROUNDINGS.variable));
    }
}
