//! `${NAME}` in strings: variables of the environment.

use std::{borrow::Cow, ffi::OsString};

/// A pattern (ECMA 262) that fits strings with a variable in them, for the schema.
pub(crate) const PATTERN: &str = r"\$\{";

/// Why the variables in a text cannot be put in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct VariableError {
    message: String,
    pub hint: String,
}

/// Whether a text has a variable in it.
pub(crate) fn are_in(text: &str) -> bool {
    text.contains("${")
}

/// Puts the values of variables in: `${NAME}`, or `${NAME:-default}` for what may be unset or empty.
/// `$${` stands for `${`; a `$` before anything else for itself. Values are taken as they are: what
/// looks like a variable in them is none.
pub(crate) fn substitute<'a>(
    text: &'a str,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Cow<'a, str>, VariableError> {
    if !are_in(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, from) = rest.split_at(dollar);
        result.push_str(before);
        if let Some(behind) = from.strip_prefix("$${") {
            result.push_str("${");
            rest = behind;
        } else if let Some(behind) = from.strip_prefix("${") {
            let (inner, behind) = behind.split_once('}').ok_or_else(not_closed)?;
            result.push_str(&value(inner, variable)?);
            rest = behind;
        } else {
            result.push('$');
            rest = &from[1..];
        }
    }
    result.push_str(rest);
    Ok(Cow::Owned(result))
}

/// The value of what stands between `${` and `}`.
fn value(
    inner: &str,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<String, VariableError> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        let hint = "write `${NAME}` or `${NAME:-default}`, or `$${` for a `${` that stays";
        return error(format!("`{name}` cannot be the name of a variable"), hint);
    }
    if default.is_some_and(are_in) {
        let message = format!("the default of variable `{name}` has a variable in it");
        return error(message, "a default is plain text");
    }
    match (variable(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => value.into_string().or_else(|_| {
            error(format!("environment variable `{name}` is not UTF-8"), "set it to a text")
        }),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            let hint = format!("set it, or say what to use instead: `${{{name}:-default}}`");
            error(format!("environment variable `{name}` is not set"), hint)
        }
    }
}

/// Whether a variable of the environment can have this name (POSIX.1-2024, XBD §3.216).
fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn not_closed() -> VariableError {
    VariableError {
        message: "has a `${` without a `}`".to_owned(),
        hint: "close it, or write `$${` for a `${` that stays".to_owned(),
    }
}

fn error<T>(message: String, hint: impl Into<String>) -> Result<T, VariableError> {
    Err(VariableError { message, hint: hint.into() })
}
