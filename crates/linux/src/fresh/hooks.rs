//! What makes interpreters use it: code that each loads by itself when it starts, because a variable
//! of its environment says so.

use std::borrow::Cow;

/// What a program reads to have memory kept fresh.
pub(crate) const FRESH: &str = "/sandtide/fresh";

/// The files of the hooks.
pub(crate) const FILES: [(&str, &str); 2] = [
    ("/sandtide/fresh.cjs", include_str!("fresh.cjs")),
    ("/sandtide/python/sitecustomize.py", include_str!("sitecustomize.py")),
];

/// An interpreter that has a hook.
struct Interpreter {
    /// How the names of its files begin.
    names: &'static [&'static str],
    /// The variable of its environment, `=` included.
    variable: &'static str,
    /// What the variable is to begin with.
    value: &'static str,
    /// Between that and what the program's owner has set.
    separator: char,
}

const INTERPRETERS: [Interpreter; 3] = [
    Interpreter {
        names: &["python", "pypy"],
        variable: "PYTHONPATH=",
        value: "/sandtide/python",
        separator: ':',
    },
    Interpreter {
        names: &["node"],
        variable: "NODE_OPTIONS=",
        value: "--require=/sandtide/fresh.cjs",
        separator: ' ',
    },
    Interpreter {
        names: &["bun"],
        variable: "BUN_OPTIONS=",
        value: "--preload=/sandtide/fresh.cjs",
        separator: ' ',
    },
];

/// The environment of a program at this path, given the one that its owner has set.
pub(crate) fn environment<'a>(program: &str, env: &'a [String]) -> Cow<'a, [String]> {
    let name = program.rsplit('/').next().unwrap_or_default();
    let has_name = |hook: &&Interpreter| hook.names.iter().any(|begin| name.starts_with(begin));
    let Some(Interpreter { variable, value, separator, .. }) = INTERPRETERS.iter().find(has_name)
    else {
        return Cow::Borrowed(env);
    };
    let mut env = env.to_vec();
    match env.iter_mut().find(|entry| entry.starts_with(variable)) {
        Some(entry) if entry.len() > variable.len() => {
            *entry = format!("{variable}{value}{separator}{}", &entry[variable.len()..]);
        }
        Some(entry) => *entry = format!("{variable}{value}"),
        None => env.push(format!("{variable}{value}")),
    }
    Cow::Owned(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_comes_before_what_the_owner_has_set() {
        let env = ["A=1".to_owned(), "NODE_OPTIONS=--no-warnings".to_owned()];
        let with = environment("/usr/bin/node", &env);
        assert_eq!(*with, ["A=1", "NODE_OPTIONS=--require=/sandtide/fresh.cjs --no-warnings"]);
        let with = environment("/opt/venv/bin/python3.12", &env[..1]);
        assert_eq!(*with, ["A=1", "PYTHONPATH=/sandtide/python"]);
        let empty = ["PYTHONPATH=".to_owned()];
        assert_eq!(*environment("pypy3", &empty), ["PYTHONPATH=/sandtide/python"]);
        assert_eq!(*environment("/srv/my-node-server", &env), env);
    }
}
