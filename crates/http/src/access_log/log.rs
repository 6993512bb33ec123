//! A reactor's part of the access log.

use std::{
    cell::{Cell, RefCell},
    mem,
    net::IpAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{SyncSender, TrySendError},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sandtide_runtime::Record;

use super::{
    AccessLogFormat, Shared,
    calendar::Second,
    format::{self, Done},
    writer::Lines,
};
use crate::inbound::Origin;

/// A buffer with more bytes than this goes to the writer.
const FULL: usize = 256 << 10;

/// Lines that wait to be written. It belongs to one thread.
pub(crate) struct Log {
    format: AccessLogFormat,
    sender: SyncSender<Lines>,
    shared: Arc<Shared>,
    inner: RefCell<Inner>,
}

struct Inner {
    lines: Lines,
    second: Second,
    clock: Clock,
    client: Client,
}

/// The client of the line before, and how it is written.
#[derive(Default)]
struct Client {
    address: Option<IpAddr>,
    text: Vec<u8>,
}

impl Client {
    fn set(&mut self, address: Option<IpAddr>) {
        if self.address != address || self.text.is_empty() {
            self.address = address;
            self.text.clear();
            format::address(&mut self.text, address);
        }
    }
}

/// Tells the time of day from the monotonic clock, which is read anyway.
struct Clock {
    at: Instant,
    since_1970: Duration,
}

impl Clock {
    fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at: Instant::now(), since_1970 }
    }

    fn tell(&self, at: Instant) -> Duration {
        match at.checked_duration_since(self.at) {
            Some(after) => self.since_1970 + after,
            None => self.since_1970.saturating_sub(self.at - at),
        }
    }
}

impl Log {
    pub(super) fn new(
        format: AccessLogFormat,
        sender: SyncSender<Lines>,
        shared: Arc<Shared>,
    ) -> Self {
        let inner = Inner {
            lines: Lines::default(),
            second: Second::default(),
            clock: Clock::now(),
            client: Client::default(),
        };
        Self { format, sender, shared, inner: RefCell::new(inner) }
    }

    fn add(&self, record: &Record, origin: &Origin, sent: u64) {
        let mut inner = self.inner.borrow_mut();
        let Inner { lines, second, clock, client } = &mut *inner;
        client.set(origin.client);
        let began = clock.tell(record.began);
        second.set(began.as_secs());
        let took = record.began.elapsed();
        let microseconds = began.subsec_micros();
        let client = &client.text;
        let done = Done { record, origin, client, second, microseconds, took, sent };
        match self.format {
            AccessLogFormat::Common => format::common(&mut lines.bytes, &done),
            AccessLogFormat::Json => format::json(&mut lines.bytes, &done),
        }
        lines.count += 1;
        if lines.bytes.len() >= FULL {
            self.send(lines);
        }
    }

    /// Hands on what there is. To be called about every second.
    pub(crate) fn flush(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.clock = Clock::now();
        if inner.lines.count > 0 {
            self.send(&mut inner.lines);
        }
    }

    fn send(&self, lines: &mut Lines) {
        let empty = self.shared.spare().unwrap_or_else(|| Vec::with_capacity(FULL + (4 << 10)));
        let lines = mem::replace(lines, Lines { bytes: empty, count: 0 });
        if let Err(TrySendError::Full(lines) | TrySendError::Disconnected(lines)) =
            self.sender.try_send(lines)
        {
            self.shared.dropped.fetch_add(lines.count, Relaxed);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A line in the making, which is written when it is dropped: when the response has gone out, or
/// cannot go out any more.
pub(crate) struct Line {
    log: Rc<Log>,
    origin: Origin,
    record: Cell<Option<Box<Record>>>,
    sent: Cell<u64>,
}

impl Line {
    /// A line of an exchange that has begun.
    pub(crate) fn new(log: Rc<Log>, origin: Origin) -> Self {
        Self { log, origin, record: Cell::new(None), sent: Cell::new(0) }
    }

    /// The exchange is over. The first record is the one that shared.
    pub(crate) fn set(&self, record: Option<Box<Record>>) {
        if let Some(record) = self.record.take().or(record) {
            self.record.set(Some(record));
        }
    }

    /// So many bytes of body were handed to the connection.
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(record) = self.record.get_mut() {
            self.log.add(record, &self.origin, self.sent.get());
        }
    }
}
