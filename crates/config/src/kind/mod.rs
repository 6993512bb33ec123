//! What a key may be: how it is read, and how the schema and the documents describe it.

mod compound;
mod number;
mod text;

use serde_json::Value as Json;

pub(crate) use compound::{
    Named, Several, array, entries, layer, named, one_or_more, optional, placed, required, table,
};
pub(crate) use number::{duration, integer, or_auto, or_never, size};
pub(crate) use text::{Parsed, Word, boolean, parsed, path, string, word};

use crate::{
    problem::Mistakes,
    section::{Definitions, Key},
    value::Value,
};

/// What a key may be.
pub(crate) trait Kind {
    /// What is read.
    type Value;

    /// Reads a value, or says what is wrong with it.
    fn read(&self, value: &Value<'_>) -> Result<Self::Value, Mistakes>;

    /// What may be written, for people: `duration, 1 ms to 1 h`.
    fn describe(&self) -> String;

    /// The JSON Schema of what may be written.
    fn schema(&self, definitions: &mut Definitions) -> Json;

    /// How a default is written.
    fn show(&self, value: &Self::Value) -> Shown;

    /// Lays a value over that of a group or of the defaults: most are replaced, some are merged.
    fn inherit(&self, _own: &mut Self::Value, _base: &Self::Value) {}

    /// Whether a table without it is wrong.
    fn required(&self) -> bool {
        false
    }

    /// The keys of a table that may be written.
    fn below(&self) -> Vec<Key> {
        Vec::new()
    }
}

/// How a default is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    /// There is none.
    Nothing,
    /// As a value.
    Value(Json),
    /// It cannot be written; these words describe it.
    Words(&'static str),
}
