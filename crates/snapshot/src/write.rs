//! Writing a snapshot: whole, or not at all.

use std::{
    fs::{File, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use sandtide_engine::ToKeep;
use twox_hash::XxHash3_64;

use crate::{
    About, PAGE, PIECE,
    file::{Front, HEADER, Header, checksum},
};

/// Why a snapshot cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{path}`")]
pub struct WriteError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Writes a snapshot to a path, in place of what is there. The file that was there stays as it is
/// for those who have it open.
pub fn write(path: &Path, about: About, parts: &ToKeep<'_>) -> Result<(), WriteError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".unfinished-{}-{number}", std::process::id()));
    let unfinished = path.with_file_name(name);
    let result = write_to(&unfinished, about, parts).and_then(|()| {
        std::fs::rename(&unfinished, path)?;
        // The name is to outlast a loss of power as well.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    });
    result.map_err(|source| {
        let _ = std::fs::remove_file(&unfinished);
        WriteError { path: path.to_owned(), source }
    })
}

fn write_to(path: &Path, about: About, parts: &ToKeep<'_>) -> io::Result<()> {
    let (head, length) = head(about, parts)?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Said beforehand: there is room, or there is none.
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::empty(),
        0,
        head.len() as u64 + length,
    )
    .or_else(|error| match error {
        rustix::io::Errno::OPNOTSUPP => Ok(()),
        error => Err(error),
    })?;
    file.write_all(&head)?;
    parts.pages.iter().try_for_each(|pages| file.write_all(pages))?;
    // Nobody is to change it by mistake: it will be mapped.
    file.set_permissions(Permissions::from_mode(0o400))?;
    file.sync_all()
}

/// Everything in front of the pages, and how long those are.
fn head(about: About, parts: &ToKeep<'_>) -> io::Result<(Vec<u8>, u64)> {
    let length: u64 = parts.pages.iter().map(|pages| pages.len() as u64).sum();
    if !length.is_multiple_of(PAGE) {
        return Err(io::Error::other("half a page"));
    }
    let front = Front { about, sums: sums(parts) };
    let front = postcard::to_allocvec(&front).map_err(io::Error::other)?;
    let size = HEADER + front.len() + parts.state.len();
    let header = Header {
        front: front.len() as u64,
        state: parts.state.len() as u64,
        pages_start: (size as u64).next_multiple_of(PAGE),
        pages_length: length,
        checksum: 0,
    };
    let mut head = Vec::with_capacity(header.pages_start as usize);
    head.extend(header.encode());
    head.extend(front);
    head.extend_from_slice(&parts.state);
    head.resize(header.pages_start as usize, 0);
    let header = Header { checksum: checksum(&head), ..header };
    head[..HEADER].copy_from_slice(&header.encode());
    Ok((head, length))
}

/// The checksums of the pieces of the pages, which are not cut where the slices are.
fn sums(parts: &ToKeep<'_>) -> Vec<u64> {
    let (mut sums, mut piece) = (Vec::new(), Vec::with_capacity(PIECE as usize));
    for mut pages in parts.pages.iter().map(|pages| &**pages) {
        while !pages.is_empty() {
            let (now, later) = pages.split_at(pages.len().min(PIECE as usize - piece.len()));
            piece.extend_from_slice(now);
            pages = later;
            if piece.len() == PIECE as usize {
                sums.push(XxHash3_64::oneshot(&piece));
                piece.clear();
            }
        }
    }
    if !piece.is_empty() {
        sums.push(XxHash3_64::oneshot(&piece));
    }
    sums
}
