use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    rc::Rc,
    sync::mpsc::Sender,
    time::Instant,
};

use http::{HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use sandtide_engine::{ExchangeId, Usage};
use sandtide_runtime::{Ending, Record, Refused, RequestHead, Spent, TraceContext};

use super::{
    calendar::Second,
    format::{self, Done},
    log::Line,
    writer::{Lines, Writer},
    *,
};
use crate::inbound::Origin;

const TRACE: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn record(headers: &[(&'static str, &[u8])], target: &str) -> Record {
    let mut request = http::Request::get(target).header("host", "shop.test");
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value).unwrap();
        request = request.header(HeaderName::from_static(name), value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let http::request::Parts { method, uri, version, headers, .. } = parts;
    let request = RequestHead { method, uri, version, headers };
    Record {
        id: ExchangeId(0xabc),
        tenant: Some("shop".into()),
        request,
        ending: Ending::Done,
        status: Some(StatusCode::OK),
        began: Instant::now(),
        spent: Spent {
            usage: Usage { instructions: 700, pages_written: 3, calls: 2, ..Usage::default() },
            cpu: Duration::from_micros(12),
            queued: Duration::from_micros(5),
            ran: Duration::from_micros(15),
            bytes_in: 0,
            bytes_out: 14,
        },
    }
}

fn origin(client: Option<IpAddr>) -> Origin {
    Origin { client, trace: None }
}

fn line(format: AccessLogFormat, record: &Record, origin: &Origin) -> String {
    let mut second = Second::default();
    second.set(971_186_136);
    let (microseconds, took, sent) = (42, Duration::from_micros(20), 14);
    let mut client = Vec::new();
    format::address(&mut client, origin.client);
    let done = Done { record, origin, client: &client, second: &second, microseconds, took, sent };
    let mut line = Vec::new();
    match format {
        AccessLogFormat::Common => format::common(&mut line, &done),
        AccessLogFormat::Json => format::json(&mut line, &done),
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn a_common_line() {
    let record =
        record(&[("user-agent", b"curl/8"), ("referer", b"http://a.test/")], "/cart?item=1");
    let client = Some("192.0.2.1".parse().unwrap());
    assert_eq!(
        line(AccessLogFormat::Common, &record, &origin(client)),
        "192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] \"GET /cart?item=1 HTTP/1.1\" 200 14 \
         \"http://a.test/\" \"curl/8\"\n"
    );
}

#[test]
fn a_json_line() {
    let record = record(&[("user-agent", b"curl/8")], "/cart?item=1");
    let trace = TraceContext::parse(TRACE).map(Box::new);
    let origin = Origin { client: Some("2001:db8::1".parse().unwrap()), trace };
    assert_eq!(
        line(AccessLogFormat::Json, &record, &origin),
        "{\"time\":\"2000-10-10T13:55:36.000042Z\",\"client\":\"2001:db8::1\",\
         \"method\":\"GET\",\"host\":\"shop.test\",\"path\":\"/cart?item=1\",\
         \"protocol\":\"HTTP/1.1\",\"status\":200,\"bytes\":14,\"duration_us\":20,\
         \"queue_us\":5,\"cpu_us\":12,\"instructions\":700,\"tenant\":\"shop\",\
         \"request_id\":\"0000000000000abc\",\
         \"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\",\"span_id\":\"00f067aa0ba902b7\",\
         \"user_agent\":\"curl/8\",\"ending\":\"done\"}\n"
    );
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut record = record(&[], "/");
    record.tenant = None;
    record.status = None;
    record.ending = Ending::Refused(Refused::NoTenant);
    let common = line(AccessLogFormat::Common, &record, &origin(None));
    assert!(common.starts_with("- - - ["), "{common}");
    assert!(common.ends_with("\" 499 14 \"-\" \"-\"\n"), "{common}");
    let json = line(AccessLogFormat::Json, &record, &origin(None));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["ending"], &value["why"]), (&"refused".into(), &"no_tenant".into()));
    assert!(["tenant", "trace_id", "user_agent"].iter().all(|key| value.get(key).is_none()));
}

/// A common line's fields, found as its readers find them.
fn quoted_fields(line: &str) -> Vec<String> {
    let mut fields = vec![];
    let mut chars = line.chars();
    while chars.by_ref().any(|c| c == '"') {
        let mut field = String::new();
        loop {
            match chars.next().expect("a quote that is closed") {
                '"' => break,
                '\\' => field.push(chars.next().expect("an escape is followed")),
                c => field.push(c),
            }
        }
        fields.push(field);
    }
    fields
}

proptest! {
    /// No client forges a line, a field, or what a terminal shows.
    #[test]
    fn lines_cannot_be_forged(
        agent in prop::collection::vec(any::<u8>(), 0..60),
        host in "[ -~]{0,30}",
        path in "/[!-~]{0,30}",
    ) {
        // What reaches us has passed HTTP's own rules.
        let agent: Vec<u8> = agent.into_iter().filter(|b| *b == b'\t' || (*b >= 32 && *b != 127)).collect();
        let Ok(uri) = path.parse::<http::Uri>() else { return Ok(()) };
        let mut record = record(&[("user-agent", &agent)], "/");
        record.request.uri = uri.clone();
        record.request.headers.insert("host", HeaderValue::try_from(&host).unwrap());
        for format in [AccessLogFormat::Common, AccessLogFormat::Json] {
            let line = line(format, &record, &origin(None));
            let (body, end) = line.split_at(line.len() - 1);
            prop_assert_eq!(end, "\n");
            prop_assert!(body.bytes().all(|b| (b' '..=b'~').contains(&b)), "{}", body);
            match format {
                AccessLogFormat::Common => prop_assert_eq!(quoted_fields(body).len(), 3),
                AccessLogFormat::Json => {
                    let value: serde_json::Value = serde_json::from_str(body).unwrap();
                    prop_assert_eq!(&value["user_agent"], &*String::from_utf8_lossy(&agent));
                    prop_assert_eq!(&value["host"], &host);
                    let path = uri.path_and_query().map_or("*", |path| path.as_str());
                    prop_assert_eq!(&value["path"], path);
                    prop_assert_eq!(&value["ending"], "done");
                }
            }
        }
    }
}

fn add(log: &Rc<Log>, path: &str) {
    let line = Line::new(log.clone(), origin(None));
    line.set(Some(Box::new(record(&[], path))));
    line.add_sent(5);
}

#[test]
fn lines_reach_the_file_and_go_on_in_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("access.log"), directory.path().join("1"));
    let file = AccessLogFile::Path(path.clone());
    let options = AccessLogOptions { file, format: AccessLogFormat::Common };
    let access_log = AccessLog::open(&options).unwrap();
    let log = Rc::new(access_log.log().unwrap());
    add(&log, "/first");
    log.flush();
    while access_log.written() < 1 {
        thread::yield_now();
    }
    fs::rename(&path, &moved).unwrap();
    access_log.reopen();
    add(&log, "/second");
    drop(log);
    access_log.close();
    assert!(access_log.log().is_none());
    let text = |path| fs::read_to_string(path).unwrap();
    assert!(
        text(&moved).contains("GET /first HTTP/1.1\" 200 5 ") && text(&moved).lines().count() == 1
    );
    assert!(text(&path).contains("GET /second ") && text(&path).lines().count() == 1);
    assert_eq!((access_log.written(), access_log.dropped()), (2, 0));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error() {
    let file = AccessLogFile::Path("/nowhere/access.log".into());
    assert!(AccessLog::open(&AccessLogOptions { file, format: AccessLogFormat::Json }).is_err());
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted() {
    let shared = Arc::<Shared>::default();
    let (sender, receiver) = sync_channel(1);
    let log = Rc::new(Log::new(AccessLogFormat::Json, sender, shared.clone()));
    add(&log, "/kept");
    log.flush();
    add(&log, "/dropped");
    log.flush();
    log.flush();
    assert_eq!(shared.dropped.load(Relaxed), 1);
    let lines = receiver.recv().unwrap();
    assert_eq!((lines.count, lines.bytes.last()), (1, Some(&b'\n')));
    assert!(receiver.try_recv().is_err());
}

/// A disk that is full every second time.
struct Full(Sender<Vec<u8>>, u32);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1 == 2 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.send(bytes.to_vec()).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_is_full_ends_nothing() {
    let (written, lines) = std::sync::mpsc::channel();
    let (sender, receiver) = sync_channel(4);
    let shared = Arc::<Shared>::default();
    for text in ["a\n", "lost\n", "c\n"] {
        let lines = Lines { bytes: text.into(), count: 1 };
        sender.send(lines).unwrap();
    }
    drop(sender);
    let sink = Box::new(Full(written, 0));
    Writer::new(AccessLogFile::Stdout, sink, receiver, shared.clone()).run();
    let text: Vec<u8> = lines.iter().flatten().collect();
    assert_eq!(text, b"a\n\nc\n", "what follows a failure begins a line");
    assert_eq!((shared.written.load(Relaxed), shared.dropped.load(Relaxed)), (2, 1));
}
