//! Configurations of several files, with groups and variables; and the schema.

use std::process::Stdio;

use insta::assert_snapshot;

use crate::support::Place;

const MAIN: &str = "\
include = [\"groups.toml\", \"tenants.d/*.toml\"]

[server]
listen = [\"127.0.0.1:${PORT:-0}\", { address = \"127.0.0.1:1\", tls = true }]
threads = \"${THREADS}\"
idle_timeout = 60

[defaults.limits]
memory = \"64 MB\"
";

const GROUPS: &str = "\
[groups.small]
group = \"smal\"
limits = { threads = 4, wall_tme = \"2 s\" }

[groups.a]
group = \"b\"
[groups.b]
group = \"a\"
";

const SHOP: &str = "\
[server]
threads = 1

[tenants.shop]
group = \"smll\"
authorities = \"shop.localhost\"
respond = { body = \"shop\" }
";

#[test]
fn every_mistake_of_every_file_is_shown() {
    let place = Place::new()
        .file("sandtide.toml", MAIN)
        .file("groups.toml", GROUPS)
        .file("tenants.d/shop.toml", SHOP)
        .file("tenants.d/tea.toml", "[tenants.tea]\nauthorities = \"tea..localhost\"\n");
    assert_snapshot!("check_files", place.run(&["check"]));
}

#[test]
fn files_groups_and_variables_make_one_configuration() {
    let place = Place::new()
        .file("sandtide.toml", "include = [\"tenants.d/*.toml\"]\n[groups.a]\nweight = 2\n")
        .file("tenants.d/b.toml", "[tenants.b]\ndefault = true\nrespond.body = \"${SAID}\"\n")
        .file(
            "tenants.d/a.toml",
            "[tenants.a]\ngroup = \"a\"\nauthorities = \"${A:-a}.localhost\"\nrespond.body = \"$${A}\"\n",
        );
    let mut call = place.command(&["call", "b", "GET", "/"]);
    let output = call.env("SAID", "from outside").stderr(Stdio::inherit()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from outside");
    let mut check = place.command(&["check"]);
    let output = check.env("SAID", "").stderr(Stdio::inherit()).output().unwrap();
    assert_snapshot!("check_several", String::from_utf8_lossy(&output.stdout));
    assert_snapshot!("check_unset", place.run(&["check"]));
}

#[test]
fn certificates_are_read() {
    const TLS: &str = "\
[server]
listen = { address = \"127.0.0.1:0\", tls = true }
[tls]
certificates = [
    { certificate = \"a.pem\", key = \"a.key\" },
    { certificate = \"b.pem\", key = \"b.key\" },
    { certificate = \"c.pem\", key = \"b.key\" },
]
[tenants.a]
default = true
respond = {}
";
    let own = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (a, b) = (own("a.localhost"), own("b.localhost"));
    let place = Place::new()
        .file("sandtide.toml", TLS)
        .file("a.pem", a.cert.pem())
        .file("a.key", b.signing_key.serialize_pem())
        .file("c.pem", "no certificate");
    assert_snapshot!("check_bad_certificates", place.run(&["check"]));

    let place = place
        .file("a.key", a.signing_key.serialize_pem())
        .file("b.pem", b.cert.pem())
        .file("c.pem", b.cert.pem())
        .file("b.key", b.signing_key.serialize_pem());
    assert_snapshot!("check_good_certificates", place.run(&["check"]));

    let place = place.file("sandtide.toml", TLS.replace("tls = true", "tls = false"));
    assert_snapshot!("check_unused_certificates", place.run(&["check"]));
    let ca = "[tls]\nclient_auth = \"required\"\nclient_ca = \"a.key\"";
    let place = place.file("sandtide.toml", TLS.replace("[tls]", ca));
    assert_snapshot!("check_bad_authority", place.run(&["check"]));
}

#[test]
fn the_schema_is_json_and_knows_the_engines() {
    let output = Place::new().command(&["schema"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["$defs"]["Tenant"]["properties"]["engine"]["enum"][0], "riscv");
    let tables: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
    assert_snapshot!(tables.join(" "), @"access_log admin defaults groups include server tenants tls");
    // Each table that is referred to is described.
    let text = String::from_utf8(output.stdout).unwrap();
    for reference in text.split("\"#/$defs/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schema["$defs"][name].is_object(), "{name}");
    }
}
