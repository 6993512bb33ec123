//! Guest output, made into log lines.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use sandtide_engine::{Console, Stream};

use crate::log::{GUEST_TARGET, TenantLog};

/// The longest line, in bytes as the guest wrote it. Longer ones become several.
pub const MAX_LINE: usize = 1024;

/// The standard output and error of one sandbox, written into its tenant's log line by line.
///
/// Bytes that are not UTF-8 become replacement characters, control characters become escapes, so
/// that a guest cannot forge lines or drive a terminal.
pub struct TenantConsole {
    log: Arc<TenantLog>,
    partial: Mutex<[Vec<u8>; 2]>,
    has_partial: AtomicBool,
}

impl TenantConsole {
    pub(crate) fn new(log: Arc<TenantLog>) -> Self {
        Self { log, partial: Mutex::default(), has_partial: AtomicBool::new(false) }
    }

    fn line(&self, stream: Stream, bytes: &[u8]) {
        if !self.log.admits_line(bytes.len()) {
            return;
        }
        let line = printable(bytes);
        let tenant = self.log.tenant();
        match stream {
            Stream::Stdout => {
                tracing::info!(target: GUEST_TARGET, tenant, stream = "stdout", "{line}");
            }
            Stream::Stderr => {
                tracing::info!(target: GUEST_TARGET, tenant, stream = "stderr", "{line}");
            }
        }
    }

    fn partial(&self) -> MutexGuard<'_, [Vec<u8>; 2]> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Console for TenantConsole {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut partials = self.partial();
        let partial = &mut partials[stream as usize];
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let (mut text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            while partial.len() + text.len() > MAX_LINE {
                let (head, tail) = text.split_at(MAX_LINE - partial.len());
                partial.extend_from_slice(head);
                self.line(stream, partial);
                partial.clear();
                text = tail;
            }
            match (ends, partial.is_empty()) {
                (true, true) => self.line(stream, text),
                (true, false) => {
                    partial.extend_from_slice(text);
                    self.line(stream, partial);
                    partial.clear();
                }
                (false, _) => partial.extend_from_slice(text),
            }
        }
        let has_partial = partials.iter().any(|partial| !partial.is_empty());
        self.has_partial.store(has_partial, Ordering::Relaxed);
    }

    fn flush(&self) {
        if !self.has_partial.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut partials = self.partial();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let partial = &mut partials[stream as usize];
            if !partial.is_empty() {
                self.line(stream, partial);
                partial.clear();
            }
        }
    }
}

/// The text with everything escaped that could end a line, move a cursor or turn the writing
/// direction.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.strip_suffix(b"\r").unwrap_or(bytes));
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        let unsafe_to_show = c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if unsafe_to_show {
            // Writing to a String cannot fail.
            let _ = write!(line, "{}", c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests;
