//! Applications that run in this process, for owners whom the operator trusts.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::{LoadError, Program};

/// A way of running applications in this process, without a sandbox.
///
/// It is not an [`crate::Engine`]: what it loads can read and change all that this process has, and
/// keeps what a request has left. What its programs call a sandbox is the place of one exchange, and
/// a reset of it ends the exchange and undoes nothing. Whoever has this trait in hand decides
/// whom to trust.
pub trait InProcess: Send + Sync {
    /// The name in messages: `python`.
    fn name(&self) -> &'static str;

    /// Imports an application and has it start up. To be called on the thread that will serve it,
    /// before it serves; blocks for as long as that takes.
    fn load(&self, source: &ApplicationSource) -> Result<Arc<dyn Program>, LoadError>;
}

/// Where an application is, and how it is to be called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApplicationSource {
    /// What to import.
    pub target: Target,
    /// Which interface it has.
    pub interface: Interface,
    /// Whether it is told when the server starts and stops.
    pub lifespan: Lifespan,
    /// How many requests it answers at a time, for interfaces that block.
    pub threads: u32,
    /// The path that it is mounted at, without a slash at the end.
    pub root_path: String,
}

/// `module:attribute`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// A module's dotted name.
    pub module: String,
    /// The object in it, dotted; `None` for what such objects are usually called.
    pub attribute: Option<String>,
    /// Whether that is to be called, and makes the application.
    pub is_factory: bool,
    /// Where modules are looked for before the interpreter's own places.
    pub directory: PathBuf,
}

/// How a server calls an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Interface {
    /// Found out by looking at the object.
    #[default]
    Auto,
    /// ASGI 3, or 2.
    Asgi,
    /// WSGI (PEP 3333).
    Wsgi,
}

/// Whether an ASGI application is sent the events of the lifespan protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lifespan {
    /// Yes; one that raises an exception at the first does without.
    #[default]
    Auto,
    /// Yes; one that raises an exception cannot be served.
    On,
    /// No.
    Off,
}

impl Target {
    /// The parts of `module:attribute` or `module`; a file's name, `shop/app.py`, stands for the
    /// module in it. `None` if it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let (module, attribute) = match text.split_once(':') {
            Some((module, attribute)) => (module, Some(attribute)),
            None => (text, None),
        };
        let (directory, module) = match module.strip_suffix(".py") {
            Some(path) => match path.rsplit_once('/') {
                Some((directory, module)) => (PathBuf::from(directory), module),
                None => (PathBuf::new(), path),
            },
            None => (PathBuf::new(), module),
        };
        let is_factory = attribute.is_some_and(|attribute| attribute.ends_with("()"));
        let attribute =
            attribute.map(|attribute| attribute.strip_suffix("()").unwrap_or(attribute));
        let sound = is_dotted(module) && attribute.is_none_or(is_dotted);
        sound.then(|| Self {
            module: module.to_owned(),
            attribute: attribute.map(str::to_owned),
            is_factory,
            directory,
        })
    }
}

/// Whether a text is identifiers with dots between them.
fn is_dotted(text: &str) -> bool {
    text.split('.').all(|part| {
        part.chars().all(|c| c.is_alphanumeric() || c == '_')
            && part.starts_with(|c: char| !c.is_numeric())
    })
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.attribute {
            Some(attribute) => {
                let call = if self.is_factory { "()" } else { "" };
                write!(f, "{}:{attribute}{call}", self.module)
            }
            None => f.write_str(&self.module),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_modules_or_files() {
        let parse = |text| Target::parse(text).map(|t| (t.to_string(), t.directory));
        assert_eq!(parse("app:app"), Some(("app:app".into(), PathBuf::new())));
        assert_eq!(parse("shop.asgi"), Some(("shop.asgi".into(), PathBuf::new())));
        assert_eq!(parse("a/b.py:x.y"), Some(("b:x.y".into(), PathBuf::from("a"))));
        assert_eq!(parse("app:make()"), Some(("app:make()".into(), PathBuf::new())));
        for wrong in ["", ":", "app:", ":app", "a b:c", "a..b", "1a", "a:b:c", "a/b:c", "-x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
