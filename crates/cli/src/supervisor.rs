//! The process that worker processes are started by, and started again.
//!
//! ```text
//!   supervisor ─ binds, for each place, sockets of its own; keeps them open
//!      ├─ place 0: worker ─ ready ─ …… full, grown, or a file has changed ─▶ replacement ─ ready ─▶ SIGTERM
//!      └─ place 1: worker ─ ready ─ crash ─▶ another one, with the same sockets
//! ```
//!
//! A connection that nobody has accepted yet waits in a socket that outlives its worker.

use std::{
    collections::HashMap,
    fs, io,
    io::{BufRead as _, BufReader},
    os::unix::{net::UnixStream, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};
use sandtide_http::Server;

use crate::worker::{self, FULL, READY};

/// How often workers and files are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A worker that has ended before it was so old is not replaced at once.
const YOUNG: Duration = Duration::from_secs(2);

/// The longest pause before a worker is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// When workers are replaced.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Worker processes.
    pub workers: usize,
    /// When one holds so many bytes of memory.
    pub max_rss: Option<u64>,
    /// When a file below the current directory has changed.
    pub reload: bool,
}

/// What the supervisor learns.
pub enum Event {
    /// A worker serves.
    Ready(u64),
    /// It has answered as many requests as it was to.
    Full(u64),
    /// It has ended.
    Ended(u64, io::Result<ExitStatus>),
    /// All shall be replaced.
    Renew,
    /// All shall end.
    Stop,
}

struct Worker {
    place: usize,
    pid: Pid,
    since: Instant,
    is_ready: bool,
    /// It has been told to end.
    is_leaving: bool,
    /// Which one it takes over from.
    replaces: Option<u64>,
    /// Open as long as the worker is to live.
    _control: UnixStream,
}

/// The workers and their places.
pub struct Supervisor<'a> {
    server: &'a Server,
    rules: Rules,
    command: Box<dyn Fn() -> Command + 'a>,
    events: (Sender<Event>, Receiver<Event>),
    workers: HashMap<u64, Worker>,
    next: u64,
    /// Places that are empty, until then, with the pause before the next time.
    empty: HashMap<usize, (Instant, Duration)>,
    files: Option<SystemTime>,
    has_served: bool,
    is_stopping: bool,
    has_failed: bool,
}

impl<'a> Supervisor<'a> {
    /// Keeps as many workers as the rules say, each with the sockets of one thread of `server`.
    pub fn new(server: &'a Server, rules: Rules, command: impl Fn() -> Command + 'a) -> Self {
        Self {
            server,
            files: rules.reload.then(|| newest(Path::new("."))).flatten(),
            rules,
            command: Box::new(command),
            events: channel(),
            workers: HashMap::new(),
            next: 0,
            empty: HashMap::new(),
            has_served: false,
            is_stopping: false,
            has_failed: false,
        }
    }

    /// Where it can be told to stop, and to replace all workers.
    pub fn events(&self) -> Sender<Event> {
        self.events.0.clone()
    }

    /// Runs until it is told to stop and all workers have ended, or until none can be started. Calls
    /// `ready` when all of them serve for the first time.
    pub fn run(mut self, ready: impl Fn()) -> io::Result<ExitCode> {
        for place in 0..self.rules.workers {
            self.start(place, None)?;
        }
        while !(self.workers.is_empty() && (self.is_stopping || self.has_failed)) {
            match self.events.1.recv_timeout(LOOK) {
                Ok(Event::Ready(id)) => {
                    self.is_ready(id);
                    if !self.has_served && self.workers.values().all(|worker| worker.is_ready) {
                        self.has_served = true;
                        ready();
                    }
                }
                Ok(Event::Full(id)) => self.replace(id, "it has answered its requests"),
                Ok(Event::Ended(id, status)) => self.ended(id, status),
                Ok(Event::Renew) => self.replace_all("asked to"),
                Ok(Event::Stop) => {
                    self.is_stopping = true;
                    self.stop_all();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look();
        }
        Ok(if self.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn start(&mut self, place: usize, replaces: Option<u64>) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = (self.command)();
        let child = command.stdin(std::os::fd::OwnedFd::from(theirs)).spawn()?;
        // The worker may have ended already; then it is told by its end.
        let _ = worker::send_sockets(&ours, &self.server.descriptors(place));
        let id = self.next;
        self.next += 1;
        let pid = Pid::from_child(&child);
        let (control, events) = (ours.try_clone()?, self.events());
        thread::Builder::new()
            .name(format!("worker-{id}"))
            .spawn(move || attend(id, ours, child, &events))?;
        let (is_ready, is_leaving) = (false, false);
        let since = Instant::now();
        let worker =
            Worker { place, pid, since, is_ready, is_leaving, replaces, _control: control };
        self.workers.insert(id, worker);
        Ok(())
    }

    fn is_ready(&mut self, id: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.is_ready = true;
        let (pid, place) = (worker.pid, worker.place);
        tracing::debug!(pid = pid.as_raw_nonzero(), place, "a worker serves");
        if let Some(old) = worker.replaces.take() {
            self.tell(old);
        }
    }

    /// Tells a worker to end.
    fn tell(&mut self, id: u64) {
        if let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.is_leaving) {
            worker.is_leaving = true;
            // It may have ended already.
            let _ = kill_process(worker.pid, Signal::TERM);
        }
    }

    fn stop_all(&mut self) {
        let all: Vec<_> = self.workers.keys().copied().collect();
        all.into_iter().for_each(|id| self.tell(id));
    }

    fn ended(&mut self, id: u64, status: io::Result<ExitStatus>) {
        let Some(worker) = self.workers.remove(&id) else { return };
        if worker.is_leaving {
            return;
        }
        let how = match &status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("with code {code}"),
                (None, Some(signal)) => format!("by signal {signal}"),
                (None, None) => "for no reason".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let (pid, place) = (worker.pid.as_raw_nonzero(), worker.place);
        if !self.has_served {
            // It has said why. The others would say the same.
            self.has_failed = true;
            self.stop_all();
            return;
        }
        if !worker.is_ready && worker.replaces.is_some() {
            tracing::error!(pid, place, "a replacement ended {how}; the worker before it stays");
            return;
        }
        tracing::error!(pid, place, "a worker ended {how}; another one takes its place");
        let before = self.empty.get(&place).map(|(_, pause)| *pause);
        let pause = match worker.since.elapsed() < YOUNG {
            true => before.map_or(Duration::from_millis(100), |pause| pause * 2).min(LONGEST_PAUSE),
            false => Duration::ZERO,
        };
        self.empty.insert(place, (Instant::now() + pause, pause));
    }

    /// Starts another one in the place of a worker, which ends when the other one serves.
    fn replace(&mut self, id: u64, why: &str) {
        let Some(worker) = self.workers.get(&id) else { return };
        let is_replaced = self.workers.values().any(|other| other.replaces == Some(id));
        if !worker.is_ready || worker.is_leaving || is_replaced || self.is_stopping {
            return;
        }
        let (pid, place) = (worker.pid.as_raw_nonzero(), worker.place);
        tracing::info!(pid, place, "replaces a worker: {why}");
        if let Err(error) = self.start(place, Some(id)) {
            tracing::error!(%error, place, "cannot start a replacement");
        }
    }

    fn replace_all(&mut self, why: &str) {
        let all: Vec<_> = self.workers.keys().copied().collect();
        all.into_iter().for_each(|id| self.replace(id, why));
    }

    /// What is due now and then.
    fn look(&mut self) {
        if self.is_stopping || self.has_failed {
            return;
        }
        let now = Instant::now();
        let due = self.empty.iter().filter(|(_, (at, _))| *at <= now).map(|(place, _)| *place);
        for place in due.collect::<Vec<_>>() {
            let is_taken = self.workers.values().any(|worker| worker.place == place);
            if !is_taken && let Err(error) = self.start(place, None) {
                tracing::error!(%error, place, "cannot start a worker");
            }
        }
        let grown = |worker: &Worker| self.rules.max_rss.is_some_and(|max| rss(worker.pid) > max);
        let grown = self.workers.iter().filter(|(_, worker)| grown(worker)).map(|(id, _)| *id);
        grown.collect::<Vec<_>>().into_iter().for_each(|id| self.replace(id, "it has grown"));
        if self.rules.reload {
            let files = newest(Path::new("."));
            if files != self.files {
                self.files = files;
                self.replace_all("a file has changed");
            }
        }
    }
}

/// Hears a worker until it ends.
fn attend(id: u64, control: UnixStream, mut child: Child, events: &Sender<Event>) {
    for line in BufReader::new(control).lines() {
        let event = match line.as_deref() {
            Ok(READY) => Event::Ready(id),
            Ok(FULL) => Event::Full(id),
            Ok(_) => continue,
            Err(_) => break,
        };
        // Nobody listens any more at the very end.
        let _ = events.send(event);
    }
    let _ = events.send(Event::Ended(id, child.wait()));
}

/// Bytes of memory that a process holds; 0 if it is gone.
fn rss(pid: Pid) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero()));
    let pages = statm.ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// When the newest of the sources below a directory was changed.
fn newest(directory: &Path) -> Option<SystemTime> {
    let mut newest = None;
    let mut waiting = vec![PathBuf::from(directory)];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_foreign = name.starts_with('.')
                || matches!(&*name, "__pycache__" | "node_modules" | "venv" | "target");
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !is_foreign {
                waiting.push(path);
            } else if name.ends_with(".py") {
                let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
                newest = newest.max(changed);
            }
        }
    }
    newest
}
