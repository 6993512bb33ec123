//! Files that programs map: what they hold is in memory once, for all sandboxes of all programs.
//!
//! A file's content is copied, into a sealed file in memory, which others find by its hash. The file
//! itself is not mapped: who may write it could change a program that runs, and who cut it short
//! would end the server with SIGBUS.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write as _},
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use rustix::fs::{FileType, MemfdFlags, SealFlags};
use sandtide_memory::Reservation;
use sha2::{Digest, Sha256};

use crate::{
    memory::{FILE, GUEST, HOST, IMAGE, Memory, page_range},
    paging::PAGE,
};

/// The longest file that is shared, and all files that a program can share together, in bytes. They
/// are held for the program, but do not count as its memory.
const LONGEST: u64 = if cfg!(test) { 4 << 20 } else { 256 << 20 };
const MOST: u64 = 4 * LONGEST;

/// Shorter ranges are not worth a mapping of their own.
pub(crate) const SHORTEST: u64 = 64 << 10;

type Hash = [u8; 32];

/// Content that does not change, whole pages of it.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: OwnedFd,
    hash: Hash,
    /// In bytes; what is behind it on its last page is zero.
    length: u64,
}

/// What there is, for as long as somebody has it.
static KNOWN: Mutex<Option<HashMap<Hash, Weak<SharedFile>>>> = Mutex::new(None);

/// Pages that show a part of a file.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) pages: Range<u64>,
    file: Arc<SharedFile>,
    /// The page of the file that the first one shows.
    first: u64,
}

/// A file that a program has mapped.
#[derive(Debug)]
pub(super) struct Known {
    /// As what the host knows it; `None` for what was part of another file.
    identity: Option<Identity>,
    file: Arc<SharedFile>,
}

#[cfg(test)]
impl Known {
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

/// What changes when a file does: device, inode, size, and when its content and inode were changed.
type Identity = (u64, u64, i64, (i64, i64), (i64, i64));

impl SharedFile {
    /// The content that `read` gives piece by piece, until it gives none.
    fn new(mut read: impl FnMut(&mut Vec<u8>) -> io::Result<()>) -> io::Result<Arc<Self>> {
        let mut file = File::from(rustix::fs::memfd_create(
            "sandtide-shared",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?);
        let (mut hash, mut length, mut piece) = (Sha256::new(), 0, Vec::new());
        loop {
            piece.clear();
            read(&mut piece)?;
            if piece.is_empty() {
                break;
            }
            hash.update(&piece);
            file.write_all(&piece)?;
            length += piece.len() as u64;
        }
        file.set_len(length.next_multiple_of(PAGE))?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let made = Self { file: file.into(), hash: hash.finalize().into(), length };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.retain(|_, file| file.strong_count() > 0);
        if let Some(there) = known.get(&made.hash).and_then(Weak::upgrade) {
            return Ok(there);
        }
        let made = Arc::new(made);
        known.insert(made.hash, Arc::downgrade(&made));
        Ok(made)
    }

    fn of_bytes(bytes: &[u8]) -> io::Result<Arc<Self>> {
        let mut pieces = bytes.chunks(1 << 20);
        Self::new(|piece| {
            piece.extend_from_slice(pieces.next().unwrap_or_default());
            Ok(())
        })
    }

    fn of_file(file: BorrowedFd<'_>) -> io::Result<Arc<Self>> {
        let mut offset = 0;
        Self::new(|piece| {
            piece.resize(1 << 20, 0);
            let count = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *piece, offset))?;
            piece.truncate(count);
            offset += count as u64;
            match offset > LONGEST {
                true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
                false => Ok(()),
            }
        })
    }

    fn pages(&self) -> u64 {
        self.length.div_ceil(PAGE)
    }
}

impl Placed {
    /// A part of it.
    pub(super) fn part(&self, pages: Range<u64>) -> Self {
        assert!(self.pages.start <= pages.start && pages.end <= self.pages.end, "no part");
        let first = self.first + (pages.start - self.pages.start);
        Self { pages, file: Arc::clone(&self.file), first }
    }

    pub(super) fn map_into(&self, memory: &Reservation, writable: bool) -> io::Result<()> {
        let length = (self.pages.end - self.pages.start) * PAGE;
        memory.map_file(
            (self.pages.start * PAGE) as usize,
            length as usize,
            self.file.file.as_fd(),
            self.first * PAGE,
            super::freeze::access(writable),
        )
    }
}

impl Memory {
    /// A number for the content of a file, if it can be shared. Sandboxes share what their
    /// snapshot has, and no more: a reset would have to undo it, and somebody waits while a file is
    /// read.
    pub(super) fn share(&mut self, file: BorrowedFd<'_>) -> Option<usize> {
        let stat = rustix::fs::fstat(file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let fits = (SHORTEST..=LONGEST).contains(&u64::try_from(stat.st_size).ok()?);
        if self.snapshot.is_some() || !is_file || !fits {
            return None;
        }
        // A loader maps each library several times.
        let changed = (stat.st_mtime, stat.st_mtime_nsec as i64);
        let moved = (stat.st_ctime, stat.st_ctime_nsec as i64);
        let identity = Some((stat.st_dev, stat.st_ino, stat.st_size, changed, moved));
        match self.files.iter().position(|known| known.identity == identity) {
            Some(at) => Some(at),
            None => self.keep(identity, SharedFile::of_file(file).ok()?),
        }
    }

    fn keep(&mut self, identity: Option<Identity>, file: Arc<SharedFile>) -> Option<usize> {
        let held: u64 = self.files.iter().map(|known| known.file.length).sum();
        if held + file.length > MOST {
            return None;
        }
        self.files.push(Known { identity, file });
        Some(self.files.len() - 1)
    }

    /// Puts pages of a shared file, as far as it has them, in place of pages that were mapped.
    pub(super) fn place(&mut self, file: usize, start: u64, length: u64, offset: u64) -> bool {
        let Some(known) = self.files.get(file) else { return false };
        let file = Arc::clone(&known.file);
        let range = page_range(start, length);
        let first = offset / PAGE;
        let count = (range.end - range.start).min(file.pages().saturating_sub(first));
        if count == 0 {
            return true;
        }
        let placed = Placed { pages: range.start..range.start + count, file, first };
        if self.remove_shared(placed.pages.clone()).is_err()
            || placed.map_into(&self.host, true).is_err()
        {
            return false;
        }
        let pages = placed.pages.clone();
        for page in pages {
            self.forget(page);
            self.table[page as usize] |= FILE;
        }
        self.placed.push(placed);
        true
    }

    /// Shows bytes of a program's file at an address, those that fill pages, if they are worth it:
    /// the pages are shared with all who have the same. The addresses of what was put there.
    pub(crate) fn initialise_shared(
        &mut self,
        address: u64,
        bytes: &[u8],
    ) -> io::Result<Range<u64>> {
        let start = address.next_multiple_of(PAGE);
        let end = (address + bytes.len() as u64) / PAGE * PAGE;
        let length = end.saturating_sub(start);
        if !(SHORTEST..=LONGEST).contains(&length) {
            return Ok(address..address);
        }
        let from = (start - address) as usize;
        let file = SharedFile::of_bytes(&bytes[from..from + length as usize])?;
        let file = self.keep(None, file);
        Ok(match file.is_some_and(|file| self.place(file, start, length, 0)) {
            true => start..end,
            false => address..address,
        })
    }

    /// Makes pages that show files show none. They are zero afterwards. Before there is a snapshot.
    pub(super) fn remove_shared(&mut self, range: Range<u64>) -> io::Result<()> {
        if !self.placed.iter().any(|placed| overlap(&placed.pages, &range).is_some()) {
            return Ok(());
        }
        let mut kept = Vec::new();
        for placed in std::mem::take(&mut self.placed) {
            let Some(both) = overlap(&placed.pages, &range) else {
                kept.push(placed);
                continue;
            };
            let length = (both.end - both.start) * PAGE;
            self.host.map_zero((both.start * PAGE) as usize, length as usize)?;
            for page in both.clone() {
                self.forget(page);
                self.table[page as usize] &= !FILE;
            }
            let parts = [placed.pages.start..both.start, both.end..placed.pages.end];
            kept.extend(
                parts.into_iter().filter(|part| !part.is_empty()).map(|part| placed.part(part)),
            );
        }
        self.placed = kept;
        Ok(())
    }

    /// A page holds no longer what was written to it.
    fn forget(&mut self, page: u64) {
        let entry = &mut self.table[page as usize];
        self.fresh -= u64::from(*entry & (GUEST | HOST) != 0 && *entry & IMAGE == 0);
        *entry &= !(GUEST | HOST);
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}
