//! Who inherits what from whom.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use insta::assert_snapshot;
use proptest::prelude::*;

use super::{bad, good};
use crate::{Config, Serves, Tenant};

fn tenant(config: &Config, name: &str) -> Tenant {
    config.tenants.iter().find(|tenant| tenant.name == name).unwrap().clone()
}

fn env(tenant: &Tenant) -> BTreeMap<String, String> {
    let Serves::Program(program) = &tenant.serves else { panic!("{tenant:?}") };
    program.env.iter().cloned().collect()
}

#[test]
fn the_nearest_wins_key_by_key() {
    let config = good(
        r#"
        [defaults]
        weight = 1
        args = ["d"]
        env = { A = "d", B = "d" }
        files = { "/a" = "d", "/b" = "d" }
        limits = { memory = "1 MiB", threads = 1 }
        [groups.small]
        weight = 2
        queue = 2
        env = { B = "s", C = "s" }
        limits = { threads = 2, wall_time = "2 s" }
        [groups.trial]
        group = "small"
        queue = 3
        limits = { requests_per_second = 3 }
        [tenants.shop]
        group = "trial"
        default = true
        program = "a.elf"
        args = []
        env = { C = "t" }
        files = { "/b" = "t" }
        limits = { wall_time = "4 s", burst = 4 }
        [tenants.other]
        authorities = "b.localhost"
        program = "b.elf"
        "#,
    );
    let shop = tenant(&config, "shop");
    assert_eq!((shop.weight, shop.queue), (2, 3));
    assert_eq!((shop.limits.memory, shop.limits.threads), (1 << 20, 2));
    assert_eq!(shop.limits.wall_time, Duration::from_secs(4));
    let rate = shop.rate.unwrap();
    assert_eq!((rate.requests_per_second.get(), rate.burst.get()), (3, 4));
    let Serves::Program(program) = &shop.serves else { panic!("{shop:?}") };
    assert!(program.args.is_empty(), "an array is replaced: {program:?}");
    let pairs = program.env.iter().map(|(name, value)| format!("{name}={value}"));
    assert_eq!(pairs.collect::<Vec<_>>(), ["A=d", "B=s", "C=t"]);
    let grants = program.files.iter().map(|grant| format!("{} {:?}", grant.guest, grant.host));
    assert_eq!(grants.collect::<Vec<_>>(), ["/a \"/srv/d\"", "/b \"/srv/t\""]);

    let other = tenant(&config, "other");
    assert_eq!((other.weight, other.queue, other.rate), (1, 1024, None));
}

#[test]
fn a_constant_ignores_what_programs_inherit() {
    let config =
        good("[defaults]\nargs = [\"x\"]\nweight = 3\n[tenants.a]\ndefault = true\nrespond = {}\n");
    assert!(matches!(config.tenants[0].serves, Serves::Respond(_)));
    assert_eq!(config.tenants[0].weight, 3);
}

#[test]
fn groups_that_lead_nowhere() {
    let tenant = "[tenants.a]\ndefault = true\nrespond = {}\ngroup = \"a\"\n";
    assert_snapshot!(bad(tenant), @"
    sandtide.toml:4:9: `group`: there is no group `a`
    hint: add it: `[groups.a]`
    ");
    assert_snapshot!(bad(&format!("{tenant}[groups.ab]\ngroup = \"abc\"\n[groups.abcdef]\n")), @"
    sandtide.toml:4:9: `group`: there is no group `a`
    hint: did you mean `ab`?

    sandtide.toml:6:9: `group`: there is no group `abc`
    hint: known here: `abcdef`
    ");
    assert_snapshot!(bad(&format!("{tenant}[groups.a]\ngroup = \"a\"\n")), @"
    sandtide.toml:6:9: group `a` inherits from itself
    hint: leave `group` out
    ");
    let circle =
        "[groups.c]\ngroup = \"a\"\n[groups.b]\ngroup = \"c\"\n[groups.a]\ngroup = \"b\"\n";
    assert_snapshot!(bad(&format!("{tenant}{circle}[groups.into]\ngroup = \"b\"\n")), @"
    sandtide.toml:6:9: group `c` inherits from itself: `c` → `a` → `b` → `c`
    hint: take `group` out of one of them
    ");
}

#[test]
fn what_is_a_tenants_own_cannot_be_shared() {
    let tenant = "[tenants.a]\ndefault = true\nrespond = {}\n";
    assert_snapshot!(bad(&format!("{tenant}[groups.b]\nprogram = \"x\"\nlimits = {{ memry = 1 }}\n")), @"
    sandtide.toml:5:1: `program` cannot be shared
    hint: set it in the table of each tenant

    sandtide.toml:6:12: unknown key `memry` in `[groups.b.limits]`
    hint: did you mean `memory`?
    ");
    assert_snapshot!(bad(&format!("{tenant}[defaults]\npath = \"/x\"\ngroup = \"b\"\n")), @"
    sandtide.toml:5:1: `path` cannot be shared
    hint: set it in the table of each tenant

    sandtide.toml:6:1: `group` cannot be shared
    hint: set it in the table of each tenant
    ");
    assert_snapshot!(bad(&format!("{tenant}limits = {{ burst = 2 }}\n")), @"
    sandtide.toml:4:20: `burst`: there is no rate to exceed
    hint: set `requests_per_second` beside it
    ");
}

/// A chain of ten thousand groups is followed without recursion, and each link once.
#[test]
fn chains_may_be_long() {
    let mut text = "[tenants.a]\ndefault = true\nrespond = {}\ngroup = \"g9999\"\n".to_owned();
    for number in 0..10_000u32 {
        let parent = number.checked_sub(1).map(|parent| format!("group = \"g{parent}\"\n"));
        let _ = write!(text, "[groups.g{number}]\n{}", parent.unwrap_or("weight = 7\n".to_owned()));
    }
    assert_eq!(good(&text).tenants[0].weight, 7);
}

/// What one table says: of a plain key, of a limit, and of the environment.
type Said = (Option<u32>, Option<u32>, BTreeMap<u8, u32>);

fn said() -> impl Strategy<Value = Said> {
    let number = || proptest::option::of(1..1000u32);
    (number(), number(), proptest::collection::btree_map(0..4u8, 0..1000u32, 0..4))
}

fn table((weight, threads, env): &Said) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: Option<u32>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {value}");
        }
    };
    line("weight", *weight);
    line("limits.threads", *threads);
    for (name, value) in env {
        let _ = writeln!(text, "env.V{name} = \"{value}\"");
    }
    text
}

proptest! {
    #[test]
    fn the_nearest_always_wins(layers in proptest::collection::vec(said(), 2..6)) {
        // The first is the tenant, the last `[defaults]`; between them, each group is in the next.
        let mut text = String::new();
        let groups = layers.len() - 2;
        for (index, layer) in layers.iter().enumerate() {
            let _ = match index {
                0 => writeln!(text, "[tenants.a]\ndefault = true\nprogram = \"a.elf\""),
                _ if index > groups => writeln!(text, "[defaults]"),
                _ => writeln!(text, "[groups.g{index}]"),
            };
            if index < groups {
                let _ = writeln!(text, "group = \"g{}\"", index + 1);
            }
            text.push_str(&table(layer));
        }
        let tenant = tenant(&good(&text), "a");
        let nearest = |value: fn(&Said) -> Option<u32>| layers.iter().find_map(value);
        prop_assert_eq!(tenant.weight, nearest(|said| said.0).unwrap_or(100));
        prop_assert_eq!(tenant.limits.threads, nearest(|said| said.1).unwrap_or(16));
        let mut expected = BTreeMap::new();
        for (name, value) in layers.iter().rev().flat_map(|said| &said.2) {
            expected.insert(format!("V{name}"), value.to_string());
        }
        prop_assert_eq!(env(&tenant), expected);
    }
}
