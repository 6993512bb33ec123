//! Names the engine: a hash of the sources that a snapshot on disk depends on. A snapshot that
//! another engine has made is never used.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    // This crate; the state of processes; what is said of programs; the versions of libraries, which
    // write it down.
    let sources =
        ["src", "../engine/src", "../linux/src", "../../Cargo.lock"].map(|path| own.join(path));
    let mut hash = Sha256::new();
    for source in &sources {
        println!("cargo:rerun-if-changed={}", source.display());
        add(&mut hash, source)?;
    }
    let digest = hash.finalize();
    let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo:rustc-env=SANDTIDE_KVM={name}");
    Ok(())
}

fn add(hash: &mut Sha256, path: &Path) -> Result<(), Box<dyn Error>> {
    if path.is_dir() {
        let mut entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        return entries.iter().try_for_each(|entry| add(hash, &entry.path()));
    }
    let content = fs::read(path)?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    for field in [name, &content] {
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    Ok(())
}
