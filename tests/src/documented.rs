//! The tables of docs/limits.md, which say what happens above each limit, held against what does.

use std::{fs, sync::OnceLock};

use crate::{Response, binary::top, log::field};

/// A row of the tables.
#[derive(Debug, Clone)]
pub struct Row {
    /// The key, without the table that it stands in.
    pub key: String,
    /// What the client gets.
    pub answer: String,
    /// The error type in `proxy-status`, if there is one.
    pub error: Option<String>,
    /// What the log has.
    pub log: String,
}

/// All rows, in their order.
///
/// # Panics
/// If the tables are not as this knows them.
pub fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let text = fs::read_to_string(top().join("docs/limits.md")).expect("docs/limits.md");
        let rows: Vec<Row> = text.lines().filter_map(row).collect();
        assert!(rows.len() > 20, "docs/limits.md has {} limits", rows.len());
        rows
    })
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    let key = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
    let [_, _, _, _, answer, error, log] = cells[..] else { panic!("7 columns: {line}") };
    Some(Row {
        key: key.rsplit('.').next().unwrap_or(key).to_owned(),
        answer: answer.to_owned(),
        error: error.strip_prefix('`').and_then(|text| text.strip_suffix('`')).map(str::to_owned),
        log: log.to_owned(),
    })
}

/// What the table says of this limit. Every limit has a test that calls this with its key, which
/// a test of its own makes sure of.
///
/// # Panics
/// If it says nothing.
pub fn documented(key: &str) -> &'static Row {
    let mut found = rows().iter().filter(|row| row.key == key);
    found.next().unwrap_or_else(|| panic!("docs/limits.md has no limit `{key}`"))
}

impl Row {
    /// The status that it begins with, or that it names behind a semicolon.
    pub fn status(&self) -> Option<u16> {
        let words = self.answer.split([' ', ',', ';']);
        words.filter_map(|word| word.parse().ok()).find(|status| (400..600).contains(status))
    }

    /// The answer has the status, the header and the error type that the table gives.
    ///
    /// # Panics
    /// If it does not.
    pub fn is_answered_by(&self, response: &Response) {
        let key = &self.key;
        assert_eq!(self.status(), Some(response.status()), "{key}: {response:?}");
        if self.answer.contains("`retry-after`") {
            let seconds = response.header("retry-after").and_then(|text| text.parse::<u32>().ok());
            assert!(seconds.is_some_and(|seconds| seconds >= 1), "{key}: {response:?}");
        }
        let why = response.header("proxy-status");
        let error = why.and_then(|why| why.strip_prefix("sandtide; error="));
        let error = error.map(|error| error.split(';').next().unwrap_or(error).to_owned());
        if self.error.is_some() {
            assert_eq!(self.error, error, "{key}: {response:?}");
        }
        assert_eq!(response.id().len(), 16, "{key}: {response:?}");
    }

    /// The line of the log has what the table says: the kind of fault, or the word.
    ///
    /// # Panics
    /// If it does not.
    pub fn is_logged_by(&self, line: &str) {
        let word = self.log.split('`').nth(1).unwrap_or_else(|| panic!("no word in {self:?}"));
        match word.strip_prefix("fault=") {
            Some(kind) => assert_eq!(field(line, "fault"), Some(kind), "{line}"),
            None => assert!(line.contains(word), "no `{word}` in {line}"),
        }
    }

    /// The table says that the log has nothing.
    pub fn is_not_logged(&self) -> bool {
        self.log == "–"
    }
}
