//! The schema, and the tables of the documents: made from the declarations of the keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Value as Json, json};

use crate::{
    kind::Shown,
    root::Root,
    section::{Definitions, Key, Section as _, object},
    units::grouped,
};

/// The JSON Schema (draft 2020-12) of a configuration file. `engines` are the names that `engine`
/// may have.
pub fn schema(engines: &[&str]) -> String {
    let mut definitions = Definitions::new(engines);
    let keys = Root::keys(&mut definitions);
    let mut schema = object(&keys);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("sandtide.toml");
    schema["$defs"] = Json::Object(definitions.tables);
    format!("{schema:#}\n")
}

/// Why the tables of a document cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// A table is asked for that does not exist.
    #[error("there is no table `{0}`")]
    Unknown(String),
    /// The end of a table is missing.
    #[error("table `{0}` has no `{END}`")]
    Open(String),
}

const KEYS: &str = "<!-- keys: ";
const LIMITS: &str = "<!-- limits: ";
const END: &str = "<!-- end -->";

/// Fills in the tables of a Markdown document. What stands between `<!-- keys: NAME -->` and
/// `<!-- end -->` is replaced by the keys of the section with that name; a table below that the
/// document does not ask for by itself is shown in it, with dotted keys. `<!-- limits: KEY -->`
/// asks for all limits below a key at the top of the file.
pub fn fill(document: &str) -> Result<String, ReferenceError> {
    let keys = Root::keys(&mut Definitions::new(&[]));
    let mut sections = BTreeMap::new();
    collect(Root::NAME, &keys, &mut sections);
    let own: BTreeSet<_> =
        document.lines().filter_map(|line| line.strip_prefix(KEYS)?.strip_suffix(" -->")).collect();
    let mut result = String::with_capacity(document.len());
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        result.push_str(line);
        result.push('\n');
        let (name, limits) = match (line.strip_prefix(KEYS), line.strip_prefix(LIMITS)) {
            (Some(name), _) => (name, false),
            (None, Some(name)) => (name, true),
            (None, None) => continue,
        };
        let name = name.trim_end_matches(" -->");
        let unknown = || ReferenceError::Unknown(name.to_owned());
        if limits {
            let table = keys.iter().find(|key| key.name == name).ok_or_else(unknown)?;
            result.push_str(LIMITS_HEAD);
            limit_rows("", &table.below, &mut result);
        } else {
            result.push_str(KEYS_HEAD);
            key_rows("", sections.get(name).ok_or_else(unknown)?, &own, &mut result);
        }
        if !lines.by_ref().any(|line| line == END) {
            return Err(ReferenceError::Open(name.to_owned()));
        }
        result.push('\n');
        result.push_str(END);
        result.push('\n');
    }
    Ok(result)
}

/// The keys of each section, by its name.
fn collect(name: &str, keys: &[Key], sections: &mut BTreeMap<String, Vec<Key>>) {
    sections.entry(name.to_owned()).or_insert_with(|| keys.to_vec());
    for key in keys {
        // A table may be made of several sections, which documents show one by one.
        let mut below: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
        for key in &key.below {
            below.entry(key.section).or_default().push(key.clone());
        }
        below.into_iter().for_each(|(section, keys)| collect(section, &keys, sections));
    }
}

const KEYS_HEAD: &str = "
| key | type | default | effect |
|---|---|---|---|
";

fn key_rows(prefix: &str, keys: &[Key], own: &BTreeSet<&str>, table: &mut String) {
    for key in keys {
        let name = format!("{prefix}{}", key.name);
        let (kind, default) = (&key.kind, default(key));
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(table, "| `{name}` | {kind} | {default} | {} |", key.effect);
        if key.below.iter().any(|below| !own.contains(below.section)) {
            key_rows(&format!("{name}."), &key.below, own, table);
        }
    }
}

const LIMITS_HEAD: &str = "
| limit | type | default | what counts | above it, the client gets | `proxy-status` | the log has |
|---|---|---|---|---|---|---|
";

fn limit_rows(prefix: &str, keys: &[Key], table: &mut String) {
    for key in keys {
        let name = format!("{prefix}{}", key.name);
        if let Some(exceeded) = key.exceeded {
            let cell =
                |text: &str| if text.is_empty() { "–".to_owned() } else { text.to_owned() };
            let error = match exceeded.error {
                "" => "–".to_owned(),
                error => format!("`{error}`"),
            };
            let cells = [
                &format!("`{name}`"),
                &key.kind,
                &default(key),
                &key.effect,
                &cell(exceeded.answer),
                &error,
                &cell(exceeded.log),
            ];
            let _ = writeln!(table, "| {} |", cells.map(String::as_str).join(" | "));
        }
        limit_rows(&format!("{name}."), &key.below, table);
    }
}

fn default(key: &Key) -> String {
    match &key.default {
        Shown::Value(value) => format!("`{}`", toml(value)),
        Shown::Words(words) => (*words).to_owned(),
        Shown::Nothing if key.required => "required".to_owned(),
        Shown::Nothing => String::new(),
    }
}

/// A value as TOML has it.
fn toml(value: &Json) -> String {
    match value {
        Json::Number(number) => number.as_u64().map_or_else(|| number.to_string(), grouped),
        Json::Array(values) => {
            format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        // A string without control characters is written as in JSON.
        other => other.to_string(),
    }
}
