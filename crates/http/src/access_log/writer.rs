//! The thread that writes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use super::{AccessLogFile, Shared};

/// Dropped lines are spoken of this often at most.
const SAY: Duration = Duration::from_secs(10);

/// How often to look for dropped lines when there is nothing to write.
const LOOK: Duration = Duration::from_secs(1);

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

pub(super) struct Writer {
    file: AccessLogFile,
    sink: Box<dyn Write + Send>,
    receiver: Receiver<Lines>,
    shared: Arc<Shared>,
    /// Lines that could not be written since the last that could, if there are any.
    failed: Option<u64>,
    /// Dropped lines that were spoken of, and when.
    said: (u64, Option<Instant>),
}

impl Writer {
    pub(super) fn open(
        file: AccessLogFile,
        receiver: Receiver<Lines>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let sink = open(&file)?;
        Ok(Self::new(file, sink, receiver, shared))
    }

    pub(super) fn new(
        file: AccessLogFile,
        sink: Box<dyn Write + Send>,
        receiver: Receiver<Lines>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { file, sink, receiver, shared, failed: None, said: (0, None) }
    }

    /// Writes until nobody is left who has something to write.
    pub(super) fn run(mut self) {
        loop {
            let received = self.receiver.recv_timeout(LOOK);
            if self.shared.is_moved.swap(false, Relaxed) {
                self.reopen();
            }
            match received {
                Ok(lines) => {
                    self.write(&lines);
                    self.shared.give_back(lines.bytes);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let is_due = self.said.1.is_none_or(|at| at.elapsed() >= SAY);
            if is_due {
                self.say_dropped();
            }
        }
        self.say_dropped();
    }

    fn write(&mut self, lines: &Lines) {
        // What was written before a failure may end in the middle of a line.
        let result = match self.failed {
            Some(_) => self.sink.write_all(b"\n").and_then(|()| self.sink.write_all(&lines.bytes)),
            None => self.sink.write_all(&lines.bytes),
        };
        match (result.and_then(|()| self.sink.flush()), self.failed) {
            (Ok(()), failed) => {
                self.shared.written.fetch_add(lines.count, Relaxed);
                if let Some(lost) = failed {
                    tracing::info!(lines = lost, "the access log is written again; lines are lost");
                    self.failed = None;
                }
            }
            (Err(error), failed) => {
                self.shared.dropped.fetch_add(lines.count, Relaxed);
                // These are spoken of when it works again.
                self.said.0 += lines.count;
                if failed.is_none() {
                    tracing::error!(%error, "cannot write the access log");
                }
                self.failed = Some(failed.unwrap_or(0) + lines.count);
            }
        }
    }

    fn reopen(&mut self) {
        match open(&self.file) {
            Ok(sink) => self.sink = sink,
            Err(error) => {
                tracing::error!(%error, "cannot reopen the access log; going on with the old file");
            }
        }
    }

    fn say_dropped(&mut self) {
        let lines = self.shared.dropped.load(Relaxed).saturating_sub(self.said.0);
        if lines > 0 {
            tracing::warn!(lines, "the access log is written too slowly; lines were dropped");
            self.said = (self.said.0 + lines, Some(Instant::now()));
        }
    }
}

fn open(file: &AccessLogFile) -> io::Result<Box<dyn Write + Send>> {
    Ok(match file {
        AccessLogFile::Stdout => Box::new(io::stdout()),
        AccessLogFile::Path(path) => {
            let file: File = OpenOptions::new().append(true).create(true).open(path)?;
            Box::new(file)
        }
    })
}
