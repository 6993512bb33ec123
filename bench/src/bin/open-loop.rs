//! A client that does not wait: requests are due at fixed times, whatever has become of those
//! before them, and each latency counts from the time at which the request was due. So a server
//! that stalls is not spared the requests that would have come meanwhile.
//!
//! Each connection has one request at a time. Of the requests that find no free connection the
//! latest goes first when there is one, and who has waited for longer than the patience is given
//! up: otherwise every request of a client that comes too fast for its connections would be late.
//! Prints one JSON object.
//!
//! Usage: `open-loop ADDRESS HOST PATH RATE SECONDS CONNECTIONS`

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::event::{Timespec, epoll};

/// How long a client waits for its answer before it is of no use to it any more.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to sleep at most: those who wait for a connection are looked after.
const TICK: Duration = Duration::from_millis(50);

fn main() -> anyhow::Result<()> {
    let usage = "usage: open-loop ADDRESS HOST PATH RATE SECONDS CONNECTIONS";
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context(usage);
    let address = next()?.parse()?;
    let (host, path) = (next()?, next()?);
    let (rate, seconds, count): (f64, f64, usize) =
        (next()?.parse()?, next()?.parse()?, next()?.parse()?);
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes();
    let mut load = Load::new(address, request, count)?;
    load.run(rate, Duration::from_secs_f64(seconds))?;
    println!("{}", load.report(seconds));
    Ok(())
}

struct Load {
    address: SocketAddr,
    request: Vec<u8>,
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    idle: Vec<usize>,
    /// When requests were due that wait for a connection.
    waiting: VecDeque<Instant>,
    seen: Seen,
}

struct Connection {
    stream: TcpStream,
    /// When the request was due that it has.
    due: Option<Instant>,
    answer: Vec<u8>,
}

/// What became of the requests.
#[derive(Default)]
struct Seen {
    offered: u64,
    /// How long those took that were answered 200.
    served: Vec<Duration>,
    /// How long those took that were refused: 429 or 503.
    refused: Vec<Duration>,
    /// Any other answer, or none.
    failed: u64,
    /// They found no free connection in time.
    given_up: u64,
}

impl Load {
    fn new(address: SocketAddr, request: Vec<u8>, count: usize) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut load = Self {
            address,
            request,
            epoll,
            connections: Vec::new(),
            idle: (0..count).rev().collect(),
            waiting: VecDeque::new(),
            seen: Seen::default(),
        };
        for index in 0..count {
            let connection = load.connect(index)?;
            load.connections.push(connection);
        }
        Ok(load)
    }

    fn connect(&self, index: usize) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
        Ok(Connection { stream, due: None, answer: Vec::new() })
    }

    fn run(&mut self, rate: f64, length: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        let total = (rate * length.as_secs_f64()) as u64;
        loop {
            let now = Instant::now();
            while self.seen.offered < total {
                let due = start + Duration::from_secs_f64(self.seen.offered as f64 / rate);
                if due > now {
                    break;
                }
                self.seen.offered += 1;
                self.waiting.push_back(due);
            }
            self.send(now)?;
            let next = start + Duration::from_secs_f64(self.seen.offered as f64 / rate);
            self.receive(if self.seen.offered < total { next } else { now + TICK })?;
            let is_done = self.waiting.is_empty() && self.idle.len() == self.connections.len();
            if self.seen.offered == total && (is_done || now > start + length + 2 * PATIENCE) {
                let open = self.connections.iter().filter(|one| one.due.is_some()).count();
                self.seen.failed += open as u64;
                return Ok(());
            }
        }
    }

    fn send(&mut self, now: Instant) -> anyhow::Result<()> {
        while self.waiting.front().is_some_and(|due| now - *due > PATIENCE) {
            self.seen.given_up += 1;
            self.waiting.pop_front();
        }
        while let Some(&due) = self.waiting.back() {
            let Some(index) = self.idle.pop() else { return Ok(()) };
            let connection = &mut self.connections[index];
            match connection.stream.write(&self.request) {
                Ok(length) if length == self.request.len() => {
                    connection.due = Some(due);
                    self.waiting.pop_back();
                }
                // The server has closed it while it was idle.
                _ => self.renew(index)?,
            }
        }
        Ok(())
    }

    /// Waits for answers, until then at the latest.
    fn receive(&mut self, until: Instant) -> anyhow::Result<()> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 256];
        let time = until.saturating_duration_since(Instant::now()).min(TICK);
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let (events, _) = epoll::wait(&self.epoll, &mut events, Some(&time))?;
        for event in events {
            let data = event.data;
            self.read(data.u64() as usize)?;
        }
        Ok(())
    }

    fn read(&mut self, index: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[index];
        let mut buffer = [0; 4096];
        match connection.stream.read(&mut buffer) {
            Ok(0) => self.lose(index),
            Ok(length) => {
                connection.answer.extend_from_slice(&buffer[..length]);
                let Some(answer) = Answer::parse(&connection.answer)? else { return Ok(()) };
                connection.answer.clear();
                if let Some(due) = connection.due.take() {
                    self.seen.count(answer.status, due.elapsed());
                }
                if answer.closes {
                    self.connections[index] = self.connect(index)?;
                }
                self.idle.push(index);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(_) => self.lose(index),
        }
    }

    /// The server has closed it.
    fn lose(&mut self, index: usize) -> anyhow::Result<()> {
        if self.connections[index].due.is_some() {
            self.seen.failed += 1;
            self.renew(index)
        } else {
            self.connections[index] = self.connect(index)?;
            Ok(())
        }
    }

    fn renew(&mut self, index: usize) -> anyhow::Result<()> {
        self.connections[index] = self.connect(index)?;
        self.idle.push(index);
        Ok(())
    }

    fn report(&mut self, seconds: f64) -> serde_json::Value {
        let Seen { offered, served, refused, failed, given_up } = &mut self.seen;
        let good = served.iter().filter(|time| **time <= PATIENCE).count();
        serde_json::json!({
            "offered": *offered,
            "good": good,
            "good_per_second": good as f64 / seconds,
            "late": served.len() - good,
            "refused": refused.len(),
            "failed": *failed,
            "given_up": *given_up,
            "served_p50_ms": percentile(served, 0.5),
            "served_p99_ms": percentile(served, 0.99),
            "refused_p99_ms": percentile(refused, 0.99),
        })
    }
}

impl Seen {
    fn count(&mut self, status: u16, time: Duration) {
        match status {
            200 => self.served.push(time),
            429 | 503 => self.refused.push(time),
            _ => self.failed += 1,
        }
    }
}

struct Answer {
    status: u16,
    closes: bool,
}

impl Answer {
    /// `None` while it is not complete.
    fn parse(bytes: &[u8]) -> anyhow::Result<Option<Self>> {
        let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes[..head])?.to_ascii_lowercase();
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
        let mut closes = false;
        let mut length = None;
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            match name {
                "content-length" => length = Some(value.parse::<usize>()?),
                "connection" => closes = value == "close",
                _ => {}
            }
        }
        let Some(length) = length else { bail!("an answer without a length: {text}") };
        let is_complete = bytes.len() >= head + 4 + length;
        Ok(is_complete.then_some(Self { status: status.parse()?, closes }))
    }
}

/// In milliseconds; nothing of nothing.
fn percentile(times: &mut [Duration], part: f64) -> Option<f64> {
    times.sort_unstable();
    let last = times.len().checked_sub(1)?;
    let index = (last as f64 * part).round() as usize;
    times.get(index).map(|time| time.as_secs_f64() * 1e3)
}
