//! What is to be built.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::BuildError;

/// The languages that are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Cpp,
    Python,
}

impl Language {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "c" => Some(Self::C),
            "cc" | "cpp" | "cxx" => Some(Self::Cpp),
            "py" => Some(Self::Python),
            _ => None,
        }
    }
}

/// A source file.
#[derive(Debug)]
pub(crate) struct Source {
    pub path: PathBuf,
    pub language: Language,
    pub text: Vec<u8>,
}

impl Source {
    pub fn read(path: &Path) -> Result<Self, BuildError> {
        let language =
            Language::of(path).ok_or_else(|| BuildError::UnknownLanguage(path.to_owned()))?;
        let text = fs::read(path).map_err(BuildError::file("read", path))?;
        Ok(Self { path: path.to_owned(), language, text })
    }

    /// The directory of the source, where its own headers are.
    pub fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_tells_the_language() {
        assert_eq!(Language::of(Path::new("a/b.c")), Some(Language::C));
        assert_eq!(Language::of(Path::new("b.cc")), Some(Language::Cpp));
        assert_eq!(Language::of(Path::new("b.x.py")), Some(Language::Python));
        assert_eq!(Language::of(Path::new("b.rs")), None);
        assert_eq!(Language::of(Path::new("py")), None);
    }

    #[test]
    fn other_sources_are_refused_before_they_are_read() {
        let error = Source::read(Path::new("/nowhere/a.go")).unwrap_err();
        assert!(matches!(error, BuildError::UnknownLanguage(_)));
        assert!(error.hint().is_some());
        let error = Source::read(Path::new("/nowhere/a.c")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read `/nowhere/a.c`");
    }
}
