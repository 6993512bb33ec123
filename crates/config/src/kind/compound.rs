//! Kinds made from other kinds: optional, required, several, tables.

use std::{collections::HashSet, marker::PhantomData};

use serde_json::{Map, Value as Json, json};

use super::{Kind, Shown};
use crate::{
    problem::{Mistake, Mistakes, Placed, all},
    reader::Reader,
    section::{Definitions, Key, Section},
    value::Value,
};

/// What need not be there, and means something else then.
pub(crate) struct Optional<K> {
    kind: K,
    without: &'static str,
}

/// `without` says what holds where the key is left out.
pub(crate) fn optional<K: Kind>(kind: K, without: &'static str) -> Optional<K> {
    Optional { kind, without }
}

impl<K: Kind> Kind for Optional<K> {
    type Value = Option<K::Value>;

    fn read(&self, value: &Value<'_>) -> Result<Self::Value, Mistakes> {
        self.kind.read(value).map(Some)
    }

    fn describe(&self) -> String {
        self.kind.describe()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        self.kind.schema(definitions)
    }

    fn show(&self, value: &Self::Value) -> Shown {
        match value {
            Some(value) => self.kind.show(value),
            None => Shown::Words(self.without),
        }
    }

    fn below(&self) -> Vec<Key> {
        self.kind.below()
    }
}

/// What a table without is wrong; the default stands in for it, in a configuration that is refused.
pub(crate) struct Required<K>(K);

pub(crate) fn required<K: Kind>(kind: K) -> Required<K> {
    Required(kind)
}

impl<K: Kind> Kind for Required<K> {
    type Value = K::Value;

    fn read(&self, value: &Value<'_>) -> Result<Self::Value, Mistakes> {
        self.0.read(value)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        self.0.schema(definitions)
    }

    fn show(&self, _: &Self::Value) -> Shown {
        Shown::Nothing
    }

    fn required(&self) -> bool {
        true
    }

    fn below(&self) -> Vec<Key> {
        self.0.below()
    }
}

/// What remembers where it stands.
pub(crate) struct WithPlace<K>(K);

pub(crate) fn placed<K: Kind>(kind: K) -> WithPlace<K> {
    WithPlace(kind)
}

impl<K: Kind> Kind for WithPlace<K> {
    type Value = Placed<K::Value>;

    fn read(&self, value: &Value<'_>) -> Result<Self::Value, Mistakes> {
        self.0.read(value).map(|read| Placed { value: read, place: value.place })
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        self.0.schema(definitions)
    }

    fn show(&self, value: &Self::Value) -> Shown {
        self.0.show(&value.value)
    }

    fn inherit(&self, own: &mut Self::Value, base: &Self::Value) {
        self.0.inherit(&mut own.value, &base.value);
    }

    fn below(&self) -> Vec<Key> {
        self.0.below()
    }
}

/// Any number of values.
pub(crate) struct Several<K> {
    kind: K,
    names: (&'static str, &'static str),
    bare: bool,
    least: usize,
}

/// An array; `names` are what one value is called, and what several are.
pub(crate) fn array<K: Kind>(kind: K, names: (&'static str, &'static str)) -> Several<K> {
    Several { kind, names, bare: false, least: 0 }
}

/// A value, or an array of them.
pub(crate) fn one_or_more<K: Kind>(kind: K, names: (&'static str, &'static str)) -> Several<K> {
    Several { kind, names, bare: true, least: 0 }
}

impl<K> Several<K> {
    /// An empty array is a mistake.
    pub fn not_empty(self) -> Self {
        Self { least: 1, ..self }
    }
}

impl<K: Kind> Kind for Several<K> {
    type Value = Vec<K::Value>;

    fn read(&self, value: &Value<'_>) -> Result<Self::Value, Mistakes> {
        let elements = if self.bare { value.one_or_more() } else { value.array()? };
        if elements.len() < self.least {
            return Err(value.mistake(format_args!("needs at least one {}", self.names.0)).into());
        }
        all(elements.iter().map(|element| self.kind.read(element)))
    }

    fn describe(&self) -> String {
        let (one, several) = self.names;
        if self.bare {
            format!("{one}, or array of {several}")
        } else {
            format!("array of {several}")
        }
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        let element = self.kind.schema(definitions);
        let mut array = json!({ "type": "array", "items": element });
        if self.least > 0 {
            array["minItems"] = json!(self.least);
        }
        if self.bare { json!({ "anyOf": [element, array] }) } else { array }
    }

    fn show(&self, value: &Self::Value) -> Shown {
        let shown: Vec<_> = value.iter().map(|element| self.kind.show(element)).collect();
        match &shown[..] {
            [one] if self.bare => one.clone(),
            _ => {
                let values = shown.into_iter().filter_map(|shown| match shown {
                    Shown::Value(value) => Some(value),
                    Shown::Nothing | Shown::Words(_) => None,
                });
                Shown::Value(Json::Array(values.collect()))
            }
        }
    }

    fn below(&self) -> Vec<Key> {
        self.kind.below()
    }
}

/// A table with known keys.
pub(crate) struct Table<S>(PhantomData<S>);

pub(crate) fn table<S: Section>() -> Table<S> {
    Table(PhantomData)
}

impl<S: Section> Kind for Table<S> {
    type Value = S;

    fn read(&self, value: &Value<'_>) -> Result<S, Mistakes> {
        Layer::<S>(PhantomData).read(value).map(S::resolve)
    }

    fn describe(&self) -> String {
        "table".to_owned()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        definitions.table(S::NAME, S::keys)
    }

    fn show(&self, _: &S) -> Shown {
        Shown::Nothing
    }

    fn below(&self) -> Vec<Key> {
        S::keys(&mut Definitions::new(&[]))
    }
}

/// A table with known keys that can be laid over another, key by key.
pub(crate) struct Layer<S>(PhantomData<S>);

pub(crate) fn layer<S: Section>() -> Layer<S> {
    Layer(PhantomData)
}

impl<S: Section> Kind for Layer<S> {
    type Value = S::Layer;

    fn read(&self, value: &Value<'_>) -> Result<S::Layer, Mistakes> {
        let mut table = value.reader()?;
        let layer = S::read(&mut table);
        table.finish();
        Ok(layer)
    }

    fn describe(&self) -> String {
        "table".to_owned()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        definitions.table(S::NAME, S::keys)
    }

    fn show(&self, _: &S::Layer) -> Shown {
        Shown::Nothing
    }

    fn inherit(&self, own: &mut S::Layer, base: &S::Layer) {
        S::inherit(own, base);
    }

    fn below(&self) -> Vec<Key> {
        S::keys(&mut Definitions::new(&[]))
    }
}

/// A table whose keys the file's author names, and whose values are strings. What it does not have
/// is taken from the table that it is laid over.
pub(crate) struct Entries<T> {
    describe: &'static str,
    entry: fn(Placed<String>, &Value<'_>) -> Result<T, Mistake>,
    name: fn(&T) -> &str,
}

/// A table of strings; `describe` says of what to what, `name` is the key of an entry.
pub(crate) fn entries<T: Clone>(
    describe: &'static str,
    entry: fn(Placed<String>, &Value<'_>) -> Result<T, Mistake>,
    name: fn(&T) -> &str,
) -> Entries<T> {
    Entries { describe, entry, name }
}

impl<T: Clone> Kind for Entries<T> {
    type Value = Vec<T>;

    fn read(&self, value: &Value<'_>) -> Result<Vec<T>, Mistakes> {
        let entries = value.entries()?;
        all(entries.into_iter().map(|(name, value)| Ok((self.entry)(name, &value)?)))
    }

    fn describe(&self) -> String {
        self.describe.to_owned()
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        json!({ "type": "object", "additionalProperties": { "type": "string" } })
    }

    fn show(&self, _: &Vec<T>) -> Shown {
        Shown::Value(Json::Object(Map::new()))
    }

    fn inherit(&self, own: &mut Vec<T>, base: &Vec<T>) {
        let names: HashSet<_> = own.iter().map(self.name).collect();
        let inherited = base.iter().filter(|entry| !names.contains((self.name)(entry)));
        let mut merged: Vec<_> = inherited.cloned().collect();
        merged.append(own);
        *own = merged;
    }
}

/// What stands under a name that the file's author gives it.
pub(crate) trait Named: Sized {
    /// What it is called: `tenant`.
    const NAME: &'static str;

    /// Reads the table that has this name.
    fn read(name: Placed<String>, table: &mut Reader<'_>) -> Self;

    /// The keys of the table.
    fn keys(definitions: &mut Definitions) -> Vec<Key>;
}

/// A table of tables that the file's author names, in the order of the file.
pub(crate) struct Tables<T>(PhantomData<T>);

pub(crate) fn named<T: Named>() -> Tables<T> {
    Tables(PhantomData)
}

impl<T: Named> Kind for Tables<T> {
    type Value = Vec<T>;

    fn read(&self, value: &Value<'_>) -> Result<Vec<T>, Mistakes> {
        let entries = value.entries()?;
        all(entries.into_iter().map(|(name, value)| {
            let mut table = value.reader()?;
            let read = T::read(name, &mut table);
            table.finish();
            Ok(read)
        }))
    }

    fn describe(&self) -> String {
        "table of tables".to_owned()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        let table = definitions.table(T::NAME, T::keys);
        json!({ "type": "object", "additionalProperties": table })
    }

    fn show(&self, _: &Vec<T>) -> Shown {
        Shown::Nothing
    }

    fn below(&self) -> Vec<Key> {
        T::keys(&mut Definitions::new(&[]))
    }
}
