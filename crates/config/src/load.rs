//! From files to a configuration.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use toml::de::DeTable;

use crate::{
    Config, ListenAddress, Problems, Tenant,
    context::{Context, Origin, Surroundings},
    groups::Groups,
    include::{Disk, Files, Includes, Nothing},
    problem::{self, Mistake, Placed},
    reader::Reader,
    root::{Included, Root},
    routes,
};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file was read, and is wrong, or a file that it includes is.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

/// Reads and checks a file and those that it includes. Relative paths in each start from its own
/// directory.
pub fn load(path: &Path, surroundings: &Surroundings<'_>) -> Result<Config, LoadError> {
    let text =
        Disk.read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let mut reading = Reading::new(path, surroundings, &Disk);
    Ok(reading.read(text, path.parent().unwrap_or(Path::new("")))?)
}

/// Checks the text of a file; does no I/O, and finds no other file for `include`. `name` is for
/// messages, `directory` is what relative paths start from.
pub fn parse(
    name: &str,
    text: &str,
    directory: &Path,
    surroundings: &Surroundings<'_>,
) -> Result<Config, Problems> {
    Reading::new(Path::new(name), surroundings, &Nothing).read(text.to_owned(), directory)
}

/// A configuration that is being read.
struct Reading<'a> {
    context: Context<'a>,
    files: &'a dyn Files,
    main: &'a Path,
    /// The files that were read, with their texts.
    texts: Vec<(PathBuf, String)>,
    /// Directories in which files may appear.
    directories: Vec<PathBuf>,
    /// Whether every file could be read; else what is missing may stand in one that could not.
    complete: bool,
}

impl<'a> Reading<'a> {
    fn new(main: &'a Path, surroundings: &Surroundings<'a>, files: &'a dyn Files) -> Self {
        Self {
            context: Context::new(*surroundings),
            files,
            main,
            texts: Vec::new(),
            directories: Vec::new(),
            complete: true,
        }
    }

    fn read(&mut self, text: String, directory: &Path) -> Result<Config, Problems> {
        let config = self.document(self.main.to_owned(), text, directory, Root::of).map(|root| {
            let mut root = root;
            self.include(&mut root, directory);
            self.assemble(root)
        });
        let findings = std::mem::take(&mut self.context.findings);
        match config {
            Some(config) if findings.is_empty() => Ok(config),
            _ => Err(findings.locate(&self.texts)),
        }
    }

    /// Reads a text that is TOML. What TOML itself could not read would only be found wrong a second
    /// time by `read`.
    fn document<T>(
        &mut self,
        path: PathBuf,
        text: String,
        directory: &Path,
        read: impl FnOnce(Reader<'_>) -> T,
    ) -> Option<T> {
        let file = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let origin = Origin { context: &self.context, file, directory: directory.to_owned() };
        let read = {
            let (document, errors) = DeTable::parse_recoverable(&text);
            for error in &errors {
                let message = error.message().trim().replace('\n', ", ");
                let place = origin.place(error.span().unwrap_or(0..0).start);
                origin.add(Mistake::new(place, message));
            }
            let reader = Reader::new("".into(), document.get_ref(), origin.place(0), &origin);
            errors.is_empty().then(|| read(reader))
        };
        self.complete &= read.is_some();
        self.texts.push((path, text));
        read
    }

    /// Adds the tenants and groups of the files that are included.
    fn include(&mut self, root: &mut Root, directory: &Path) {
        let mut includes = Includes::of(self.main, self.files);
        for pattern in &root.include {
            if let Err(error) = includes.add(directory, pattern, self.files) {
                let Placed { value: pattern, place } = pattern;
                let what = format!("`include`: `{pattern}` is not a pattern: {}", error.msg);
                self.context.findings.add(Mistake::new(*place, what));
                self.complete = false;
            }
        }
        self.directories = includes.directories;
        for Placed { value: path, place } in includes.files {
            let text = match self.files.read(&path) {
                Ok(text) => text,
                Err(error) => {
                    let what = format!("`include`: cannot read `{}`: {error}", path.display());
                    let hint = "name a file that exists, or a pattern such as `tenants.d/*.toml`";
                    self.context.findings.add(Mistake::new(place, what).hint(hint));
                    self.complete = false;
                    continue;
                }
            };
            let directory = path.parent().unwrap_or(Path::new("")).to_owned();
            if let Some(included) = self.document(path, text, &directory, Included::of) {
                root.groups.extend(included.groups);
                root.tenants.extend(included.tenants);
            }
        }
    }

    /// Checks the parts against each other, and gives each tenant what it inherits.
    fn assemble(&self, root: Root) -> Config {
        let Root { include: _, server, tls, admin, access_log, defaults, groups, tenants } = root;
        let findings = &self.context.findings;
        if tls.is_none() {
            for place in self.context.tls_listeners.borrow().iter() {
                let mistake = Mistake::new(*place, "`tls`: there is no certificate");
                findings.add(mistake.hint("add `[tls]` with `certificates`"));
            }
        }
        if let Some(Placed { value: admin, place }) = &admin
            && let address = ListenAddress::Tcp(admin.listen)
            && server.listen.iter().any(|listen| listen.address == address && !address.is_free())
        {
            let what = format!("`[admin]` and `[server]` both listen on {address}");
            findings.add(Mistake::new(*place, what).hint("give `[admin]` a port of its own"));
        }
        if tenants.is_empty() && findings.is_empty() {
            let mistake = Mistake::new(Default::default(), "no tenant is configured");
            findings.add(mistake.hint(
                "add one: `[tenants.hello]` with `program = \"hello.elf\"` and `default = true`",
            ));
        }
        self.check_names("group", groups.iter().map(|group| &group.name));
        self.check_names("tenant", tenants.iter().map(|tenant| &tenant.name));
        let named: Vec<_> = tenants.iter().filter_map(|tenant| tenant.group.clone()).collect();
        let groups = Groups::new(groups, defaults, self.complete, findings);
        named.iter().for_each(|group| groups.check(group, findings));
        routes::check(&tenants, findings);
        let tenants = tenants.into_iter().map(|tenant| {
            let group = tenant.group.as_ref().map(|group| group.value.clone());
            Tenant::of_entry(tenant, groups.base(group.as_deref()), findings)
        });
        Config {
            server,
            tls: tls.map(|tls| tls.check(findings)),
            admin: admin.map(|admin| admin.value),
            access_log,
            tenants: tenants.collect(),
            files: self
                .texts
                .iter()
                .map(|(path, _)| path)
                .chain(&self.directories)
                .cloned()
                .collect(),
        }
    }

    /// Notes names that stand in two files; within one, TOML does.
    fn check_names<'n>(&self, what: &str, names: impl Iterator<Item = &'n Placed<String>>) {
        let mut seen = HashMap::new();
        for Placed { value: name, place } in names {
            if let Some(first) = seen.insert(name, *place) {
                let message = format!("{what} `{name}` is there twice");
                let other = problem::show(first, &self.texts);
                let mistake = Mistake::new(*place, message);
                self.context.findings.add(mistake.hint(format!("the other is at {other}")));
            }
        }
    }
}
