//! Guest programs, built by the binary under test.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use sha2::{Digest as _, Sha256};

use crate::{
    Run,
    binary::{sandtide, target, top},
};

/// The program made from a file in `tests/guests`; `None`, and a loud note, if this machine has
/// no compiler for guests. See [`built`].
pub fn guest(name: &str) -> Option<PathBuf> {
    built(&top().join("tests/guests").join(name))
}

/// The program that `sandtide build` makes from a source file. It is kept in cargo's target
/// directory, under the hash of all that it is made from.
///
/// # Panics
/// If it does not compile; and with `SANDTIDE_REQUIRE_TOOLCHAIN` set, if there is no compiler.
pub fn built(source: &Path) -> Option<PathBuf> {
    has_toolchain().then(|| built_by("auto", source))
}

/// As [`built`], with this compiler (`--compiler`), which must be here: see [`compilers`].
///
/// # Panics
/// If it does not compile.
pub fn built_by(compiler: &str, source: &Path) -> PathBuf {
    let name = source.file_stem().and_then(|name| name.to_str()).expect("sources have a name");
    let directory = target().join("guests");
    fs::create_dir_all(&directory).expect("the target directory is ours");
    let program = directory.join(format!("{name}-{compiler}-{}.elf", fingerprint(source)));
    // Tests run in parallel, in one process and in many.
    let lock = File::create(program.with_extension("lock")).expect("the target directory is ours");
    lock.lock().expect("files can be locked");
    if !program.is_file() {
        let unfinished = program.with_extension("unfinished");
        let mut command = sandtide();
        command.args(["build", "--compiler", compiler]).arg(source).arg("-o").arg(&unfinished);
        command.current_dir(top());
        let run = Run::of(&mut command, b"");
        assert_eq!(run.code, Some(0), "{command:?}\n{}{}", run.stdout, run.stderr);
        fs::rename(&unfinished, &program).expect("the build left a program");
    }
    program
}

/// Whether guests can be compiled here. Says so if not.
///
/// # Panics
/// If one of the two is missing, and `SANDTIDE_REQUIRE_TOOLCHAIN` is set.
pub fn has_toolchain() -> bool {
    let found = !compilers().is_empty();
    assert!(
        compilers().len() == 2 || env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(),
        "compilers for guests: {:?}, of zig and gnu\nhint: run `make setup` with \
         SANDTIDE_REQUIRE_TOOLCHAIN=1",
        compilers()
    );
    if !found {
        eprintln!("SKIPPED: no compiler for guests; run `make setup` for one");
    }
    found
}

/// The compilers for guests that this machine has, as `sandtide build` names them.
pub fn compilers() -> &'static [&'static str] {
    static FOUND: OnceLock<Vec<&str>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let works = |program: &Path, args: &[&str]| {
            Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
        };
        let zig = |python: &Path| works(python, &["-m", "ziglang", "version"]);
        let has_zig = zig(&top().join("build/venv/bin/python")) || zig(Path::new("python3"));
        let has_gnu = works(Path::new("riscv64-linux-gnu-g++"), &["--version"]);
        let all = [("zig", has_zig), ("gnu", has_gnu)];
        all.into_iter().filter_map(|(name, is_here)| is_here.then_some(name)).collect()
    })
}

/// A source file as a static program for this machine's own processor; `None`, and a loud note,
/// if that is none for the kvm engine, or there is no KVM or no compiler.
///
/// # Panics
/// If it does not compile; with `SANDTIDE_REQUIRE_KVM` set, if there is no KVM; and with
/// `SANDTIDE_REQUIRE_TOOLCHAIN` set, if there is no compiler.
pub fn native(source: &Path) -> Option<PathBuf> {
    (has_kvm() && has_native_compilers()).then(|| {
        let name = source.file_stem().and_then(|name| name.to_str()).expect("sources have a name");
        let is_c = source.extension().is_some_and(|kind| kind == "c");
        let directory = target().join("guests");
        fs::create_dir_all(&directory).expect("the target directory is ours");
        let program = directory.join(format!("{name}-native-{}.elf", fingerprint(source)));
        let lock = File::create(program.with_extension("lock")).expect("the directory is ours");
        lock.lock().expect("files can be locked");
        if !program.is_file() {
            let unfinished = program.with_extension("unfinished");
            let mut command = Command::new(if is_c { "cc" } else { "c++" });
            command.args(["-O2", "-static", "-pthread", "-w", "-Isdk/c", "-Isdk/cpp"]);
            command.arg(if is_c { "-std=gnu17" } else { "-std=c++17" });
            command.arg(source).arg("-o").arg(&unfinished).arg("-lm").current_dir(top());
            let run = Run::of(&mut command, b"");
            assert_eq!(run.code, Some(0), "{command:?}\n{}{}", run.stdout, run.stderr);
            fs::rename(&unfinished, &program).expect("the compiler left a program");
        }
        program
    })
}

/// Whether the kvm engine can run programs here, as the binary under test says.
pub fn has_kvm() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let run = Run::of(sandtide().args(["check", "--engines"]), b"");
        let found = run.stdout.lines().any(|line| line.starts_with("kvm  ok"));
        assert!(found || env::var_os("SANDTIDE_REQUIRE_KVM").is_none(), "no KVM: {}", run.stderr);
        if !found {
            eprintln!("SKIPPED: no KVM: {}", run.stderr);
        }
        found
    })
}

fn has_native_compilers() -> bool {
    let works = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found = ["cc", "c++"].iter().all(works);
    assert!(
        found || env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(),
        "no `cc` and `c++`\nhint: install g++"
    );
    if !found {
        eprintln!("SKIPPED: no `cc` and `c++`");
    }
    found
}

/// `qemu-riscv64`, if it is here; a loud note if not.
///
/// # Panics
/// If not, and `SANDTIDE_REQUIRE_QEMU` is set.
pub fn qemu() -> Option<&'static str> {
    let works = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found = ["qemu-riscv64", "qemu-riscv64-static"].into_iter().find(works);
    assert!(
        found.is_some() || env::var_os("SANDTIDE_REQUIRE_QEMU").is_none(),
        "no qemu-riscv64\nhint: run `make setup`, or install qemu-user"
    );
    if found.is_none() {
        eprintln!("SKIPPED: no qemu-riscv64; run `make setup` for it");
    }
    found
}

/// The hash of a source and of everything else that decides what is made from it.
fn fingerprint(source: &Path) -> String {
    static SHARED: OnceLock<Sha256> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let mut hash = Sha256::new();
        for directory in ["sdk", "crates/build/src"] {
            add_tree(&mut hash, &top().join(directory));
        }
        hash
    });
    let mut hash = shared.clone();
    add_file(&mut hash, source);
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn add_tree(hash: &mut Sha256, directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { add_tree(hash, &path) } else { add_file(hash, &path) }
    }
}

fn add_file(hash: &mut Sha256, path: &Path) {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}
