//! Which pages of a reservation this process has copies of its own of, as the kernel knows it.
//!
//! What is written to a private mapping is a copy, whoever has written it: translated code, a guest
//! under KVM, or a bug. So this is a witness who has not seen any of our own bookkeeping
//! ("pagemap" in the kernel's documentation of `/proc/PID`).

use std::{
    fs::File,
    io,
    ops::Range,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    sync::OnceLock,
};

use crate::{PAGE, Reservation};

/// How many pages, or ranges of them, the kernel is asked for at a time.
const BLOCK: usize = 4096;

fn pagemap() -> Option<&'static File> {
    static PAGEMAP: OnceLock<Option<File>> = OnceLock::new();
    PAGEMAP.get_or_init(|| File::open("/proc/self/pagemap").ok()).as_ref()
}

impl Reservation {
    /// The numbers of the pages of a range that this process has a copy of, in order; some that it has
    /// only read, as zero, may be among them. `None` if the kernel does not say.
    ///
    /// # Panics
    /// If the range is not inside the reservation.
    pub fn copies(&self, pages: Range<usize>) -> io::Result<Option<Vec<usize>>> {
        self.check(pages.start * PAGE, pages.len() * PAGE);
        let Some(pagemap) = pagemap() else { return Ok(None) };
        let first = self.base() as usize / PAGE;
        let inside = first + pages.start..first + pages.end;
        let mut found = match scan(pagemap, inside.clone()) {
            Some(found) => found,
            None => read(pagemap, inside)?,
        };
        found.iter_mut().for_each(|page| *page -= first);
        Ok(Some(found))
    }
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Asks for copies only: Linux 6.7 and later skip what is not there. `None` elsewhere.
fn scan(pagemap: &File, pages: Range<usize>) -> Option<Vec<usize>> {
    /// `_IOWR('f', 16, struct pm_scan_arg)`.
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
    const OF_FILE: u64 = 1 << 2;
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;
    const OF_ZERO: u64 = 1 << 5;
    let mut regions = vec![Region::default(); BLOCK];
    let mut found = Vec::new();
    let end = (pages.end * PAGE) as u64;
    let mut start = (pages.start * PAGE) as u64;
    while start < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: OF_FILE | OF_ZERO,
            category_mask: OF_FILE | OF_ZERO,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: PRESENT,
        };
        // SAFETY: the argument has the layout that the kernel knows under this number, which it also
        // tells by `size`; it writes at most `vec_len` regions to `vec`, and reads nothing of the
        // memory that it is asked about.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        let count = usize::try_from(count).ok().filter(|_| scan.walk_end > start)?;
        for Region { start, end, .. } in &regions[..count] {
            found.extend(*start as usize / PAGE..*end as usize / PAGE);
        }
        start = scan.walk_end;
    }
    Some(found)
}

/// Reads what there is of each page.
fn read(pagemap: &File, pages: Range<usize>) -> io::Result<Vec<usize>> {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    let mut found = Vec::new();
    let mut block = vec![0; BLOCK.min(pages.len()) * 8];
    for start in pages.clone().step_by(BLOCK) {
        let bytes = &mut block[..(pages.end - start).min(BLOCK) * 8];
        pagemap.read_exact_at(bytes, (start * 8) as u64)?;
        for (page, entry) in (start..).zip(bytes.as_chunks::<8>().0) {
            let entry = u64::from_le_bytes(*entry);
            if entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0 {
                found.push(page);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_ask_find_what_was_written() {
        let memory = Reservation::new(3 * BLOCK * PAGE).unwrap();
        let written = [0, 1, 7, BLOCK - 1, BLOCK, 2 * BLOCK + 5, 3 * BLOCK - 1];
        for page in written {
            // SAFETY: inside the reservation, which is the test's alone.
            unsafe { memory.base().add(page * PAGE).write(1) };
        }
        // SAFETY: as above. A page that is only read may be found or not.
        unsafe { memory.base().add(100 * PAGE).read_volatile() };
        let first = memory.base() as usize / PAGE;
        let is_written = |page: &usize| *page - first != 100;
        let all = first..first + 3 * BLOCK;
        let read: Vec<_> = read(pagemap().unwrap(), all.clone()).unwrap();
        assert_eq!(
            read.into_iter().filter(is_written).map(|page| page - first).collect::<Vec<_>>(),
            written
        );
        if let Some(found) = scan(pagemap().unwrap(), all) {
            assert_eq!(found.into_iter().map(|page| page - first).collect::<Vec<_>>(), written);
        }
        assert_eq!(memory.copies(BLOCK..2 * BLOCK).unwrap(), Some(vec![BLOCK]));
    }
}
