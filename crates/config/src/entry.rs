//! `[tenants.<name>]` and `[groups.<name>]`, as they are written.

use std::path::PathBuf;

use crate::{
    Authority, Respond,
    kind::{Named, boolean, one_or_more, optional, parsed, path, placed, table},
    problem::{Mistake, Placed},
    reader::Reader,
    section::{Definitions, Key, Section as _, section},
    shared::{Shared, SharedLayer},
    value::Value,
};

section! {
    /// Where a tenant answers.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Answers / AnswersLayer {
        /// host names or IP addresses that the tenant answers to; case and port of a request do not
        /// matter. `*.example.com` stands for every name below `example.com`, not for `example.com`
        /// itself
        authorities: Vec<Placed<Authority>> = Vec::new(),
            one_or_more(placed(parsed("string", authority)), ("string", "strings"));
        /// answer also to every name that no tenant has
        default: Placed<bool> = Placed { value: false, place: Default::default() },
            placed(boolean());
        /// answer only to this path and those below it: `/shop` covers `/shop` and `/shop/cart`, not
        /// `/shopping`. The program sees the whole path
        path: String = "/".to_owned(), parsed("string", url_path);
    }
}

section! {
    /// What a tenant serves: exactly one of these.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Served / ServedLayer {
        /// the program's file: a Linux ELF, for RISC-V as `sandtide build` makes it, or for x86-64
        program: Option<PathBuf> = None, optional(path(), "");
        /// a constant answer without a program
        respond: Option<Respond> = None, optional(table(), "");
    }
}

section! {
    /// Whom a tenant or a group inherits from.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Inherits / InheritsLayer {
        /// the group whose keys hold where this table says nothing
        group: Option<Placed<String>> = None, optional(placed(parsed("string", group)), "none");
    }
}

/// `[tenants.<name>]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TenantEntry {
    pub name: Placed<String>,
    pub answers: Answers,
    pub served: Served,
    pub group: Option<Placed<String>>,
    pub shared: SharedLayer,
}

/// `[groups.<name>]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GroupEntry {
    pub name: Placed<String>,
    pub group: Option<Placed<String>>,
    pub shared: SharedLayer,
}

impl Named for TenantEntry {
    const NAME: &'static str = "Tenant";

    fn read(name: Placed<String>, table: &mut Reader<'_>) -> Self {
        check_name(&name, "tenant", table);
        let entry = Self {
            answers: Answers::resolve(Answers::read(table)),
            served: Served::resolve(Served::read(table)),
            group: Inherits::resolve(Inherits::read(table)).group,
            shared: Shared::read(table),
            name,
        };
        entry.check_served([table.has("program"), table.has("respond")], table);
        entry
    }

    fn keys(definitions: &mut Definitions) -> Vec<Key> {
        let mut keys = Answers::keys(definitions);
        keys.extend(Served::keys(definitions));
        keys.extend(Inherits::keys(definitions));
        keys.extend(Shared::keys(definitions));
        keys
    }
}

impl Named for GroupEntry {
    const NAME: &'static str = "Group";

    fn read(name: Placed<String>, table: &mut Reader<'_>) -> Self {
        check_name(&name, "group", table);
        let group = Inherits::resolve(Inherits::read(table)).group;
        Self { name, group, shared: Shared::read(table) }
    }

    fn keys(definitions: &mut Definitions) -> Vec<Key> {
        let mut keys = Inherits::keys(definitions);
        keys.extend(Shared::keys(definitions));
        keys
    }
}

impl TenantEntry {
    /// Exactly one thing is served, and a constant has nothing of a program.
    fn check_served(&self, has: [bool; 2], table: &Reader<'_>) {
        let wrong = match has {
            [true, true] => ("has both `program` and `respond`", "keep one of them"),
            [false, false] => (
                "has nothing to serve",
                "set `program` to a file, or `respond` to a constant answer",
            ),
            [true, false] => return,
            [false, true] => {
                for Placed { value: key, place } in self.shared.program.set() {
                    let what = format!("`{key}` means nothing beside `respond`");
                    let hint = "a constant answer has no program: leave it out";
                    table.origin.add(Mistake::new(place, what).hint(hint));
                }
                return;
            }
        };
        let (what, hint) = wrong;
        let what = format!("tenant `{}` {what}", self.name.value);
        table.origin.add(Mistake::new(self.name.place, what).hint(hint));
    }
}

pub(crate) fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_'
}

fn check_name(name: &Placed<String>, of: &str, table: &Reader<'_>) {
    let Placed { value: text, place } = name;
    let valid = (1..=63).contains(&text.len())
        && !text.starts_with(['-', '_'])
        && text.chars().all(is_name_character);
    if !valid {
        let mistake = Mistake::new(*place, format!("`{text}` cannot be a {of}'s name"));
        let hint = "up to 63 of `a`-`z`, `0`-`9`, `-` and `_`, the first a letter or a digit";
        table.origin.add(mistake.hint(hint));
    }
}

fn group(value: &Value<'_>) -> Result<String, Mistake> {
    Ok(value.string()?.into_owned())
}

fn authority(value: &Value<'_>) -> Result<Authority, Mistake> {
    Authority::parse(&value.string()?).map_err(|error| value.mistake(&error).hint(error.hint))
}

fn url_path(value: &Value<'_>) -> Result<String, Mistake> {
    let path = value.string()?;
    let mistake = |what: &str| value.mistake(format_args!("`{path}` {what}"));
    if !path.starts_with('/') {
        return Err(mistake("does not start with `/`").hint(format!("write `/{path}`")));
    }
    if path != "/" && path.ends_with('/') {
        let hint = format!("write `{}`: it covers what is below it", path.trim_end_matches('/'));
        return Err(mistake("ends with `/`").hint(hint));
    }
    let segments = path.split('/').skip(1);
    if path != "/" && segments.into_iter().any(|part| matches!(part, "" | "." | "..")) {
        return Err(mistake("has an empty segment, `.` or `..` in it"));
    }
    if !path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#')) {
        let hint = "paths are compared as they are sent: write other characters as `%XX`";
        return Err(mistake("has a character that paths do not have").hint(hint));
    }
    Ok(path.into_owned())
}
