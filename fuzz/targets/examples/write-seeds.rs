//! Writes the seeds that targets make in code to `DIRECTORY/<target>/`, for cargo-fuzz.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let Some(directory) = env::args_os().nth(1) else {
        return Err(io::Error::other("usage: write-seeds DIRECTORY"));
    };
    for target in sandtide_fuzz_targets::TARGETS {
        let folder = Path::new(&directory).join(target.name);
        fs::create_dir_all(&folder)?;
        for (index, seed) in (target.seeds)().into_iter().enumerate() {
            fs::write(folder.join(format!("made-{index}")), seed)?;
        }
    }
    Ok(())
}
