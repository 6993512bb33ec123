//! What is wrong with a configuration, and where.

use std::{cell::RefCell, fmt, ops::Range};

/// One mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named to us.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, .. } = self;
        write!(f, "{file}:{line}:{column}: {message}")
    }
}

/// Everything that is wrong with a configuration file, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{problem}")?;
            if let Some(hint) = &problem.hint {
                write!(f, "\nhint: {hint}")?;
            }
        }
        Ok(())
    }
}

/// A problem that does not know its line yet.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub span: Range<usize>,
    pub message: String,
    pub hint: Option<String>,
}

impl Mistake {
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What is wrong with the elements of one value.
pub(crate) struct Mistakes(Vec<Mistake>);

impl From<Mistake> for Mistakes {
    fn from(mistake: Mistake) -> Self {
        Self(vec![mistake])
    }
}

/// All that was read, or all that is wrong.
pub(crate) fn all<T>(
    results: impl IntoIterator<Item = Result<T, Mistake>>,
) -> Result<Vec<T>, Mistakes> {
    let mut read = Vec::new();
    let mut mistakes = Vec::new();
    for result in results {
        match result {
            Ok(value) => read.push(value),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() { Ok(read) } else { Err(Mistakes(mistakes)) }
}

/// Where the readers put the mistakes that they find, so that one run shows them all.
#[derive(Default)]
pub(crate) struct Findings(RefCell<Vec<Mistake>>);

impl Findings {
    pub fn add(&self, mistakes: impl Into<Mistakes>) {
        self.0.borrow_mut().append(&mut mistakes.into().0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The mistakes with their places in `text`, ordered.
    pub fn locate(self, file: &str, text: &str) -> Problems {
        let mut mistakes = self.0.into_inner();
        mistakes.sort_by_key(|mistake| mistake.span.start);
        let problems = mistakes.into_iter().map(|Mistake { span, message, hint }| {
            let (line, column) = position(text, span.start);
            Problem { file: file.to_owned(), line, column, message, hint }
        });
        Problems(problems.collect())
    }
}

/// Line and column of a byte offset, both from 1.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
