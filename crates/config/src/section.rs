//! The keys of a table, declared once: reader, types, defaults, schema and documents come from it.
//!
//! ```ignore
//! section! {
//!     /// What a door is like.
//!     #[derive(Debug)]
//!     pub struct Door / DoorLayer {
//!         /// how wide it opens, in degrees
//!         width: u32 = 90, integer(0..=180);
//!     }
//! }
//! ```
//!
//! makes `Door { width: u32 }`, whose field has these words as its description, and `DoorLayer
//! { width: Option<Placed<u32>> }`, which holds what one table says. Layers are laid over each other
//! with [`Section::inherit`]; [`Section::resolve`] fills in the defaults. What a key may be is said by
//! its [`Kind`].

use serde_json::{Map, Value as Json, json};

use crate::{
    kind::{Kind, Shown},
    problem::Placed,
    reader::Reader,
};

/// A table whose keys are known.
pub(crate) trait Section: Sized {
    /// What one table says; nothing by default.
    type Layer: Clone + Default;

    /// Its name in the schema and in the documents.
    const NAME: &'static str;

    /// Reads the keys that the table has.
    fn read(table: &mut Reader<'_>) -> Self::Layer;

    /// Adds to `own` what only `base` says.
    fn inherit(own: &mut Self::Layer, base: &Self::Layer);

    /// What holds, with the defaults for what nobody said.
    fn resolve(layer: Self::Layer) -> Self;

    /// The names of the keys whose values are not the same.
    fn differences(&self, other: &Self) -> Vec<&'static str>;

    /// The names of its keys.
    fn names() -> Vec<&'static str>;

    /// Its keys, in the order in which documents show them.
    fn keys(definitions: &mut Definitions) -> Vec<Key>;
}

/// A key, as the schema and the documents show it.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// The section that it belongs to.
    pub section: &'static str,
    pub name: &'static str,
    pub effect: String,
    pub kind: String,
    pub default: Shown,
    pub required: bool,
    pub schema: Json,
    /// If it is a limit: what happens above it.
    pub exceeded: Option<Exceeded>,
    /// The keys of the table that is its value.
    pub below: Vec<Key>,
}

/// What happens when a limit is exceeded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exceeded {
    /// What the client gets.
    pub answer: &'static str,
    /// The error type in `proxy-status` (RFC 9209 §2.3); empty for none.
    pub error: &'static str,
    /// What the log says; empty for nothing.
    pub log: &'static str,
}

impl Key {
    pub fn new<K: Kind>(
        (section, name): (&'static str, &'static str),
        effect: &[&str],
        kind: &K,
        default: &K::Value,
        exceeded: Option<Exceeded>,
        definitions: &mut Definitions,
    ) -> Self {
        Self {
            section,
            name,
            effect: effect.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
            kind: kind.describe(),
            default: if kind.required() { Shown::Nothing } else { kind.show(default) },
            required: kind.required(),
            schema: kind.schema(definitions),
            exceeded,
            below: kind.below(),
        }
    }
}

/// The tables of a JSON Schema, each described once.
#[derive(Debug)]
pub(crate) struct Definitions {
    /// By name.
    pub tables: Map<String, Json>,
    /// The names that `engine` may have.
    pub engines: Vec<String>,
}

impl Definitions {
    pub fn new(engines: &[&str]) -> Self {
        let engines = engines.iter().map(|&name| name.to_owned()).collect();
        Self { tables: Map::new(), engines }
    }

    /// A reference to the table of this name, which has the keys that `keys` returns.
    pub fn table(&mut self, name: &str, keys: impl FnOnce(&mut Self) -> Vec<Key>) -> Json {
        // `LimitKeys` are how limits are written, and nothing else is known outside.
        let name = name.trim_end_matches("Keys");
        if !self.tables.contains_key(name) {
            let keys = keys(self);
            self.tables.insert(name.to_owned(), object(&keys));
        }
        json!({ "$ref": format!("#/$defs/{name}") })
    }
}

/// The schema of a table with these keys and no others.
pub(crate) fn object(keys: &[Key]) -> Json {
    let properties = keys.iter().map(|key| {
        let mut schema = key.schema.clone();
        schema["description"] = Json::from(key.effect.as_str());
        if let Shown::Value(value) = &key.default {
            schema["default"] = value.clone();
        }
        (key.name.to_owned(), schema)
    });
    let mut object = json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
        "additionalProperties": false,
    });
    let required: Vec<_> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// Adds to what a table says about one key what the table below it says.
pub(crate) fn inherit<K: Kind>(
    kind: &K,
    own: &mut Option<Placed<K::Value>>,
    base: &Option<Placed<K::Value>>,
) where
    K::Value: Clone,
{
    match (own, base) {
        (Some(own), Some(base)) => kind.inherit(&mut own.value, &base.value),
        (own @ None, Some(base)) => *own = Some(base.clone()),
        (_, None) => {}
    }
}

macro_rules! section {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident / $layer:ident {
            $(
                $(#[doc = $effect:literal])+
                $key:ident: $type:ty = $default:expr, $kind:expr $(, exceeded: $exceeded:expr)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[doc = $effect])+ pub $key: $type,)*
        }

        /// What one table says of it.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $layer {
            $(pub $key: Option<$crate::problem::Placed<$type>>,)*
        }

        impl $crate::section::Section for $name {
            type Layer = $layer;
            const NAME: &'static str = stringify!($name);

            fn read(table: &mut $crate::reader::Reader<'_>) -> $layer {
                $layer { $($key: table.read(stringify!($key), &$kind),)* }
            }

            fn inherit(own: &mut $layer, base: &$layer) {
                $($crate::section::inherit(&$kind, &mut own.$key, &base.$key);)*
            }

            fn resolve(layer: $layer) -> Self {
                Self { $($key: layer.$key.map_or_else(|| $default, |key| key.value),)* }
            }

            fn differences(&self, other: &Self) -> Vec<&'static str> {
                let differs = [$((stringify!($key), self.$key != other.$key)),*];
                differs.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
            }

            fn names() -> Vec<&'static str> {
                vec![$(stringify!($key)),*]
            }

            fn keys(definitions: &mut $crate::section::Definitions) -> Vec<$crate::section::Key> {
                vec![$({
                    let default: $type = $default;
                    let exceeded: [Option<$crate::section::Exceeded>; _] =
                        [$(Some($exceeded),)? None];
                    $crate::section::Key::new(
                        (Self::NAME, stringify!($key)),
                        &[$($effect),+],
                        &$kind,
                        &default,
                        exceeded[0],
                        definitions,
                    )
                }),*]
            }
        }
    };
}
pub(crate) use section;
