use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
};

use sandtide_engine::{Console, Stream};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::MAX_LINE;
use crate::{LogPolicy, TenantLog};

/// Keeps the messages of events, and the number of suppressed lines as `-n`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.0.lock().unwrap().push(format!("{value:?}")),
            "lines" => self.0.lock().unwrap().push(format!("-{value:?}")),
            _ => {}
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn generous() -> LogPolicy {
    LogPolicy { lines_per_second: 1000, bytes_per_second: 1 << 20, ..LogPolicy::default() }
}

fn lines_of(policy: LogPolicy, work: impl FnOnce(&dyn Console)) -> Vec<String> {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let log = Arc::new(TenantLog::new("shop", policy));
        work(&*log.console());
    });
    let lines = lines.0.lock().unwrap();
    lines.clone()
}

#[test]
fn output_becomes_lines_however_it_is_cut() {
    let lines = lines_of(generous(), |console| {
        console.write(Stream::Stdout, b"on");
        console.write(Stream::Stderr, b"error\n");
        console.write(Stream::Stdout, b"e\ntwo\r\n\nthr");
        console.write(Stream::Stdout, b"ee");
        console.flush();
        console.flush();
    });
    assert_eq!(lines, ["error", "one", "two", "", "three"]);
}

#[test]
fn lines_cannot_be_forged() {
    let lines = lines_of(generous(), |console| {
        console.write(Stream::Stdout, b"\x1b[2J a\rb\x00\xff\xe2\x80\xae\n");
    });
    assert_eq!(lines, ["\\u{1b}[2J a\\rb\\u{0}\u{fffd}\\u{202e}"]);
}

#[test]
fn long_lines_are_cut() {
    let lines = lines_of(generous(), |console| {
        console.write(Stream::Stdout, &[b'x'; MAX_LINE - 1]);
        console.write(Stream::Stdout, &[b'y'; MAX_LINE + 2]);
        console.write(Stream::Stdout, b"\n");
    });
    let lengths: Vec<_> = lines.iter().map(String::len).collect();
    assert_eq!(lengths, [MAX_LINE, MAX_LINE, 1]);
}

#[test]
fn a_flood_is_suppressed_and_told_once() {
    let policy = LogPolicy {
        lines_per_second: 1,
        burst: std::time::Duration::from_secs(5),
        ..LogPolicy::default()
    };
    let lines = lines_of(policy, |console| {
        for _ in 0..1000 {
            console.write(Stream::Stderr, b"flood\n");
        }
    });
    let shown = lines.iter().filter(|line| *line == "flood").count();
    assert!((5..50).contains(&shown), "{shown} lines came through");
    let told: Vec<_> = lines.iter().filter(|line| line.starts_with('-')).collect();
    let suppressed: usize = told.iter().map(|line| line[1..].parse::<usize>().unwrap()).sum();
    assert_eq!(shown + suppressed, 1000);
}
