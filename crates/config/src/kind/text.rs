//! Booleans, words and strings.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::{Kind, Shown, number::or_variable};
use crate::{
    problem::{Mistake, Mistakes},
    section::Definitions,
    suggest,
    value::Value,
};

/// `true` or `false`.
pub(crate) struct Boolean;

pub(crate) fn boolean() -> Boolean {
    Boolean
}

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, value: &Value<'_>) -> Result<bool, Mistakes> {
        Ok(value.boolean()?)
    }

    fn describe(&self) -> String {
        "boolean".to_owned()
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        or_variable(json!({ "type": "boolean" }))
    }

    fn show(&self, value: &bool) -> Shown {
        Shown::Value(json!(value))
    }
}

/// A type whose values are words.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// Every value, and the word for it.
    const WORDS: &'static [(&'static str, Self)];
}

/// One of a few words.
pub(crate) struct Words<T>(std::marker::PhantomData<T>);

pub(crate) fn word<T: Word>() -> Words<T> {
    Words(std::marker::PhantomData)
}

impl<T: Word> Words<T> {
    fn names() -> Vec<&'static str> {
        T::WORDS.iter().map(|(name, _)| *name).collect()
    }
}

impl<T: Word> Kind for Words<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Result<T, Mistakes> {
        let text = value.string()?;
        if let Some((_, meaning)) = T::WORDS.iter().find(|(name, _)| *name == text) {
            return Ok(*meaning);
        }
        let mistake = value.mistake(format_args!("`{text}` means nothing here"));
        Err(mistake.hint(suggest(&text, &Self::names())).into())
    }

    fn describe(&self) -> String {
        let names: Vec<_> = Self::names().iter().map(|name| format!("`\"{name}\"`")).collect();
        match &names[..] {
            [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
            _ => names.concat(),
        }
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        or_variable(json!({ "enum": Self::names() }))
    }

    fn show(&self, value: &T) -> Shown {
        let word = T::WORDS.iter().find(|(_, meaning)| meaning == value);
        word.map_or(Shown::Nothing, |(name, _)| Shown::Value(json!(name)))
    }
}

/// A string, of which something is made.
pub(crate) struct Parsed<T> {
    describe: &'static str,
    parse: fn(&Value<'_>) -> Result<T, Mistake>,
    show: fn(&T) -> String,
}

/// A string that `parse` understands; `describe` says to people what it is.
pub(crate) fn parsed<T: ToString>(
    describe: &'static str,
    parse: fn(&Value<'_>) -> Result<T, Mistake>,
) -> Parsed<T> {
    Parsed { describe, parse, show: T::to_string }
}

/// Any string without a NUL character, so that it can be handed to a guest or the operating system.
pub(crate) fn string() -> Parsed<String> {
    parsed("string", |value| value.string_without_nul().map(Into::into))
}

/// A path, relative to the directory of the file that it stands in.
pub(crate) fn path() -> Parsed<PathBuf> {
    Parsed {
        describe: "path",
        parse: |value| value.path(),
        show: |path| path.display().to_string(),
    }
}

impl<T> Kind for Parsed<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Result<T, Mistakes> {
        Ok((self.parse)(value)?)
    }

    fn describe(&self) -> String {
        self.describe.to_owned()
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self, value: &T) -> Shown {
        Shown::Value(json!((self.show)(value)))
    }
}
