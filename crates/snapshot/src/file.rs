//! The file.
//!
//! ```text
//!  offset  bytes
//!       0      8  "sandtsnp"
//!       8      8  format, little-endian, as all numbers
//!      16      8  length of what it says of itself
//!      24      8  length of the state
//!      32      8  where the pages begin, a multiple of 4096
//!      40      8  length of the pages, a multiple of 4096
//!      48      8  XXH3 of all bytes before the pages but these
//!      56      8  zero
//!      64      …  what it says of itself, and a checksum for each 256 KiB of the pages (postcard)
//!       …      …  the state, which its engine knows
//!       …      …  zeros
//!       …      …  the pages, to the end of the file
//! ```

use std::{
    fs::File,
    hash::Hasher as _,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use rustix::fs::{FileType, Mode};
use sandtide_engine::Kept;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::{About, PAGE, PIECE, Unusable};

pub(crate) const MAGIC: &[u8; 8] = b"sandtsnp";
pub(crate) const FORMAT: u64 = 1;
pub(crate) const HEADER: usize = 64;

/// The longest part before the pages, in bytes: an engine's state has the scratch files in it.
const LONGEST_HEAD: u64 = 1 << 30;

/// Whether a file is a snapshot, by its first bytes.
pub fn is_snapshot(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// The first part of a file, behind the header.
#[derive(Serialize, Deserialize)]
pub(crate) struct Front {
    pub(crate) about: About,
    /// XXH3 of each piece of the pages.
    pub(crate) sums: Vec<u64>,
}

/// The numbers of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) front: u64,
    pub(crate) state: u64,
    pub(crate) pages_start: u64,
    pub(crate) pages_length: u64,
    pub(crate) checksum: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let Self { front, state, pages_start, pages_length, checksum } = *self;
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        let words = [FORMAT, front, state, pages_start, pages_length, checksum];
        for (place, word) in bytes[8..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; HEADER], size: u64) -> Result<Self, Wrong> {
        if !is_snapshot(bytes) {
            return Err(Wrong::Damaged("it is no snapshot"));
        }
        let words = bytes.as_chunks::<8>().0;
        let word = |index: usize| u64::from_le_bytes(words[index]);
        if word(1) != FORMAT {
            return Err(Wrong::Format(word(1)));
        }
        let this = Self {
            front: word(2),
            state: word(3),
            pages_start: word(4),
            pages_length: word(5),
            checksum: word(6),
        };
        let head = this
            .front
            .checked_add(this.state)
            .map_or(u64::MAX, |length| length.saturating_add(HEADER as u64));
        let is_right = head <= this.pages_start
            && this.pages_start <= LONGEST_HEAD
            && this.pages_start.is_multiple_of(PAGE)
            && this.pages_length.is_multiple_of(PAGE)
            && word(7) == 0;
        if !is_right {
            return Err(Wrong::Damaged("its header contradicts itself"));
        }
        if this.pages_start.checked_add(this.pages_length) != Some(size) {
            return Err(Wrong::Damaged("it is cut off"));
        }
        Ok(this)
    }
}

/// What is wrong with the bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Damaged(&'static str),
    Format(u64),
}

/// The checksum of everything in front of the pages: the header as it is without one, the rest.
pub(crate) fn checksum(head: &[u8]) -> u64 {
    let mut hash = XxHash3_64::with_seed(0);
    hash.write(&head[..48]);
    hash.write(&head[56..]);
    hash.finish()
}

/// Has the checksum of a file's bytes fit, for tests of what is behind it.
pub fn with_checksum(bytes: &mut [u8]) {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return };
    let mut start = [0; 8];
    start.copy_from_slice(&header[32..40]);
    let start = usize::try_from(u64::from_le_bytes(start)).unwrap_or(usize::MAX);
    if (HEADER..=bytes.len()).contains(&start) {
        let checksum = checksum(&bytes[..start]);
        bytes[48..56].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Reads what is in front of the pages.
pub(crate) fn decode(
    head: &[u8],
    size: u64,
) -> Result<(Header, Front, std::ops::Range<usize>), Wrong> {
    let Some(header) = head.first_chunk() else { return Err(Wrong::Damaged("it is cut off")) };
    let header = Header::decode(header, size)?;
    if head.len() as u64 != header.pages_start {
        return Err(Wrong::Damaged("it is cut off"));
    }
    if checksum(head) != header.checksum {
        return Err(Wrong::Damaged("its checksum is wrong"));
    }
    let front_end = HEADER + header.front as usize;
    let state = front_end..front_end + header.state as usize;
    let front: Front = match postcard::take_from_bytes(&head[HEADER..front_end]) {
        Ok((front, [])) => front,
        _ => return Err(Wrong::Damaged("it does not say what it is")),
    };
    if front.sums.len() as u64 != header.pages_length.div_ceil(PIECE) {
        return Err(Wrong::Damaged("it has not a checksum for each part"));
    }
    Ok((header, front, state))
}

/// A snapshot on disk, open.
pub struct SnapshotFile {
    path: PathBuf,
    file: Arc<File>,
    header: Header,
    front: Front,
    state: Bytes,
}

impl SnapshotFile {
    /// Opens a snapshot and checks everything in front of its pages.
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        let unreadable = |source: io::Error| Unusable::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let status = rustix::fs::fstat(&file).map_err(|error| unreadable(error.into()))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(unreadable(io::Error::other("it is not a file")));
        }
        if let Err(what) = belongs_to_us(status.st_uid, status.st_mode) {
            return Err(Unusable::Unsafe { path: path.to_owned(), what });
        }
        let wrong = |wrong| match wrong {
            Wrong::Damaged(what) => Unusable::Damaged { path: path.to_owned(), what },
            Wrong::Format(found) => {
                Unusable::Format { path: path.to_owned(), found, known: FORMAT }
            }
        };
        let size = u64::try_from(status.st_size).unwrap_or(0);
        let mut header = [0; HEADER];
        let length = read_up_to(&mut file, &mut header).map_err(unreadable)?;
        if length < HEADER {
            return Err(wrong(Wrong::Damaged("it is cut off")));
        }
        let numbers = Header::decode(&header, size).map_err(wrong)?;
        let mut head = vec![0; numbers.pages_start as usize];
        file.read_exact_at(&mut head, 0).map_err(unreadable)?;
        let (header, front, state) = decode(&head, size).map_err(wrong)?;
        let state = Bytes::from(head).slice(state);
        Ok(Self { path: path.to_owned(), file: Arc::new(file), header, front, state })
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.front.about
    }

    /// Bytes of memory that it has.
    pub fn pages_length(&self) -> u64 {
        self.header.pages_length
    }

    /// What tells this snapshot from all others.
    pub fn checksum(&self) -> u64 {
        self.header.checksum
    }

    /// It, for its engine.
    pub fn kept(&self) -> Kept {
        let recipe = &self.about().recipe;
        Kept {
            source: recipe.source(),
            limits: recipe.limits.clone(),
            state: self.state.clone(),
            file: Arc::clone(&self.file),
            pages_start: self.header.pages_start,
            pages_length: self.header.pages_length,
        }
    }

    /// Reads all pages, and says whether they are as they were written.
    pub fn check_pages(&self) -> Result<(), Unusable> {
        let mut piece = vec![0; PIECE as usize];
        let (mut at, end) = (0, self.header.pages_length);
        for sum in &self.front.sums {
            let piece = &mut piece[..PIECE.min(end - at) as usize];
            self.file
                .read_exact_at(piece, self.header.pages_start + at)
                .map_err(|source| Unusable::Read { path: self.path.clone(), source })?;
            if XxHash3_64::oneshot(piece) != *sum {
                let what = "the checksum of its memory is wrong";
                return Err(Unusable::Damaged { path: self.path.clone(), what });
            }
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Fills a buffer as far as there are bytes.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut bytes = Vec::with_capacity(buffer.len());
    file.take(buffer.len() as u64).read_to_end(&mut bytes)?;
    buffer[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}

/// Whether something belongs to our user or to root, and nobody else may write it.
pub fn belongs_to_us(owner: u32, mode: u32) -> Result<(), &'static str> {
    const ROOT: u32 = 0;
    if owner != rustix::process::geteuid().as_raw() && owner != ROOT {
        return Err("belongs to another user");
    }
    if Mode::from_raw_mode(mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err("can be written by others");
    }
    Ok(())
}
