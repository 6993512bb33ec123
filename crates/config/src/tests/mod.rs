//! What a file becomes, and what is said about a wrong one.

mod arbitrary;
mod files;
mod groups;
mod variables;

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use insta::assert_snapshot;
use sandtide_engine::{FileGrant, Isolation, Limits, Requests, Translate};

use crate::{
    AccessLog, AccessLogFile, AccessLogFormat, Admin, Authority, Certificate, ClientAuth, Config,
    ForwardedHeaders, Listen, ListenAddress, Load, LoadError, LogLimits, Serves, Surroundings, Tls,
    Trace, Translation, TranslationCache, VerifyResets, parse,
};

const SURROUNDINGS: Surroundings<'_> = Surroundings {
    engines: &["riscv"],
    variable: &|name| match name {
        "NAME" => Some("value".into()),
        "NESTED" => Some("${NAME}".into()),
        "BYTES" => Some(OsStr::from_bytes(b"\xff").to_owned()),
        "EMPTY" => Some("".into()),
        "FOUR" => Some("4".into()),
        _ => None,
    },
};

fn good(text: &str) -> Config {
    match parse("sandtide.toml", text, Path::new("/srv"), &SURROUNDINGS) {
        Ok(config) => config,
        Err(problems) => panic!("{problems}"),
    }
}

fn listen(address: &str) -> Listen {
    ListenAddress::parse(address).unwrap().into()
}

fn bad(text: &str) -> String {
    match parse("sandtide.toml", text, Path::new("/srv"), &SURROUNDINGS) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(problems) => problems.to_string(),
    }
}

/// A wrong line in a tenant that is right otherwise.
fn bad_tenant(line: &str) -> String {
    bad(&format!("[tenants.a]\nprogram = \"a.elf\"\ndefault = true\n{line}\n"))
}

#[test]
fn a_short_file_has_every_default() {
    let config = good("[tenants.hello]\nprogram = \"hello.elf\"\ndefault = true\n");
    assert_eq!(config.server, Default::default());
    assert_eq!(config.server.listen, [listen("127.0.0.1:8080")]);
    let [tenant] = &config.tenants[..] else { panic!("{config:?}") };
    assert_eq!((tenant.name.as_str(), tenant.path.as_str()), ("hello", "/"));
    assert!(
        tenant.default && tenant.isolation == Isolation::Request && tenant.authorities.is_empty()
    );
    assert_eq!(
        (&tenant.limits, tenant.log),
        (&Limits::default(), LogLimits { lines: 50, bytes: 32 << 10 })
    );
    let Serves::Program(program) = &tenant.serves else { panic!("{tenant:?}") };
    assert_eq!(program.file, Path::new("/srv/hello.elf"));
    assert_eq!((program.args.len(), program.env.len(), program.files.len()), (0, 0, 0));
}

/// Each key there is.
const EVERY_KEY: &str = r#"
include = ["none/*.toml"]

[server]
listen = [
    "127.0.0.1:0",
    "unix:/run/s.sock",
    { address = "[::1]:80", tls = true, proxy_protocol = true },
]
threads = 3
slice = "250 us"
drain = "1 min"
drain_delay = "2 s"
watch = false
max_connections = 4
max_streams = 5
max_head = "6 KiB"
max_headers = 7
head_timeout = "8 s"
idle_timeout = "9 s"
body_timeout = "10 s"
verify_resets = "never"
snapshots = "kept"
snapshots_size = "1 GiB"
trace = "always"
[server.forwarded]
trust = ["10.0.0.0/8", "::1"]
headers = "both"
[server.translation]
cache = "kept"
cache_size = "2 MiB"
code_memory = "3 MiB"
threads = 4

[tls]
certificates = [{ certificate = "a.pem", key = "/etc/a.key" }]
client_auth = "required"
client_ca = "ca.pem"

[admin]
listen = "127.0.0.1:1"
max_tenants = 2

[access_log]
file = "access.log"
format = "json"

[defaults.limits]
wall_time = "2 s"
memory = "1 MiB"

[groups.g]
weight = 3

[tenants.shop]
group = "g"
authorities = ["Shop.example.com", "*.shop.example.com"]
path = "/api/v1"
program = "/opt/shop.elf"
engine = "riscv"
args = ["-v", "x y"]
env = { LANG = "C" }
reseed = false
files = { "/data" = "data", "/etc/tz" = "/usr/share/tz" }
libraries = false
egress = ["DB.internal:5432", "10.0.0.0/8:80"]
hosts = { "DB.internal" = "10.0.0.5" }
directory = "/data"
translate = "auto"
isolation = "none"
load = "start"
cold_after = "never"
warmup = { requests = 20, paths = ["/", "/list?page=1"] }
rollback_on_faults = 2
concurrency = 7
queue = 0
queue_time = "70 ms"
[tenants.shop.limits]
instructions = 1_000_000
boot_instructions = 2_000_000
wall_time = "3 s"
boot_time = "4 s"
response_body = "5 MiB"
response_time = "6 s"
requests_per_second = 13
burst = 14
request_body = 6
descriptors = 8
threads = 9
connections = 17
connections_total = 18
scratch = "10 KiB"
translate_time = "15 s"
translate_size = "16 MiB"
log_lines = 11
log_bytes = "12 KiB"

[tenants.constant]
default = true
[tenants.constant.respond]
status = 404
headers = { Content-Type = "text/plain", X-Many = ["a", "b"] }
body = "no"
"#;

#[test]
fn every_key_arrives() {
    let config = good(EVERY_KEY);
    let server = &config.server;
    let tls = Listen { tls: true, proxy_protocol: true, ..listen("[::1]:80") };
    assert_eq!(server.listen, [listen("127.0.0.1:0"), listen("unix:/run/s.sock"), tls]);
    assert_eq!(server.threads.map(|threads| threads.get()), Some(3));
    let us = Duration::from_micros;
    let times = [server.slice, server.drain, server.drain_delay].map(|time| time.as_micros());
    assert_eq!(times, [250, 60_000_000, 2_000_000]);
    assert_eq!(server.verify_resets, VerifyResets::Never);
    let timeouts = [server.head_timeout, server.idle_timeout, server.body_timeout];
    assert_eq!(timeouts, [8_000_000, 9_000_000, 10_000_000].map(us));
    let limits = [server.max_connections, server.max_streams, server.max_head, server.max_headers];
    assert_eq!(limits, [4, 5, 6 << 10, 7]);
    assert_eq!((server.watch, server.trace), (false, Trace::Always));
    let trust = ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
    assert_eq!(server.forwarded.trust, trust);
    assert_eq!(server.forwarded.headers, ForwardedHeaders::Both);
    let translation = Translation {
        cache: TranslationCache::Directory("/srv/kept".into()),
        cache_size: 2 << 20,
        code_memory: 3 << 20,
        threads: 4,
    };
    assert_eq!(server.translation, translation);
    let certificate = Certificate { certificate: "/srv/a.pem".into(), key: "/etc/a.key".into() };
    let client_auth = ClientAuth::Required { ca: "/srv/ca.pem".into() };
    assert_eq!(config.tls, Some(Tls { certificates: vec![certificate], client_auth }));
    assert_eq!(
        config.admin,
        Some(Admin { listen: "127.0.0.1:1".parse().unwrap(), max_tenants: 2 })
    );
    let file = AccessLogFile::Path("/srv/access.log".into());
    assert_eq!(config.access_log, Some(AccessLog { file, format: AccessLogFormat::Json }));

    let [shop, constant] = &config.tenants[..] else { panic!("{config:?}") };
    let names = ["shop.example.com", "*.shop.example.com"].map(|n| Authority::parse(n).unwrap());
    assert_eq!(shop.authorities, names);
    assert_eq!((shop.path.as_str(), shop.isolation), ("/api/v1", Isolation::None));
    assert_eq!((shop.concurrency, shop.queue), (7, 0));
    assert_eq!(shop.queue_time, Duration::from_millis(70));
    assert_eq!((shop.load, shop.cold_after), (Load::Start, None));
    assert_eq!(shop.warmup.paths, ["/", "/list?page=1"]);
    assert_eq!(shop.warmup.requests, Requests::Exactly(20));
    assert_eq!((shop.rollback_on_faults, shop.weight), (2, 3));
    let rate = shop.rate.map(|rate| (rate.requests_per_second.get(), rate.burst.get()));
    assert_eq!(rate, Some((13, 14)));
    assert_eq!(
        shop.limits,
        Limits {
            instructions: 1_000_000,
            boot_instructions: 2_000_000,
            wall_time: Duration::from_secs(3),
            boot_time: Duration::from_secs(4),
            memory: 1 << 20,
            response_body: 5 << 20,
            response_time: Duration::from_secs(6),
            request_body: 6,
            descriptors: 8,
            threads: 9,
            connections: 17,
            connections_total: 18,
            scratch: 10 << 10,
            translate_time: Duration::from_secs(15),
            translate_size: 16 << 20,
        }
    );
    assert_eq!(shop.log, LogLimits { lines: 11, bytes: 12 << 10 });
    let Serves::Program(program) = &shop.serves else { panic!("{shop:?}") };
    assert_eq!(program.file, Path::new("/opt/shop.elf"));
    assert_eq!(program.engine.as_deref(), Some("riscv"));
    assert_eq!(program.args, ["-v", "x y"]);
    assert_eq!(program.env, [("LANG".to_owned(), "C".to_owned())]);
    let grant = |guest: &str, host: &str| FileGrant {
        guest: guest.into(),
        host: host.into(),
        public: false,
    };
    assert_eq!(program.translate, Translate::Auto);
    let egress: Vec<_> = program.egress.iter().map(ToString::to_string).collect();
    assert_eq!(egress, ["db.internal:5432", "10.0.0.0/8:80"]);
    assert_eq!(program.hosts, [("db.internal".to_owned(), "10.0.0.5".parse().unwrap())]);
    assert_eq!((program.libraries, program.directory.as_str()), (false, "/data"));
    assert_eq!(program.files, [grant("/data", "/srv/data"), grant("/etc/tz", "/usr/share/tz")]);

    // `[defaults.limits]` holds where the tenant says nothing.
    assert_eq!(constant.limits.wall_time, Duration::from_secs(2));
    let Serves::Respond(respond) = &constant.serves else { panic!("{constant:?}") };
    assert_eq!((respond.status.as_u16(), respond.body.as_str()), (404, "no"));
    assert_eq!(respond.headers.get_all("x-many").iter().count(), 2);
}

#[test]
fn a_program_alone_is_a_configuration() {
    let name = |file: &str| Config::of_program(file.into()).tenants.remove(0).name;
    assert_eq!(name("build/examples/Hello.World.elf"), "hello-world");
    assert_eq!(name("-_a"), "a");
    assert_eq!(name("…"), "program");
    let config = Config::of_program("x/y.elf".into());
    assert!(config.tenants[0].default);
    let Serves::Program(program) = &config.tenants[0].serves else { panic!("{config:?}") };
    assert_eq!(program.file, Path::new("x/y.elf"));
}

#[test]
fn who_keeps_state_by_another_word_is_told_the_right_one() {
    assert_snapshot!(bad_tenant("ephemeral = false"), @r#"
    sandtide.toml:4:1: `ephemeral` is not a key
    hint: `isolation = "none"` keeps the state of a tenant, `isolation = "request"` does not
    "#);
}

#[test]
fn unknown_keys_are_mistakes_on_every_level() {
    assert_snapshot!(bad(r#"
sever = 1
[server]
listn = "127.0.0.1:1"
[defaults.limit]
[tenants.a]
authorites = ["a.localhost"]
default = true
program = "a.elf"
wibble = 1
[tenants.a.limits]
wall_tme = "1 s"
[tenants.b]
authorities = "b.localhost"
args = []
respond = { boddy = "x" }
"#), @"
    sandtide.toml:2:1: unknown key `sever` at the top of the file
    hint: did you mean `server`?

    sandtide.toml:4:1: unknown key `listn` in `[server]`
    hint: did you mean `listen`?

    sandtide.toml:5:11: unknown key `limit` in `[defaults]`
    hint: did you mean `limits`?

    sandtide.toml:7:1: unknown key `authorites` in `[tenants.a]`
    hint: did you mean `authorities`?

    sandtide.toml:10:1: unknown key `wibble` in `[tenants.a]`
    hint: known here: `args`, `authorities`, `cold_after`, `concurrency`, `default`, `directory`, `egress`, `engine`, `env`, `files`, `group`, `hosts`, `isolation`, `libraries`, `limits`, `load`, `path`, `program`, `queue_time`, `queue`, `reseed`, `respond`, `rollback_on_faults`, `translate`, `warmup`, `weight`

    sandtide.toml:12:1: unknown key `wall_tme` in `[tenants.a.limits]`
    hint: did you mean `wall_time`?

    sandtide.toml:15:8: `args` means nothing beside `respond`
    hint: a constant answer has no program: leave it out

    sandtide.toml:16:13: unknown key `boddy` in `[tenants.b.respond]`
    hint: did you mean `body`?
    ");
}

#[test]
fn every_wrong_value_of_a_file_is_shown() {
    assert_snapshot!(bad(r#"
[server]
listen = ["localhost:8080", ":80", "8080", "x", "127.0.0.1:1"]
threads = 0
slice = 5
drain = "10"
[tenants.a]
default = "yes"
program = 7
engine = "risc"
path = "shop/"
args = "-v"
concurrency = 1.5
[tenants.a.limits]
instructions = 0
memory = "64 MB"
scratch = "5 GiB"
wall_time = "0 s"
descriptors = -1
threads = 99999999999999999999
log_lines = "many"
"#), @r#"
    sandtide.toml:3:11: `listen`: `localhost:8080` is not an address to listen on
    hint: write `127.0.0.1:8080`

    sandtide.toml:3:29: `listen`: `:80` is not an address to listen on
    hint: write `0.0.0.0:80` for every address

    sandtide.toml:3:36: `listen`: `8080` is not an address to listen on
    hint: write `127.0.0.1:8080`

    sandtide.toml:3:44: `listen`: `x` is not an address to listen on
    hint: write an IP address and a port, such as `127.0.0.1:8080`

    sandtide.toml:4:11: `threads`: 0 is outside 1 to 1024

    sandtide.toml:5:9: `slice`: must be a duration such as "10 s", not an integer
    hint: write the unit: `"5 s"` or `"5 ms"`

    sandtide.toml:6:9: `drain`: `10` has no unit
    hint: write a whole number and a unit, such as `500 ms`

    sandtide.toml:8:11: `default`: must be `true` or `false`, not a string

    sandtide.toml:9:11: `program`: must be a string, not an integer

    sandtide.toml:10:10: `engine`: there is no engine `risc` in this build
    hint: did you mean `riscv`?

    sandtide.toml:11:8: `path`: `shop/` does not start with `/`
    hint: write `/shop/`

    sandtide.toml:12:8: `args`: must be an array, not a string

    sandtide.toml:13:15: `concurrency`: must be an integer, not a fraction

    sandtide.toml:15:16: `instructions`: 0 is less than 1

    sandtide.toml:16:10: `memory`: `MB` is not a unit of size
    hint: the units are `B`, `KiB`, `MiB`, `GiB`

    sandtide.toml:17:11: `scratch`: 5 GiB is outside 0 B to 4 GiB

    sandtide.toml:18:13: `wall_time`: 0 s is outside 1 ms to 24 h

    sandtide.toml:19:15: `descriptors`: -1 is outside 3 to 65536

    sandtide.toml:20:11: `threads`: 99999999999999999999 is outside 1 to 4096

    sandtide.toml:21:13: `log_lines`: must be an integer, not a string
    "#);
}

#[test]
fn listen_addresses() {
    let listen = |text: &str| bad(&format!("[server]\nlisten = {text}\n"));
    assert_snapshot!(listen("[]"), @"sandtide.toml:2:10: `listen`: needs at least one address");
    assert_snapshot!(listen("[\"127.0.0.1:1\", \"127.0.0.1:1\"]"), @"sandtide.toml:2:26: `listen`: 127.0.0.1:1 is there twice");
    assert_snapshot!(listen("\"*:80\""), @"
    sandtide.toml:2:10: `listen`: `*:80` is not an address to listen on
    hint: write `0.0.0.0:80` for every address
    ");
    assert_snapshot!(listen("true"), @"sandtide.toml:2:10: `listen`: must be a string, not a boolean");
}

#[test]
fn listeners_fit_to_the_rest() {
    let tenant = "[tenants.a]\ndefault = true\nrespond = {}\n";
    let bad = |text: &str| bad(&format!("{text}\n{tenant}"));
    assert_snapshot!(bad("[server]\nlisten = { address = \"127.0.0.1:1\", tls = true }"), @"
    sandtide.toml:2:43: `tls`: there is no certificate
    hint: add `[tls]` with `certificates`
    ");
    assert_snapshot!(bad("[server]\nlisten = [\"unix:/a\", { tls = false, port = 1 }, \"unix:/a\"]"), @"
    sandtide.toml:2:22: `[server.listen]` needs `address`

    sandtide.toml:2:37: unknown key `port` in `[server.listen]`
    hint: known here: `address`, `proxy_protocol`, `tls`

    sandtide.toml:2:49: `listen`: unix:/a is there twice
    ");
    let long = format!("[server]\nlisten = \"unix:{}\"", "x".repeat(104));
    assert!(bad(&long).contains("the path of a Unix socket has up to 107 bytes"));
    let config = good(&format!("[server]\nlisten = \"unix:x\"\n{tenant}"));
    assert_eq!(config.server.listen, [listen("unix:/srv/x")]);
    assert_snapshot!(bad("[admin]\nlisten = \"127.0.0.1:8080\""), @"
    sandtide.toml:1:1: `[admin]` and `[server]` both listen on 127.0.0.1:8080
    hint: give `[admin]` a port of its own
    ");
    assert_snapshot!(bad("[tls]\ncertificates = []\nclient_auth = \"required\""), @"
    sandtide.toml:2:16: `certificates`: needs at least one certificate

    sandtide.toml:3:15: `client_auth`: nothing says who vouches for clients
    hint: set `client_ca` to a PEM file with the certificates that do
    ");
    assert_snapshot!(bad("[tls]\nclient_ca = \"\"\n[tls.certificate]"), @"
    sandtide.toml:1:1: `[tls]` needs `certificates`

    sandtide.toml:2:13: `client_ca`: is empty

    sandtide.toml:3:6: unknown key `certificate` in `[tls]`
    hint: did you mean `certificates`?
    ");
    assert_snapshot!(bad("[tls]\ncertificates = [{ certificate = \"a.pem\" }, \"b.pem\"]"), @"
    sandtide.toml:2:17: `[tls.certificates]` needs `key`

    sandtide.toml:2:44: `certificates`: must be a table, not a string
    ");
}

#[test]
fn authorities_have_one_owner() {
    assert_snapshot!(bad(r#"
[tenants.a]
authorities = ["a.localhost", "A.localhost"]
default = true
respond = {}
[tenants.b]
authorities = "*.b"
path = "/b"
default = true
respond = {}
[tenants.c]
authorities = ["a.localhost", "*.b"]
default = true
respond = {}
[tenants.d]
authorities = "*.b"
path = "/b"
respond = {}
"#), @"
    sandtide.toml:3:31: authority `a.localhost` with path `/` is there twice

    sandtide.toml:12:16: tenant `a` already claims authority `a.localhost` with path `/`

    sandtide.toml:13:11: tenant `a` already claims `default` with path `/`

    sandtide.toml:16:15: tenant `b` already claims authority `*.b` with path `/b`
    ");
    assert_snapshot!(bad("[tenants.a]\nrespond = {}\n"), @r#"
    sandtide.toml:1:10: tenant `a` cannot be reached
    hint: set `authorities = ["a.localhost"]`, for example, or `default = true`
    "#);
    assert_snapshot!(bad_tenant("authorities = \"http://a.example/b\""), @"
    sandtide.toml:4:15: `authorities`: `http://a.example/b` is a URL, not a host name
    hint: write `a.example`
    ");
    assert_snapshot!(bad_tenant("authorities = \"a.example:8080\""), @"
    sandtide.toml:4:15: `authorities`: `a.example:8080` has a port
    hint: write `a.example`: the port is the listener's business
    ");
    assert_snapshot!(bad_tenant("authorities = [\"a.*\"]"), @"
    sandtide.toml:4:16: `authorities`: `a.*` has `*` in a place that it cannot have
    hint: only the first label may be `*`, as in `*.example.com`
    ");
    assert_snapshot!(bad_tenant("authorities = [\"*\"]"), @"
    sandtide.toml:4:16: `authorities`: `*` is not a host name
    hint: write `default = true`
    ");
}

#[test]
fn a_tenant_serves_exactly_one_thing() {
    assert_snapshot!(bad("[tenants.a]\ndefault = true\n"), @"
    sandtide.toml:1:10: tenant `a` has nothing to serve
    hint: set `program` to a file, or `respond` to a constant answer
    ");
    assert_snapshot!(bad_tenant("respond = { status = 204 }"), @"
    sandtide.toml:1:10: tenant `a` has both `program` and `respond`
    hint: keep one of them
    ");
    assert_snapshot!(bad(""), @r#"
    sandtide.toml:1:1: no tenant is configured
    hint: add one: `[tenants.hello]` with `program = "hello.elf"` and `default = true`
    "#);
    assert_snapshot!(bad("[tenants.A_b]\ndefault = true\nrespond = {}\n"), @"
    sandtide.toml:1:10: `A_b` cannot be a tenant's name
    hint: up to 63 of `a`-`z`, `0`-`9`, `-` and `_`, the first a letter or a digit
    ");
}

#[test]
fn constants_are_valid_responses() {
    let respond = |text: &str| bad(&format!("[tenants.a]\ndefault = true\nrespond = {text}\n"));
    assert_snapshot!(respond("{ status = 101 }"), @"sandtide.toml:3:22: `status`: 101 is outside 200 to 599");
    assert_snapshot!(respond("{ headers = { Content-Length = \"3\" } }"), @"
    sandtide.toml:3:25: `content-length` cannot be set
    hint: leave it out: the host writes it
    ");
    assert_snapshot!(respond("{ headers = { \"a b\" = \"3\" } }"), @"sandtide.toml:3:25: `a b` is not a header name");
    assert_snapshot!(respond("{ headers = { a = \"x\\ny\" } }"), @"sandtide.toml:3:29: `headers.a`: is not a header value");
    assert_snapshot!(respond("\"hello\""), @"sandtide.toml:3:11: `respond`: must be a table, not a string");
}

#[test]
fn grants_are_checked() {
    assert_snapshot!(bad_tenant("files = { \"data\" = \"x\" }"), @"
    sandtide.toml:4:11: `data` cannot be a path of the guest
    hint: it starts with `/` and has no `.` or `..` in it
    ");
    assert_snapshot!(bad_tenant("directory = \"app\""), @"
    sandtide.toml:4:13: `directory`: `app` cannot be a path of the guest
    hint: it starts with `/` and has no `.` or `..` in it
    ");
    assert_snapshot!(bad_tenant("files = { \"/a/../b\" = \"x\" }"), @"
    sandtide.toml:4:11: `/a/../b` cannot be a path of the guest
    hint: it starts with `/` and has no `.` or `..` in it
    ");
    assert_snapshot!(bad_tenant("files = { \"/a\" = \"\" }"), @"sandtide.toml:4:18: `files./a`: is empty");
    assert_snapshot!(bad_tenant("env = { \"A=B\" = \"x\" }"), @"
    sandtide.toml:4:9: `A=B` cannot be the name of a variable
    hint: it has no `=` and is not empty
    ");
    assert_snapshot!(bad_tenant("env = { A = 1 }"), @"sandtide.toml:4:13: `env.A`: must be a string, not an integer");
    assert_snapshot!(bad_tenant("args = [\"a\\u0000b\"]"), @"sandtide.toml:4:9: `args`: must not contain a NUL character");
}

#[test]
fn what_is_not_toml_is_shown_where_it_is() {
    assert_snapshot!(bad("[server\nlisten = 1\n"), @"sandtide.toml:1:8: unclosed table, expected `]`");
    assert_snapshot!(bad("[server]\nlisten = \"127.0.0.1:1\nthreads = 2\n"), @r#"sandtide.toml:2:22: invalid basic string, expected `"`"#);
    assert_snapshot!(bad("[tenants.a]\ndefault = true\ndefault = false\n"), @"sandtide.toml:3:1: duplicate key");
}

#[test]
fn a_file_that_cannot_be_read_says_which() {
    let error = crate::load(Path::new("no/such/sandtide.toml"), &SURROUNDINGS).unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }));
    assert_eq!(error.to_string(), "cannot read `no/such/sandtide.toml`");
}
