//! A line for each exchange.
//!
//! ```text
//!   response gone or cut off ─ Line dropped  ─▶ Log (a buffer of its reactor)
//!                                                │ full, or a second old
//!                                                ▼
//!                                   bounded channel ─▶ Writer (a thread) ─▶ file
//! ```
//!
//! A reactor never waits for the disk: what does not fit into the channel is dropped, counted and
//! said.

mod calendar;
mod escape;
mod format;
mod log;
mod writer;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

pub(crate) use log::{Line, Log};

use writer::{Lines, Writer};

/// How many buffers may wait for the writer.
const WAITING: usize = 16;

/// How long to wait for the last lines to be written. The log may go to a pipe that nobody reads.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the access log goes, and how a line looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogOptions {
    /// Where it goes.
    pub file: AccessLogFile,
    /// How a line looks.
    pub format: AccessLogFormat,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogFile {
    /// To standard output.
    Stdout,
    /// To the end of a file, which is made if it is not there.
    Path(PathBuf),
}

/// How a line of the access log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// The combined log format of NCSA and Apache.
    Common,
    /// A JSON object.
    Json,
}

/// An access log that is open. Clones are the same log.
#[derive(Debug, Clone)]
pub struct AccessLog {
    format: AccessLogFormat,
    sender: Arc<Mutex<Option<SyncSender<Lines>>>>,
    ended: Arc<Mutex<Receiver<()>>>,
    shared: Arc<Shared>,
}

/// What the writer and the others know of each other.
#[derive(Debug, Default)]
struct Shared {
    /// Whether the file was moved away.
    is_moved: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
    /// Buffers that were written, for those who need one. What is freed by another thread than the
    /// one that made it costs both.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Shared {
    /// An empty buffer, unless somebody else looks for one right now.
    fn spare(&self) -> Option<Vec<u8>> {
        self.spare.try_lock().ok()?.pop()
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < WAITING {
            spare.push(buffer);
        }
    }
}

impl AccessLog {
    /// Opens the log and starts its writer.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(options: &AccessLogOptions) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let (ending, ended) = sync_channel(1);
        let shared = Arc::<Shared>::default();
        let writer = Writer::open(options.file.clone(), receiver, shared.clone())?;
        thread::Builder::new().name("access-log".into()).spawn(move || {
            writer.run();
            // Nobody may wait for it.
            let _ = ending.send(());
        })?;
        Ok(Self {
            format: options.format,
            sender: Arc::new(Mutex::new(Some(sender))),
            ended: Arc::new(Mutex::new(ended)),
            shared,
        })
    }

    /// Goes on in the file that has the name now, with the next line: the old one was moved away.
    pub fn reopen(&self) {
        self.shared.is_moved.store(true, Relaxed);
    }

    /// Lines written so far.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// Lines lost so far: there was no room for them, or they could not be written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// A reactor's part; `None` after the end.
    pub(crate) fn log(&self) -> Option<Log> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Log::new(self.format, sender, self.shared.clone()))
    }

    /// Waits until everything is written, when the reactors are gone.
    pub(crate) fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(PATIENCE).is_err() {
            tracing::error!("the last lines of the access log could not be written in time");
        }
    }
}

#[cfg(test)]
mod tests;
