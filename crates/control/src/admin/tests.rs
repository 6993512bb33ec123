use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    rc::Rc,
    sync::atomic::{AtomicU8, Ordering::SeqCst},
    task::{Context, Poll, Waker},
};

use bench::Clock;
use fake::{Act, Fake, answer, trap};
use prometheus_client::metrics::MetricType;
use sandtide_engine::{Isolation, RequestBody, ShortfallReason};
use sandtide_runtime::{
    Admission, Begun, Client, FixedResponse, Options, Reactor, Route, Serving, Slot, Table, Tenant,
    VerifyResets,
};

use super::{metrics::METRICS, *};
use crate::tally::Deed;

#[path = "../../../runtime/tests/bench/mod.rs"]
mod bench;
#[path = "../../../runtime/tests/fake/mod.rs"]
mod fake;

fn tenant(name: &str, answer: Answer) -> Tenant {
    Tenant::new(name, vec![Route::new(&format!("{name}.test"), "/").unwrap()], answer)
}

fn runtime() -> Arc<Runtime> {
    let scripts = [
        ("/", answer("hello")),
        ("/echo", vec![Act::Begin(200, vec![]), Act::Echo, Act::Finish(vec![])]),
        ("/trap", vec![Act::Fault(trap)]),
        ("/panic", vec![Act::Panic]),
        ("/slice", vec![Act::Slice]),
        ("/spoil", [vec![Act::SpoilReset], answer("x")].concat()),
        ("/leave", [vec![Act::LeaveSomething], answer("x")].concat()),
    ];
    let mut shop = tenant("shop", Answer::Program(Slot::loaded(Fake::new(scripts))));
    shop.admission = Admission { concurrency: 2, queue: 1, ..Admission::default() };
    let fixed = tenant("fixed", Answer::Fixed(FixedResponse::text("x")));
    let mut quiet = tenant("quiet", Answer::Program(Slot::loaded(Fake::new([("/", answer("x"))]))));
    quiet.isolation = Isolation::Connection;
    let table = Table::build([shop, fixed, quiet].map(Arc::new)).unwrap();
    let options = Options { verify_resets: VerifyResets::Always, ..Options::default() };
    Runtime::new(table, options)
}

fn begin(reactor: &Rc<Reactor>, uri: &str) -> Begun {
    begin_for(&Client::new(), reactor, uri)
}

fn begin_for(client: &Client, reactor: &Rc<Reactor>, uri: &str) -> Begun {
    let (parts, ()) = http::Request::post(uri).body(()).unwrap().into_parts();
    let mut cx = Context::from_waker(Waker::noop());
    reactor.begin(&mut cx, client, parts, |_, _| RequestBody::whole(Bytes::from_static(b"body")))
}

fn serving(reactor: &Rc<Reactor>, uri: &str) -> Box<Serving> {
    match begin(reactor, uri) {
        Begun::Serving(serving) => serving,
        Begun::Whole(whole) => panic!("{uri} has ended: {whole:?}"),
    }
}

fn sources(runtime: &Arc<Runtime>) -> Sources {
    Sources {
        runtime: runtime.clone(),
        readiness: Box::new(|| Readiness::Ready),
        // Each of these has tests of its own, where it happens.
        tally: tally(),
        access_log: Box::new(|| (7, 3)),
        max_tenants: 1,
    }
}

fn tally() -> Arc<Tally> {
    let tally = Arc::<Tally>::default();
    Deed::ALL.into_iter().for_each(|deed| tally.add(deed));
    tally.add_shortfall(ShortfallReason::Size);
    tally
}

fn shared(sources: Sources) -> Shared {
    let series = Mutex::new(Series::new(sources.max_tenants));
    Shared { sources, series }
}

/// Makes everything happen that is counted. Two exchanges are left, of which one runs, and a
/// connection that holds a sandbox.
fn provoke(runtime: &Arc<Runtime>) -> (Rc<Reactor>, [Box<Serving>; 3], Client) {
    let clock = Clock::default();
    let reactor = runtime.reactor(0, 1, Box::new(clock.clone()));
    let mut waiting = {
        let _busy = [(); 2].map(|()| serving(&reactor, "http://shop.test/slice"));
        serving(&reactor, "http://shop.test/")
    };
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(waiting.poll_head(&mut cx), Poll::Ready(_)), "it was its turn");
    let running = serving(&reactor, "http://shop.test/slice");
    for path in ["/", "/echo", "/trap", "/panic", "/spoil", "/leave", "/"] {
        let begun = begin(&reactor, &format!("http://shop.test{path}"));
        // While one of the tenant stands in line, others begin behind it.
        let Begun::Serving(mut serving) = begun else { continue };
        let _ = serving.poll_head(&mut cx);
    }
    begin(&reactor, "http://fixed.test/");
    begin(&reactor, "http://nobody.test/");
    let client = Client::new();
    begin_for(&client, &reactor, "http://quiet.test/");
    begin(&reactor, "http://quiet.test/");
    let also_running = serving(&reactor, "http://shop.test/slice");
    let mut late = serving(&reactor, "http://shop.test/");
    assert!(late.poll_head(&mut cx).is_pending());
    clock.fire_all();
    assert!(matches!(late.poll_head(&mut cx), Poll::Ready(_)), "it has waited too long");
    drop(also_running);
    let other = serving(&reactor, "http://shop.test/slice");
    let waits = serving(&reactor, "http://shop.test/");
    reactor.tick();
    (reactor, [running, other, waits], client)
}

/// The value of a sample, by its name and labels as they stand in the text.
fn sample(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(rest.parse().unwrap())
}

/// Nothing is documented that nobody counts.
#[test]
fn each_metric_moves() {
    let runtime = runtime();
    let _held = provoke(&runtime);
    // The kernel counts in ticks.
    while Process::read().cpu_seconds == 0.0 {
        std::hint::spin_loop();
    }
    let text = shared(sources(&runtime)).metrics();
    for metric in METRICS {
        let samples = text.lines().filter(|line| line.starts_with(metric.name));
        let mut values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(values.any(|value| value != 0.0), "{} is always zero:\n{text}", metric.name);
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn counts_are_exact_and_tenants_bounded() {
    let runtime = runtime();
    let _held = provoke(&runtime);
    let text = shared(sources(&runtime)).metrics();
    for (name, value) in [
        ("sandtide_fixed_responses_total{tenant=\"_other\"}", 1.0),
        ("sandtide_refused_total{tenant=\"_other\",reason=\"no_tenant\"}", 1.0),
        ("sandtide_faults_total{tenant=\"shop\",kind=\"trap\"}", 1.0),
        ("sandtide_refused_total{tenant=\"shop\",reason=\"queue_time\"}", 1.0),
        ("sandtide_engine_panics_total{tenant=\"shop\"}", 1.0),
        ("sandtide_failed_resets_total{tenant=\"shop\"}", 1.0),
        ("sandtide_reset_mismatches_total{tenant=\"shop\"}", 1.0),
        ("sandtide_request_body_bytes_total{tenant=\"shop\"}", 4.0),
        ("sandtide_exchanges_running{tenant=\"shop\"}", 2.0),
        ("sandtide_exchanges_waiting{tenant=\"shop\"}", 1.0),
        ("sandtide_access_log_lines_total", 7.0),
        ("sandtide_access_log_lines_dropped_total", 3.0),
        ("sandtide_sandboxes_idle{tenant=\"_other\"}", 1.0),
        ("sandtide_tenants{state=\"loaded\"}", 2.0),
        ("sandtide_tenants{state=\"fixed\"}", 1.0),
        ("sandtide_build_info{version=\"0.1.0\"}", 1.0),
    ] {
        assert_eq!(sample(&text, name), Some(value), "{name}\n{text}");
    }
    let exchanges = sample(&text, "sandtide_exchanges_total{tenant=\"shop\"}");
    assert_eq!(sample(&text, "sandtide_duration_seconds_count{tenant=\"shop\"}"), exchanges);
    let all = "sandtide_duration_seconds_bucket{le=\"+Inf\",tenant=\"shop\"}";
    assert_eq!(sample(&text, all), exchanges, "{text}");
    let tenants: BTreeSet<_> =
        text.lines().filter_map(|line| line.split("tenant=\"").nth(1)?.split('"').next()).collect();
    assert_eq!(tenants, ["_other", "shop"].into());
}

#[test]
fn tenants_are_told_in_the_order_of_the_configuration() {
    let runtime = runtime();
    let _held = provoke(&runtime);
    let told: serde_json::Value = serde_json::from_str(&tenants::tenants(&runtime)).unwrap();
    let [shop, fixed, _] = &told.as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&shop["name"], &shop["state"]), (&"shop".into(), &"loaded".into()));
    assert_eq!((&shop["version"], &shop["counters"]["faults"]["trap"]), (&1.into(), &1.into()));
    assert_eq!((&fixed["name"], &fixed["state"]), (&"fixed".into(), &"fixed".into()));
    assert_eq!(fixed["counters"]["requests"], 1);
}

#[test]
fn a_server_that_is_not_ready_says_why() {
    let state = Arc::new(AtomicU8::new(0));
    let runtime = runtime();
    let readiness = {
        let state = state.clone();
        move || match state.load(SeqCst) {
            0 => Readiness::Starting,
            1 => Readiness::Ready,
            _ => Readiness::Draining,
        }
    };
    let admin = Admin::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = admin.address();
    admin.serve(Sources { readiness: Box::new(readiness), ..sources(&runtime) }).unwrap();
    let get = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    };
    let expected = [("503", "starting\n"), ("200", "ok\n"), ("503", "draining\n")];
    for (step, (status, body)) in expected.into_iter().enumerate() {
        state.store(step as u8, SeqCst);
        assert_eq!(get("GET /readyz"), (status.to_owned(), body.to_owned()));
        assert_eq!(get("GET /healthz"), ("200".to_owned(), "ok\n".to_owned()));
    }
    assert!(get("GET /metrics").1.contains("# TYPE sandtide_exchanges counter"));
    assert_eq!(get("HEAD /metrics").1, "");
    assert_eq!(get("POST /readyz").0, "405");
    assert_eq!(get("GET /").0, "404");
}

/// `docs/metrics.md` has exactly the metrics that there are.
#[test]
fn metrics_are_documented() {
    let mut table = String::from("\n| metric | type | labels | what |\n|---|---|---|---|\n");
    for metric in METRICS {
        let (kind, suffix) = match metric.kind() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Histogram => ("histogram", ""),
            MetricType::Info => ("info", "_info"),
            _ => ("gauge", ""),
        };
        let labels: Vec<_> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let (name, labels, help) = (metric.name, labels.join(", "), metric.help);
        table += &format!("| `{name}{suffix}` | {kind} | {labels} | {help} |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = text.find("-->").unwrap() + "-->".len();
    let end = text.find("<!-- end -->").unwrap();
    if std::env::var_os("SANDTIDE_REFRESH").is_some() {
        std::fs::write(&path, format!("{}\n{table}\n{}", &text[..begin], &text[end..])).unwrap();
    } else {
        let hint = "hint: SANDTIDE_REFRESH=1 cargo test -p sandtide-control";
        let written = text[begin..end].trim();
        assert_eq!(written, table.trim(), "docs/metrics.md is not up to date\n{hint}");
    }
}
