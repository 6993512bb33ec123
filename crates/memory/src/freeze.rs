//! The frozen memory of a program.

use std::{
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt as _,
    },
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::ProtFlags,
};

use crate::{
    PAGE, PAGES, SPACE, Space,
    lasting::Lasting,
    mirror,
    reservation::Reservation,
    table::{ACCESS, IMAGE, PageNumber, PageTable, WRITTEN},
};

/// Zero pages between two runs of a snapshot that are stored, to have fewer mappings.
const LARGEST_GAP: usize = 4;

/// Consecutive pages, and where they stand in the file.
struct Run {
    first: usize,
    pages: usize,
    file_offset: u64,
}

/// The memory of a program at the point where it waits for a request. Immutable and shared by all
/// of the program's sandboxes.
///
/// ```text
///   memfd, sealed:  page table (1 MiB, sparse) │ run │ run │ …
/// ```
pub struct Snapshot {
    file: OwnedFd,
    runs: Vec<Run>,
    image_pages: usize,
    /// The pages that the guest may read.
    open: Vec<Range<usize>>,
    lasting: Lasting,
    /// The same memory, mapped for reading: what a reset copies from.
    view: Reservation,
    table: PageTable,
}

impl Space {
    /// Freezes what the space holds now.
    ///
    /// # Panics
    /// If the space was itself made from a snapshot.
    pub fn freeze(&self) -> io::Result<Snapshot> {
        assert!(self.snapshot.is_none(), "a snapshot of a snapshot");
        let hidden = self.open_hidden(0..PAGES)?;
        let snapshot = self.freeze_open()?;
        self.close_again(hidden)?;
        Ok(snapshot)
    }

    /// Freezes a space whose written pages are open.
    fn freeze_open(&self) -> io::Result<Snapshot> {
        let holds =
            |page: &PageNumber| self.table.get(*page) & WRITTEN != 0 && !self.is_zero(*page);
        let mut pages: Vec<PageNumber> = self.written.iter().copied().filter(holds).collect();
        pages.sort_unstable();
        pages.dedup();

        let runs = runs_of(&pages);
        let file = File::from(rustix::fs::memfd_create(
            "sandtide-snapshot",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?);
        let length = PageTable::SIZE + runs.iter().map(|run| run.pages * PAGE).sum::<usize>();
        file.set_len(length as u64)?;
        self.write_table(&file, &pages)?;
        for run in &runs {
            // Pages in gaps stay the zeros that the file begins with: the host may perhaps not read
            // them here.
            let from = pages.partition_point(|page| page.index() < run.first);
            let inside =
                pages[from..].iter().take_while(|page| page.index() < run.first + run.pages);
            for page in inside {
                let offset = run.file_offset + ((page.index() - run.first) * PAGE) as u64;
                file.write_all_at(self.page_bytes(*page), offset)?;
            }
        }
        rustix::fs::fcntl_add_seals(
            &file,
            SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
        )?;

        let snapshot = Snapshot {
            file: file.into(),
            image_pages: pages.len(),
            runs,
            open: mirror::readable(&self.table),
            lasting: self.lasting.clone(),
            view: Reservation::new(SPACE)?,
            table: PageTable::new()?,
        };
        snapshot.map_runs(&snapshot.view, ProtFlags::READ)?;
        snapshot.map_table(&snapshot.table, ProtFlags::READ)?;
        Ok(snapshot)
    }

    /// Writes the entries that are not zero, a page of the table at a time.
    fn write_table(&self, file: &File, image: &[PageNumber]) -> io::Result<()> {
        for first in (0..PageTable::SIZE).step_by(PAGE) {
            let mut entries = [0; PAGE];
            for (index, entry) in entries.iter_mut().enumerate() {
                *entry = self.table.get(PageNumber::new(first + index)) & ACCESS;
            }
            let from = image.partition_point(|page| page.index() < first);
            for page in image[from..].iter().take_while(|page| page.index() < first + PAGE) {
                entries[page.index() - first] |= IMAGE;
            }
            if entries != [0; PAGE] {
                file.write_all_at(&entries, first as u64)?;
            }
        }
        Ok(())
    }

    fn is_zero(&self, page: PageNumber) -> bool {
        *self.page_bytes(page) == [0; PAGE]
    }

    pub(crate) fn page_bytes(&self, page: PageNumber) -> &[u8; PAGE] {
        // SAFETY: a whole page inside the reservation, which the caller knows to be open; `&self`
        // keeps writers away.
        unsafe { &*self.memory.base().add(page.offset()).cast::<[u8; PAGE]>() }
    }
}

impl Snapshot {
    pub(crate) fn image_pages(&self) -> usize {
        self.image_pages
    }

    pub(crate) fn lasting(&self) -> &Lasting {
        &self.lasting
    }

    /// The bytes that a page had; zero for one that the snapshot has no bytes for.
    #[inline]
    pub(crate) fn page_bytes(&self, page: PageNumber) -> &[u8; PAGE] {
        // SAFETY: a whole page inside the view, which is mapped while `self` lives and which
        // nothing writes: the file is sealed and the rest stays zero.
        unsafe { &*self.view.base().add(page.offset()).cast::<[u8; PAGE]>() }
    }

    /// What the guest might do with each page, and `IMAGE`.
    pub(crate) fn table(&self) -> &PageTable {
        &self.table
    }

    /// The table entry that a page had: access and `IMAGE`.
    #[inline]
    pub(crate) fn entry(&self, page: PageNumber) -> u8 {
        self.table.get(page)
    }

    /// Maps the frozen pages and their table into a new space. The pages are closed.
    pub(crate) fn map_into(&self, memory: &Reservation, table: &PageTable) -> io::Result<()> {
        self.map_runs(memory, ProtFlags::empty())?;
        self.map_table(table, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// The pages that the guest may read.
    pub(crate) fn open(&self) -> &[Range<usize>] {
        &self.open
    }

    /// Borders between pages that the guest may read and others.
    pub(crate) fn borders(&self) -> usize {
        2 * self.open.len()
    }

    fn map_runs(&self, memory: &Reservation, protection: ProtFlags) -> io::Result<()> {
        self.runs.iter().try_for_each(|run| {
            memory.map_file(
                run.first * PAGE,
                run.pages * PAGE,
                self.file.as_fd(),
                run.file_offset,
                protection,
            )
        })
    }

    fn map_table(&self, table: &PageTable, protection: ProtFlags) -> io::Result<()> {
        table.memory().map_file(0, PageTable::SIZE, self.file.as_fd(), 0, protection)
    }
}

/// Joins sorted pages to runs, across small gaps.
fn runs_of(pages: &[PageNumber]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for page in pages.iter().map(|page| page.index()) {
        match runs.last_mut() {
            Some(run) if page - (run.first + run.pages) <= LARGEST_GAP => {
                run.pages = page + 1 - run.first;
            }
            _ => runs.push(Run { first: page, pages: 1, file_offset: 0 }),
        }
    }
    let mut file_offset = PageTable::SIZE as u64;
    for run in &mut runs {
        run.file_offset = file_offset;
        file_offset += (run.pages * PAGE) as u64;
    }
    runs
}
