//! What is wrong with a configuration, and where.

use std::{cell::RefCell, fmt, path::PathBuf};

/// One mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named to us, or as the file that includes it says.
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

/// Everything that is wrong with a configuration, in the order of its files. Never empty.
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

/// A place in one of the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Its number, from 0.
    pub file: u32,
    /// In bytes.
    pub offset: usize,
}

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed<T> {
    pub value: T,
    pub place: Place,
}

/// A problem that does not know its line yet.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub place: Place,
    pub message: String,
    pub hint: Option<String>,
}

impl Mistake {
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What is wrong with the elements of one value.
#[derive(Debug)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl From<Mistake> for Mistakes {
    fn from(mistake: Mistake) -> Self {
        Self(vec![mistake])
    }
}

/// All that was read, or all that is wrong.
pub(crate) fn all<T>(
    results: impl IntoIterator<Item = Result<T, Mistakes>>,
) -> Result<Vec<T>, Mistakes> {
    let mut read = Vec::new();
    let mut mistakes = Vec::new();
    for result in results {
        match result {
            Ok(value) => read.push(value),
            Err(mut more) => mistakes.append(&mut more.0),
        }
    }
    if mistakes.is_empty() { Ok(read) } else { Err(Mistakes(mistakes)) }
}

/// Where the readers put the mistakes that they find, so that one run shows them all.
#[derive(Debug, Default)]
pub(crate) struct Findings(RefCell<Vec<Mistake>>);

impl Findings {
    pub fn add(&self, mistakes: impl Into<Mistakes>) {
        self.0.borrow_mut().append(&mut mistakes.into().0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The mistakes with their places in the files, ordered. `files` are their paths and texts.
    pub fn locate(self, files: &[(PathBuf, String)]) -> Problems {
        let mut mistakes = self.0.into_inner();
        mistakes.sort_by_key(|mistake| mistake.place);
        let mut position = Position::default();
        let problems = mistakes.into_iter().map(|Mistake { place, message, hint }| {
            let (file, line, column) = position.go_to(place, files);
            Problem { file, line, column, message, hint }
        });
        Problems(problems.collect())
    }
}

/// Shows a place as `file:line`.
pub(crate) fn show(place: Place, files: &[(PathBuf, String)]) -> String {
    let (file, line, _) = Position::default().go_to(place, files);
    format!("{file}:{line}")
}

/// A place that was found in a text, from which later ones are counted: a file with many mistakes
/// is gone through once.
#[derive(Default)]
struct Position {
    file: u32,
    /// The offset of the line's first byte.
    line_start: usize,
    /// The lines before it.
    lines: usize,
}

impl Position {
    /// File, line and column of a place that is not before the last one, both from 1.
    fn go_to(&mut self, place: Place, files: &[(PathBuf, String)]) -> (String, usize, usize) {
        if self.file != place.file {
            *self = Self { file: place.file, ..Self::default() };
        }
        let Some((path, text)) = files.get(place.file as usize) else { return Default::default() };
        let ahead = text.get(self.line_start..place.offset).unwrap_or_default();
        if let Some(newline) = ahead.rfind('\n') {
            self.lines += ahead.matches('\n').count();
            self.line_start += newline + 1;
        }
        let before = text.get(self.line_start..place.offset).unwrap_or_default();
        (path.display().to_string(), self.lines + 1, before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_one_in_characters() {
        let findings = Findings::default();
        for (file, offset) in [(1, 0), (0, 9), (0, 4), (0, 5), (1, 1)] {
            findings.add(Mistake::new(Place { file, offset }, "x"));
        }
        let problems =
            findings.locate(&[("a".into(), "ä\nb\ncdefg".into()), ("b".into(), "\n".into())]);
        let places: Vec<_> = problems.0.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["a:2:2: x", "a:3:1: x", "a:3:5: x", "b:1:1: x", "b:2:1: x"]);
    }
}
