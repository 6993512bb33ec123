//! Reads TOML tables: what was asked for is known, every other key is a mistake.

use std::{borrow::Cow, rc::Rc};

use toml::de::DeTable;

use crate::{
    context::Origin,
    kind::Kind,
    problem::{Mistake, Place, Placed},
    value::Value,
};

/// One table of the file, being read. Dropping it without [`Reader::finish`] would let unknown
/// keys pass, so whatever makes a reader finishes it.
pub(crate) struct Reader<'a> {
    /// `tenants.shop`; empty for the top of a file.
    title: Rc<str>,
    table: &'a DeTable<'a>,
    /// Where it begins.
    place: Place,
    known: Vec<&'static str>,
    pub origin: &'a Origin<'a>,
}

impl<'a> Reader<'a> {
    pub fn new(
        title: Rc<str>,
        table: &'a DeTable<'a>,
        place: Place,
        origin: &'a Origin<'a>,
    ) -> Self {
        Self { title, table, place, known: Vec::new(), origin }
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reads the value of a key. `None` if it is not there, or is a mistake, which is noted.
    pub fn read<K: Kind>(&mut self, key: &'static str, kind: &K) -> Option<Placed<K::Value>> {
        self.known.push(key);
        let Some(value) = self.table.get(key) else {
            if kind.required() {
                let message = format!("{} needs `{key}`", self.shown());
                self.origin.add(Mistake::new(self.place, message));
            }
            return None;
        };
        let place = self.origin.place(value.span().start);
        let name = Cow::Borrowed(key);
        let (table, origin) = (self.title.clone(), self.origin);
        let value = Value { name, table, place, origin, value: value.get_ref() };
        match kind.read(&value) {
            Ok(value) => Some(Placed { value, place }),
            Err(mistakes) => {
                self.origin.context.findings.add(mistakes);
                None
            }
        }
    }

    /// Notes a key that nobody has asked for, and that means something elsewhere.
    pub fn refuse(&mut self, key: &'static str, what: &str, hint: &str) {
        if !self.known.contains(&key)
            && let Some((name, _)) = self.table.get_key_value(key)
        {
            self.known.push(key);
            let place = self.origin.place(name.span().start);
            self.origin.add(Mistake::new(place, format!("`{key}` {what}")).hint(hint));
        }
    }

    fn shown(&self) -> String {
        match &*self.title {
            "" => "the file".to_owned(),
            title => format!("`[{title}]`"),
        }
    }

    /// Notes every key that nobody asked for.
    pub fn finish(self) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) {
                continue;
            }
            let place = match &*self.title {
                "" => "at the top of the file".to_owned(),
                _ => format!("in {}", self.shown()),
            };
            let span = self.origin.place(key.span().start);
            let mistake = Mistake::new(span, format!("unknown key `{name}` {place}"));
            self.origin.add(mistake.hint(suggest(name, &self.known)));
        }
    }
}

/// A hint for a word that is not one of `known`: the nearest one, or all of them.
pub fn suggest(word: &str, known: &[&str]) -> String {
    // A third of the word may be wrong; beyond that a guess confuses more than it helps.
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, name)| *distance <= (word.len().max(name.len()) / 3).max(1))
        .min();
    match near {
        Some((_, name)) => format!("did you mean `{name}`?"),
        None => {
            let mut names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
            names.sort();
            format!("known here: {}", names.join(", "))
        }
    }
}
