//! What a dynamically linked program reads of this machine: its interpreter, its libraries and the
//! public data of packages.
//!
//! Each of these is there on any machine, readable for all of its users, and made by packages rather
//! than by the machine's owner. What tells one machine from another, such as accounts, keys, names and
//! addresses, is not among them; homes, `/srv`, `/var` and the rest of `/etc` are not either. A server that may
//! read more than others hands out what everybody may read.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use sandtide_engine::FileGrant;

/// What every such program may read, where it is there.
const SYSTEM: [&str; 22] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/share",
    "/usr/local/share",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
];

/// What belongs to a program in `PREFIX/bin`, below `PREFIX`.
const OWN: [&str; 4] = ["lib", "lib64", "share", "pyvenv.cfg"];

/// What a dynamically linked program is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    /// The program's own path, which is the same for the guest: libraries and data are found from
    /// there.
    pub path: String,
    /// What it may read, each at its own path.
    pub files: Vec<FileGrant>,
}

impl Libraries {
    /// For the program in a file.
    ///
    /// # Errors
    /// If the file is gone, or its path is no text.
    pub fn of(program: &Path) -> io::Result<Self> {
        let given = std::path::absolute(program)?;
        // Links on the way are part of what a program may want to know of itself.
        let real = program.canonicalize()?;
        let not_text = || io::Error::new(io::ErrorKind::InvalidInput, "the path is no UTF-8");
        let path = real.to_str().ok_or_else(not_text)?.to_owned();
        let mut files: Vec<FileGrant> =
            SYSTEM.iter().filter_map(|path| grant(Path::new(path), true)).collect();
        for program in [&real, &given] {
            let own = prefix(program)
                .into_iter()
                .flat_map(|prefix| OWN.iter().map(move |name| prefix.join(name)));
            files.extend(own.chain([program.clone()]).filter_map(|path| grant(&path, false)));
        }
        let mut seen = Vec::new();
        files.retain(|file| {
            let is_first = !seen.contains(&file.guest);
            seen.push(file.guest.clone());
            is_first
        });
        Ok(Self { path, files })
    }

    /// Adds what it may read to what a program was granted by name, which wins.
    pub fn add_to(self, files: &mut Vec<FileGrant>) {
        let own = self.files.into_iter();
        let new: Vec<_> =
            own.filter(|file| files.iter().all(|other| other.guest != file.guest)).collect();
        files.extend(new);
    }
}

/// The working directory, for a program that its user starts there: `None` where that would be a home
/// or more.
pub fn here() -> Option<FileGrant> {
    let directory = env::current_dir().ok()?;
    let home = env::var_os("HOME").map(PathBuf::from);
    if home.is_some_and(|home| home.starts_with(&directory)) || directory.parent().is_none() {
        return None;
    }
    grant(&directory, false)
}

/// A file or directory at its own path, if it is there; all of it, or only what is `public`.
fn grant(path: &Path, public: bool) -> Option<FileGrant> {
    let guest = path.to_str().filter(|guest| sandtide_config::is_guest_path(guest))?.to_owned();
    let host = path.to_owned();
    path.exists().then_some(FileGrant { guest, host, public })
}

/// `PREFIX` of `PREFIX/bin/program`, where that is a directory of programs only.
fn prefix(program: &Path) -> Option<&Path> {
    let directory = program.parent()?;
    let prefix = directory.parent()?;
    let home = env::var_os("HOME").map(PathBuf::from);
    let is_wide = prefix.parent().is_none() || home.is_some_and(|home| home.starts_with(prefix));
    (directory.ends_with("bin") && !is_wide).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_reads_its_own_libraries_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for path in ["app/bin", "app/lib", "app/secret", "venv/bin", "venv/lib"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("app/bin/program"), "").unwrap();
        fs::write(root.join("venv/pyvenv.cfg"), "").unwrap();
        let link = root.join("venv/bin/program");
        std::os::unix::fs::symlink(root.join("app/bin/program"), &link).unwrap();
        let libraries = Libraries::of(&link).unwrap();
        assert_eq!(Path::new(&libraries.path), root.join("app/bin/program"));
        let own: Vec<_> = libraries
            .files
            .iter()
            .filter_map(|file| file.host.strip_prefix(&root).ok()?.to_str())
            .collect();
        let expected =
            ["app/lib", "app/bin/program", "venv/lib", "venv/pyvenv.cfg", "venv/bin/program"];
        assert_eq!(own, expected);
        assert!(libraries.files.iter().all(|file| Path::new(&file.guest) == file.host));
    }

    #[test]
    fn what_was_granted_by_name_wins() {
        let grant = |guest: &str, host: &str| FileGrant {
            guest: guest.into(),
            host: host.into(),
            public: true,
        };
        let mut files = vec![grant("/lib", "/srv/lib")];
        let libraries = Libraries {
            path: String::new(),
            files: vec![grant("/lib", "/lib"), grant("/a", "/a")],
        };
        libraries.add_to(&mut files);
        assert_eq!(files, [grant("/lib", "/srv/lib"), grant("/a", "/a")]);
    }

    #[test]
    fn nothing_secret_is_on_the_list() {
        for path in SYSTEM.map(Path::new) {
            for secret in ["/etc/shadow", "/etc/ssl/private/key", "/root/.ssh", "/home/a", "/var"] {
                assert!(!Path::new(secret).starts_with(path), "{secret} in {}", path.display());
            }
        }
    }
}
