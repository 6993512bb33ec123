//! Reads TOML tables: what was asked for is known, every other key is a mistake.

use std::{fmt::Display, ops::Range, ops::RangeInclusive, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    problem::{Findings, Mistake, Mistakes},
    units,
};

/// One table of the file, being read. Dropping it without [`Reader::finish`] would let unknown
/// keys pass, so whatever makes a reader finishes it.
pub(crate) struct Reader<'a> {
    /// For messages: `[tenants.shop]`.
    name: String,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
    pub findings: &'a Findings,
}

impl<'a> Reader<'a> {
    pub fn new(name: impl Into<String>, table: &'a DeTable<'a>, findings: &'a Findings) -> Self {
        Self { name: name.into(), table, known: Vec::new(), findings }
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of a key, if it is there.
    pub fn get(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.push(key);
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Value {
            name: key.to_owned(),
            span: value.span(),
            value: value.get_ref(),
            findings: self.findings,
        })
    }

    /// Reads the value of a key. `None` if it is not there, or is a mistake, which is noted.
    pub fn read<T, E: Into<Mistakes>>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.get(key)?;
        read(&value).map_err(|mistakes| self.findings.add(mistakes)).ok()
    }

    /// The table under a key, if it is there.
    pub fn table(&mut self, key: &'static str) -> Option<Reader<'a>> {
        let value = self.get(key)?;
        let name = if self.name.is_empty() {
            format!("[{key}]")
        } else {
            format!("{}.{key}]", self.name.trim_end_matches(']'))
        };
        match value.table() {
            Ok(table) => Some(Reader::new(name, table, self.findings)),
            Err(mistake) => {
                self.findings.add(mistake);
                None
            }
        }
    }

    /// The tables under the keys of this one, which the file's author names, in the file's order.
    pub fn named_tables(self) -> Vec<(Spanned<String>, Reader<'a>)> {
        let prefix = self.name.trim_end_matches(']');
        let mut tables = Vec::new();
        for (key, value) in entries(self.table, self.findings) {
            let value = Value { name: key.get_ref().clone(), ..value };
            match value.table() {
                Ok(table) => {
                    let name = format!("{prefix}.{}]", key.get_ref());
                    tables.push((key, Reader::new(name, table, self.findings)));
                }
                Err(mistake) => self.findings.add(mistake),
            }
        }
        tables
    }

    /// Notes every key that nobody asked for.
    pub fn finish(self) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) {
                continue;
            }
            let place = if self.name.is_empty() {
                "at the top of the file".to_owned()
            } else {
                format!("in `{}`", self.name)
            };
            let mistake = Mistake::new(key.span(), format!("unknown key `{name}` {place}"));
            self.findings.add(mistake.hint(suggest(name, &self.known)));
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

/// The entries of a table in the order of the file.
fn entries<'a>(
    table: &'a DeTable<'a>,
    findings: &'a Findings,
) -> Vec<(Spanned<String>, Value<'a>)> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| {
            let name = key.get_ref().to_string();
            let span = value.span();
            let value = Value { name: name.clone(), span, value: value.get_ref(), findings };
            (Spanned::new(key.span(), name), value)
        })
        .collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// One value of the file.
pub(crate) struct Value<'a> {
    /// Its key, for messages.
    pub name: String,
    pub span: Range<usize>,
    value: &'a DeValue<'a>,
    findings: &'a Findings,
}

impl<'a> Value<'a> {
    /// A mistake about this value.
    pub fn mistake(&self, message: impl Display) -> Mistake {
        Mistake::new(self.span.clone(), format!("`{}`: {message}", self.name))
    }

    fn wrong_type(&self, wanted: &str) -> Mistake {
        let found = match self.value {
            DeValue::Integer(_) => "an integer",
            DeValue::Array(_) => "an array",
            DeValue::String(_) => "a string",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Table(_) => "a table",
        };
        self.mistake(format_args!("must be {wanted}, not {found}"))
    }

    pub fn string(&self) -> Result<&'a str, Mistake> {
        self.value.as_str().ok_or_else(|| self.wrong_type("a string"))
    }

    /// A string that can be handed to a guest or the operating system.
    pub fn string_without_nul(&self) -> Result<&'a str, Mistake> {
        let text = self.string()?;
        if text.contains('\0') {
            return Err(self.mistake("must not contain a NUL character"));
        }
        Ok(text)
    }

    pub fn boolean(&self) -> Result<bool, Mistake> {
        self.value.as_bool().ok_or_else(|| self.wrong_type("`true` or `false`"))
    }

    /// One of a few words, and what it stands for.
    pub fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, Mistake> {
        let text = self.string()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*meaning);
        }
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let mistake = self.mistake(format_args!("`{text}` means nothing here"));
        Err(mistake.hint(suggest(text, &known)))
    }

    pub fn integer(&self, allowed: RangeInclusive<u64>) -> Result<u64, Mistake> {
        let integer = self.value.as_integer().ok_or_else(|| self.wrong_type("an integer"))?;
        // What does not fit is shown as it was written.
        let value = u64::from_str_radix(integer.as_str(), integer.radix())
            .map_err(|_| self.outside(integer.as_str(), allowed.start(), allowed.end()))?;
        self.within(value, allowed, |value| value.to_string())
    }

    pub fn small_integer(&self, allowed: RangeInclusive<u32>) -> Result<u32, Mistake> {
        let (least, most) = allowed.into_inner();
        let value = self.integer(least.into()..=most.into())?;
        u32::try_from(value).map_err(|_| self.outside(&value.to_string(), &least, &most))
    }

    pub fn size(&self, allowed: RangeInclusive<u64>) -> Result<u64, Mistake> {
        if self.value.is_integer() {
            return self.integer(allowed);
        }
        let wrong_type = || self.wrong_type("a size such as \"64 MiB\", or a number of bytes");
        let text = self.value.as_str().ok_or_else(wrong_type)?;
        let bytes = units::size(text).map_err(|e| self.mistake(&e).hint(e.hint))?;
        self.within(bytes, allowed, |bytes| units::show_size(bytes).to_string())
    }

    pub fn duration(&self, allowed: RangeInclusive<Duration>) -> Result<Duration, Mistake> {
        let wrong_type = || {
            let mistake = self.wrong_type("a duration such as \"10 s\"");
            match self.value.as_integer() {
                Some(n) => mistake.hint(format!("write the unit: `\"{n} s\"` or `\"{n} ms\"`")),
                None => mistake,
            }
        };
        let text = self.value.as_str().ok_or_else(wrong_type)?;
        let time = units::duration(text).map_err(|e| self.mistake(&e).hint(e.hint))?;
        self.within(time, allowed, |time| units::show_duration(time).to_string())
    }

    fn within<T: PartialOrd + Copy>(
        &self,
        value: T,
        allowed: RangeInclusive<T>,
        show: impl Fn(T) -> String,
    ) -> Result<T, Mistake> {
        if allowed.contains(&value) {
            return Ok(value);
        }
        Err(self.outside(&show(value), &show(*allowed.start()), &show(*allowed.end())))
    }

    fn outside(&self, value: &str, least: &impl Display, most: &impl Display) -> Mistake {
        self.mistake(format_args!("{value} is outside {least} to {most}"))
    }

    pub fn array(&self) -> Result<Vec<Value<'a>>, Mistake> {
        let array = self.value.as_array().ok_or_else(|| self.wrong_type("an array"))?;
        let element = |element: &'a Spanned<DeValue<'a>>| Value {
            name: self.name.clone(),
            span: element.span(),
            value: element.get_ref(),
            findings: self.findings,
        };
        Ok(array.iter().map(element).collect())
    }

    /// A single value or an array of them.
    pub fn one_or_more(&self) -> Result<Vec<Value<'a>>, Mistake> {
        if self.value.is_array() {
            return self.array();
        }
        Ok(vec![Value { name: self.name.clone(), span: self.span.clone(), ..*self }])
    }

    pub fn table(&self) -> Result<&'a DeTable<'a>, Mistake> {
        self.value.as_table().ok_or_else(|| self.wrong_type("a table"))
    }

    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// The reader of a table that is this value.
    pub fn reader(&self) -> Result<Reader<'a>, Mistake> {
        Ok(Reader::new(&self.name, self.table()?, self.findings))
    }

    /// The entries of a table whose keys the file's author names, in the file's order.
    pub fn entries(&self) -> Result<Vec<(Spanned<String>, Value<'a>)>, Mistake> {
        let table = self.table()?;
        Ok(entries(table, self.findings)
            .into_iter()
            .map(|(key, value)| {
                let name = format!("{}.{}", self.name, key.get_ref());
                (key, Value { name, ..value })
            })
            .collect())
    }
}
