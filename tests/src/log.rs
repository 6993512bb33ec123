//! The server's log, line by line, as it is written.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::PATIENCE;

/// Everything that a process has written to its standard error so far.
#[derive(Clone, Default)]
pub struct Log {
    shared: Arc<(Mutex<Lines>, Condvar)>,
}

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    closed: bool,
}

impl Log {
    /// Collects the lines of a stream until it ends.
    pub fn of(stream: impl Read + Send + 'static) -> Self {
        let log = Self::default();
        let writer = log.clone();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                line.clear();
                writer.lines().lines.push(text);
                writer.shared.1.notify_all();
            }
            writer.lines().closed = true;
            writer.shared.1.notify_all();
        });
        log
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lines there are: where to begin to look for what comes next.
    pub fn mark(&self) -> usize {
        self.lines().lines.len()
    }

    /// The lines behind a mark that are there already.
    pub fn since(&self, mark: usize) -> Vec<String> {
        self.lines().lines[mark..].to_vec()
    }

    /// Waits for a line that fits.
    ///
    /// # Panics
    /// If none comes before the stream ends or patience does.
    pub fn wait(&self, what: &str, fits: impl FnMut(&str) -> bool) -> String {
        self.wait_since(0, what, fits)
    }

    /// Waits for a line behind a mark that fits. Panics as [`Log::wait`].
    pub fn wait_since(
        &self,
        mark: usize,
        what: &str,
        mut fits: impl FnMut(&str) -> bool,
    ) -> String {
        let give_up = Instant::now() + PATIENCE;
        let mut next = mark;
        let mut lines = self.lines();
        loop {
            while let Some(line) = lines.lines.get(next) {
                if fits(line) {
                    return line.clone();
                }
                next += 1;
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if lines.closed || left.is_zero() {
                let why = if lines.closed { "the log has ended" } else { "patience has ended" };
                let log = lines.lines.join("\n");
                drop(lines);
                panic!("{why} without a line for: {what}\n--- log ---\n{log}");
            }
            lines =
                self.shared.1.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the process has closed its standard error.
    ///
    /// # Panics
    /// If patience ends before.
    pub fn wait_end(&self) {
        let (_, changed) = &*self.shared;
        let (lines, _) = changed
            .wait_timeout_while(self.lines(), PATIENCE, |lines| !lines.closed)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(lines.closed, "the process does not end");
    }

    /// Waits for the report of a fault, or of a refusal, under this correlation id.
    pub fn report(&self, id: &str) -> String {
        self.wait(&format!("a report of request {id}"), |line| field(line, "request") == Some(id))
    }
}

/// The value of a field in a line of the log, without its quotes.
pub fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = line;
    loop {
        let at = rest.find(key)?;
        let (before, after) = rest.split_at(at);
        let after = &after[key.len()..];
        if (before.is_empty() || before.ends_with(' '))
            && let Some(value) = after.strip_prefix('=')
        {
            return Some(match value.strip_prefix('"') {
                Some(quoted) => &quoted[..end_of_quoted(quoted)],
                None => value.split(' ').next().unwrap_or(value),
            });
        }
        rest = after;
    }
}

/// The number in a field, if it is one.
pub fn number(line: &str, key: &str) -> Option<u64> {
    field(line, key)?.parse().ok()
}

fn end_of_quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let line = r#"WARN x: bad read pc="0x1 (f+0x2)" request=0a1 my_pc=3 said="a \"b\" c" n=12"#;
        assert_eq!(field(line, "pc"), Some("0x1 (f+0x2)"));
        assert_eq!(field(line, "request"), Some("0a1"));
        assert_eq!(field(line, "said"), Some(r#"a \"b\" c"#));
        assert_eq!(number(line, "n"), Some(12));
        assert_eq!(field(line, "c"), None);
    }

    #[test]
    fn a_line_that_is_there_is_found_at_once() {
        let log = Log::of(&b"one\ntwo\n"[..]);
        assert_eq!(log.wait("two", |line| line == "two"), "two");
        assert_eq!(log.wait_since(1, "two", |_| true), "two");
    }

    #[test]
    #[should_panic(expected = "the log has ended without a line for: three")]
    fn a_line_that_never_comes_is_not_waited_for_after_the_end() {
        Log::of(&b"one\ntwo\n"[..]).wait("three", |line| line == "three");
    }
}
