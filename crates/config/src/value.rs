//! One value of a file: its type is checked, and variables of the environment are put in.

use std::{borrow::Cow, fmt::Display, path::PathBuf, rc::Rc, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    context::Origin,
    problem::{Mistake, Place, Placed},
    reader::Reader,
    units, variables,
};

/// One value of a file.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    /// Its key, for messages.
    pub name: Cow<'a, str>,
    /// The table that it stands in, for messages: `tenants.shop`.
    pub table: Rc<str>,
    pub place: Place,
    /// The file that it stands in.
    pub origin: &'a Origin<'a>,
    pub value: &'a DeValue<'a>,
}

/// An integer as it was written, and what it is if that is one of ours.
pub(crate) struct Written {
    pub text: String,
    pub value: Option<u64>,
}

impl<'a> Value<'a> {
    /// A mistake about this value.
    pub fn mistake(&self, message: impl Display) -> Mistake {
        Mistake::new(self.place, format!("`{}`: {message}", self.name))
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

    /// The string that is expected here, with its variables put in.
    fn text(&self, wanted: &str) -> Result<Cow<'a, str>, Mistake> {
        let text = self.value.as_str().ok_or_else(|| self.wrong_type(wanted))?;
        let variable = self.origin.context.surroundings.variable;
        variables::substitute(text, variable).map_err(|e| self.mistake(&e).hint(e.hint))
    }

    /// A string with a variable in it, where something else than a string is expected.
    fn variable(&self) -> Result<Option<Cow<'a, str>>, Mistake> {
        match self.value.as_str() {
            Some(text) if variables::are_in(text) => self.text("").map(Some),
            _ => Ok(None),
        }
    }

    pub fn is_string(&self) -> bool {
        self.value.is_str()
    }

    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub fn string(&self) -> Result<Cow<'a, str>, Mistake> {
        self.text("a string")
    }

    /// A string that can be handed to a guest or the operating system.
    pub fn string_without_nul(&self) -> Result<Cow<'a, str>, Mistake> {
        let text = self.string()?;
        if text.contains('\0') {
            return Err(self.mistake("must not contain a NUL character"));
        }
        Ok(text)
    }

    /// A path, relative to the directory of the file that it stands in.
    pub fn path(&self) -> Result<PathBuf, Mistake> {
        match &*self.string_without_nul()? {
            "" => Err(self.mistake("is empty")),
            path => Ok(self.origin.directory.join(path)),
        }
    }

    pub fn boolean(&self) -> Result<bool, Mistake> {
        match self.variable()?.as_deref() {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(self.mistake(format_args!("`{other}` is not `true` or `false`"))),
            None => self.value.as_bool().ok_or_else(|| self.wrong_type("`true` or `false`")),
        }
    }

    pub fn integer(&self) -> Result<Written, Mistake> {
        if let Some(text) = self.variable()? {
            let number: i128 = text
                .parse()
                .map_err(|_| self.mistake(format_args!("`{text}` is not a whole number")))?;
            return Ok(Written { value: number.try_into().ok(), text: text.into_owned() });
        }
        let integer = self.value.as_integer().ok_or_else(|| self.wrong_type("an integer"))?;
        let value = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        // What does not fit is shown as it was written.
        let text = value.map_or_else(|| integer.as_str().to_owned(), |value| value.to_string());
        Ok(Written { text, value })
    }

    /// A number of bytes.
    pub fn size(&self) -> Result<u64, Mistake> {
        if self.value.is_integer() {
            let Written { text, value } = self.integer()?;
            return value.ok_or_else(|| self.mistake(format_args!("{text} is not a size")));
        }
        let text = self.text("a size such as \"64 MiB\", or a number of bytes")?;
        units::size(&text).map_err(|e| self.mistake(&e).hint(e.hint))
    }

    pub fn duration(&self) -> Result<Duration, Mistake> {
        let text = self.text("a duration such as \"10 s\"").map_err(|mistake| {
            match self.value.as_integer() {
                Some(n) => mistake.hint(format!("write the unit: `\"{n} s\"` or `\"{n} ms\"`")),
                None => mistake,
            }
        })?;
        units::duration(&text).map_err(|e| self.mistake(&e).hint(e.hint))
    }

    pub fn array(&self) -> Result<Vec<Self>, Mistake> {
        let array = self.value.as_array().ok_or_else(|| self.wrong_type("an array"))?;
        let element = |element: &'a Spanned<DeValue<'a>>| Self {
            place: self.origin.place(element.span().start),
            value: element.get_ref(),
            ..self.clone()
        };
        Ok(array.iter().map(element).collect())
    }

    /// A single value or an array of them.
    pub fn one_or_more(&self) -> Vec<Self> {
        self.array().unwrap_or_else(|_| vec![self.clone()])
    }

    fn inner_table(&self) -> Result<&'a DeTable<'a>, Mistake> {
        self.value.as_table().ok_or_else(|| self.wrong_type("a table"))
    }

    /// The reader of a table that is this value.
    pub fn reader(&self) -> Result<Reader<'a>, Mistake> {
        let title = match &*self.table {
            "" => self.name.as_ref().into(),
            table => format!("{table}.{}", self.name).into(),
        };
        Ok(Reader::new(title, self.inner_table()?, self.place, self.origin))
    }

    /// The entries of a table whose keys the file's author names, in the file's order.
    pub fn entries(&self) -> Result<Vec<(Placed<String>, Self)>, Mistake> {
        let table = self.inner_table()?;
        let entry = |(key, value): (&Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>)| {
            let place = self.origin.place(key.span().start);
            let name = key.get_ref();
            let value = Self {
                name: format!("{}.{name}", self.name).into(),
                table: self.table.clone(),
                place: self.origin.place(value.span().start),
                origin: self.origin,
                value: value.get_ref(),
            };
            (Placed { value: name.to_string(), place }, value)
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|(key, _)| key.place);
        Ok(entries)
    }
}
