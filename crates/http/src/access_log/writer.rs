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

use super::{AccessLogFile, Counts};

/// Dropped lines are spoken of this often at most.
const SAY: Duration = Duration::from_secs(10);

/// How often to look for dropped lines when there is nothing to write.
const LOOK: Duration = Duration::from_secs(1);

/// What the writer is told.
#[derive(Debug)]
pub(super) enum Message {
    Lines(Lines),
    Reopen,
}

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

pub(super) struct Writer {
    file: AccessLogFile,
    sink: Box<dyn Write + Send>,
    receiver: Receiver<Message>,
    counts: Arc<Counts>,
    /// Lines that could not be written since the last that could, if there are any.
    failed: Option<u64>,
    /// Dropped lines that were spoken of, and when.
    said: (u64, Option<Instant>),
}

impl Writer {
    pub(super) fn open(
        file: AccessLogFile,
        receiver: Receiver<Message>,
        counts: Arc<Counts>,
    ) -> io::Result<Self> {
        let sink = open(&file)?;
        Ok(Self::new(file, sink, receiver, counts))
    }

    pub(super) fn new(
        file: AccessLogFile,
        sink: Box<dyn Write + Send>,
        receiver: Receiver<Message>,
        counts: Arc<Counts>,
    ) -> Self {
        Self { file, sink, receiver, counts, failed: None, said: (0, None) }
    }

    /// Writes until nobody is left who has something to write.
    pub(super) fn run(mut self) {
        loop {
            match self.receiver.recv_timeout(LOOK) {
                Ok(Message::Lines(lines)) => self.write(&lines),
                Ok(Message::Reopen) => self.reopen(),
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
                self.counts.written.fetch_add(lines.count, Relaxed);
                if let Some(lost) = failed {
                    tracing::info!(lines = lost, "the access log is written again; lines are lost");
                    self.failed = None;
                }
            }
            (Err(error), failed) => {
                self.counts.dropped.fetch_add(lines.count, Relaxed);
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
        let lines = self.counts.dropped.load(Relaxed).saturating_sub(self.said.0);
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
