//! `warmup`: what a program is asked for before it serves anybody.

use std::str::FromStr as _;

use http::uri::PathAndQuery;
use sandtide_engine::Requests;
use serde_json::{Value as Json, json};

use crate::{
    kind::{Kind, Parsed, Several, Shown, array, integer, or_auto, parsed, table},
    problem::{Mistake, Mistakes},
    section::{Definitions, Key, section},
    value::Value,
};

section! {
    /// What a program is asked for before it serves anybody.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Warmup / WarmupLayer {
        /// so many requests, for these paths in turns (`/` if there are none), are answered before the
        /// program's snapshot is taken: each sandbox starts as one that has answered them, with what a
        /// JIT has compiled and caches hold by then. They count towards `limits.boot_time`. With
        /// `auto`, as many as make it faster: until 200 in a row do not, or half of that time is over
        requests: Requests = Requests::Exactly(0), or_auto(integer(0..=10_000));
        /// paths that the program is asked for. It is also asked for each once after the snapshot: if
        /// it faults or answers 500 or more, it is not used
        paths: Vec<String> = Vec::new(), paths();
    }
}

fn paths() -> Several<Parsed<String>> {
    array(parsed("path", target), ("path", "paths"))
}

/// A table, or an array that is its `paths`.
pub(crate) struct WarmupKind;

impl Kind for WarmupKind {
    type Value = Warmup;

    fn read(&self, value: &Value<'_>) -> Result<Warmup, Mistakes> {
        if value.is_table() {
            return table::<Warmup>().read(value);
        }
        Ok(Warmup { requests: Requests::default(), paths: paths().read(value)? })
    }

    fn describe(&self) -> String {
        format!("{}, or table", paths().describe())
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        let array = paths().schema(definitions);
        json!({ "anyOf": [array, table::<Warmup>().schema(definitions)] })
    }

    fn show(&self, value: &Warmup) -> Shown {
        Shown::Value(json!(value.paths))
    }

    fn below(&self) -> Vec<Key> {
        table::<Warmup>().below()
    }
}

/// A path with a query, as it stands in a request.
fn target(value: &Value<'_>) -> Result<String, Mistake> {
    let text = value.string()?;
    if !text.starts_with('/') || text.contains('#') || PathAndQuery::from_str(&text).is_err() {
        let mistake = value.mistake(format_args!("`{text}` is not a path to ask for"));
        return Err(mistake.hint("write `/`, or a path with a query such as `/list?page=1`"));
    }
    Ok(text.into_owned())
}
