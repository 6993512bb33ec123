//! A tenant's program, and what it may have.

use std::{
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

use sandtide_engine::{EgressRule, FileGrant, Translate, host_name};
use serde_json::{Value as Json, json};

use crate::{
    kind::{Kind, Parsed, Shown, Word, array, boolean, entries, optional, parsed, string, word},
    problem::{Mistake, Mistakes, Placed},
    reader::suggest,
    section::{Definitions, section},
    value::Value,
};

/// A program in a file, and what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// `program`: the file.
    pub file: PathBuf,
    /// `engine`: the engine to run it on. Default: the first that recognises the file.
    pub engine: Option<String>,
    /// `args`: the arguments behind the program's name. Default none.
    pub args: Vec<String>,
    /// `env`: the environment, as `(name, value)`; nothing of the server's own. Default empty.
    pub env: Vec<(String, String)>,
    /// `reseed`: whether interpreters seed their generators of random numbers in each request.
    pub reseed: bool,
    /// `files`: guest path to host path; what the program may read. Default none.
    pub files: Vec<FileGrant>,
    /// `libraries`: whether a dynamically linked program may read the machine's. Default yes.
    pub libraries: bool,
    /// `egress`: what it may connect to. Default nothing.
    pub egress: Vec<EgressRule>,
    /// `hosts`: addresses of names, which the host's resolver is not asked for. Default none.
    pub hosts: Vec<(String, IpAddr)>,
    /// `directory`: the working directory that it starts in. Default `/`.
    pub directory: String,
    /// `translate`: whether its code is translated to code of the host.
    pub translate: Translate,
}

section! {
    /// What a program is given, as it is written.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct ProgramKeys / ProgramLayer {
        /// the engine to run it on: `riscv` or `kvm`
        engine: Option<String> = None, optional(EngineName, "chosen by looking at the file");
        /// arguments behind the program's name
        args: Vec<String> = Vec::new(), array(string(), ("string", "strings"));
        /// environment variables. Nothing of the server's own environment reaches a guest
        env: Vec<(String, String)> = Vec::new(),
            entries("table of strings", variable, |(name, _)| name);
        /// whether Node, Bun and Python are made to draw random numbers anew in each request
        /// where they have seeded themselves before: by a variable of the environment, and a file in
        /// `/sandtide` ([Random numbers](sockets.md#random-numbers))
        reseed: bool = true, boolean();
        /// files and directories that the program may read, and where it sees them. Nothing else of
        /// the host's files exists for it, and neither `..` nor symbolic links lead out: a link leads
        /// where the program itself would find its text
        files: Vec<FileGrant> = Vec::new(),
            entries("table, guest path to host path", grant, |grant| &grant.guest);
        /// whether a dynamically linked program may read what such programs need of this machine:
        /// its libraries and the public data of its packages ([Programs for x86-64](kvm.md)). Other
        /// programs get nothing by this
        libraries: bool = true, boolean();
        /// whom the program may connect to, over TCP: a name and a port, `"*.example.com:443"` for all
        /// names below one, an address and a port, or a range of addresses (`"10.0.0.0/8:5432"`). The
        /// host looks names up; one that has a private address leads there only if that address is
        /// named too ([Egress](egress.md))
        egress: Vec<EgressRule> = Vec::new(), array(egress_rule(), ("host and port", "hosts and ports"));
        /// addresses of names, which are not looked up then. Such an address is the operator's own
        /// word: it may be a private one
        hosts: Vec<(String, IpAddr)> = Vec::new(),
            entries("table, name to IP address", host, |(name, _)| name);
        /// the working directory that the program starts in: a path as the program sees it
        directory: String = "/".to_owned(), guest_path();
        /// whether the program's code is translated to code of the host, or interpreted
        translate: Translate = Translate::default(), word();
    }
}

impl ProgramKeys {
    pub fn program(self, file: PathBuf) -> Program {
        let Self { engine, args, env, reseed, files, libraries, .. } = self;
        let Self { egress, hosts, directory, translate, .. } = self;
        Program {
            file,
            engine,
            args,
            env,
            reseed,
            files,
            libraries,
            egress,
            hosts,
            directory,
            translate,
        }
    }
}

impl ProgramLayer {
    /// The keys that are set, and where.
    pub fn set(&self) -> impl Iterator<Item = Placed<&'static str>> {
        let places = [
            ("engine", self.engine.as_ref().map(|key| key.place)),
            ("args", self.args.as_ref().map(|key| key.place)),
            ("env", self.env.as_ref().map(|key| key.place)),
            ("reseed", self.reseed.as_ref().map(|key| key.place)),
            ("files", self.files.as_ref().map(|key| key.place)),
            ("libraries", self.libraries.as_ref().map(|key| key.place)),
            ("egress", self.egress.as_ref().map(|key| key.place)),
            ("hosts", self.hosts.as_ref().map(|key| key.place)),
            ("directory", self.directory.as_ref().map(|key| key.place)),
            ("translate", self.translate.as_ref().map(|key| key.place)),
        ];
        places.into_iter().filter_map(|(value, place)| Some(Placed { value, place: place? }))
    }
}

impl Word for Translate {
    const WORDS: &'static [(&'static str, Self)] = &[("auto", Self::Auto), ("off", Self::Off)];
}

/// The name of an engine of this build.
struct EngineName;

impl Kind for EngineName {
    type Value = String;

    fn read(&self, value: &Value<'_>) -> Result<String, Mistakes> {
        let name = value.string()?;
        let engines = value.origin.context.surroundings.engines;
        if !engines.contains(&&*name) {
            let mistake = value.mistake(format_args!("there is no engine `{name}` in this build"));
            return Err(mistake.hint(suggest(&name, engines)).into());
        }
        Ok(name.into_owned())
    }

    fn describe(&self) -> String {
        "string".to_owned()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        json!({ "enum": definitions.engines })
    }

    fn show(&self, value: &String) -> Shown {
        Shown::Value(json!(value))
    }
}

fn variable(name: Placed<String>, value: &Value<'_>) -> Result<(String, String), Mistake> {
    let Placed { value: name, place } = name;
    if !is_env_name(&name) {
        let message = format!("`{name}` cannot be the name of a variable");
        return Err(Mistake::new(place, message).hint("it has no `=` and is not empty"));
    }
    Ok((name, value.string_without_nul()?.into_owned()))
}

/// Whether a text can be the name of an environment variable.
pub fn is_env_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Whom a program may connect to.
fn egress_rule() -> Parsed<EgressRule> {
    parsed("host and port", |value| {
        let text = value.string_without_nul()?;
        let rule = text.parse::<EgressRule>();
        rule.map_err(|error| value.mistake(&error).hint(error.hint()))
    })
}

fn host(name: Placed<String>, value: &Value<'_>) -> Result<(String, IpAddr), Mistake> {
    let Placed { value: name, place } = name;
    let Some(known) = host_name(&name) else {
        let message = format!("`{name}` is not a host name");
        return Err(Mistake::new(place, message).hint("write a name, such as `\"db.internal\"`"));
    };
    let text = value.string_without_nul()?;
    let address = text.parse().map_err(|_| {
        let mistake = value.mistake(format_args!("`{text}` is not an IP address"));
        mistake.hint("write an address, such as `\"10.0.0.5\"`")
    })?;
    Ok((known, address))
}

/// A path as the guest sees it.
fn guest_path() -> Parsed<String> {
    parsed("absolute path", |value| {
        let path = value.string_without_nul()?;
        if is_guest_path(&path) {
            return Ok(path.into_owned());
        }
        let mistake = value.mistake(format_args!("`{path}` cannot be a path of the guest"));
        Err(mistake.hint("it starts with `/` and has no `.` or `..` in it"))
    })
}

fn grant(guest: Placed<String>, host: &Value<'_>) -> Result<FileGrant, Mistake> {
    let Placed { value: guest, place } = guest;
    if !is_guest_path(&guest) {
        let message = format!("`{guest}` cannot be a path of the guest");
        let hint = "it starts with `/` and has no `.` or `..` in it";
        return Err(Mistake::new(place, message).hint(hint));
    }
    Ok(FileGrant { guest, host: host.path()?, public: false })
}

/// Whether a text is an absolute path without detours.
pub fn is_guest_path(path: &str) -> bool {
    !path.contains('\0')
        && path.starts_with('/')
        && !path.split('/').any(|part| part == "." || part == "..")
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}
