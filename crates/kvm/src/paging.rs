//! Where things lie in a sandbox's memory, and its page tables.
//!
//! Guest-virtual and guest-physical addresses are the same, and so is the offset into the host's
//! mapping of both: one number says where a page is for everybody.
//!
//! ```text
//!  0 ──────────── USER_END ───────── TABLES ──────────────────────────────── END
//!  │ the program  │ SYSTEM: stubs,   │ PML4, PDPT, system PD and PT │ PDs │ PTs │
//!  │              │ descriptors, …   │                                          │
//! ```
//!
//! The tables map every page of the program's part by an entry at a fixed place, so that the host
//! finds it by arithmetic. A PT is there for 2 MiB of which the program has used a page, and its PD
//! says so; the levels above never change. Entries are written with the accessed and dirty bits set,
//! because a processor that sets them writes to the tables.
//!
//! (AMD64 Architecture Programmer's Manual Vol. 2, 5.3 "Long-Mode Page Translation".)

use std::ops::Range;

use sandtide_linux::Protection;

/// The size of a page, in bytes.
pub(crate) const PAGE: u64 = 4096;

/// The end of the program's addresses: 64 GiB.
pub(crate) const USER_END: u64 = 1 << 36;

/// Where the pages of [`crate::stubs`] lie.
pub(crate) const SYSTEM: u64 = USER_END;

/// How many there are.
pub(crate) const SYSTEM_PAGES: u64 = 16;

/// Where the page tables lie.
pub(crate) const TABLES: u64 = SYSTEM + SYSTEM_PAGES * PAGE;

const PML4: u64 = TABLES;
const PDPT: u64 = PML4 + PAGE;
const SYSTEM_PD: u64 = PDPT + PAGE;
const SYSTEM_PT: u64 = SYSTEM_PD + PAGE;
const PDS: u64 = SYSTEM_PT + PAGE;
const PTS: u64 = PDS + (USER_END >> 30) * PAGE;

/// The end of a sandbox's memory.
pub(crate) const END: u64 = PTS + (USER_END >> 21) * PAGE;

/// What `CR3` holds.
pub(crate) const ROOT: u64 = PML4;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED_DIRTY: u64 = 0b11 << 5;
const NO_EXECUTE: u64 = 1 << 63;

const _: () = {
    assert!(USER_END.is_multiple_of(1 << 30) && SYSTEM >> 39 == 0 && END >> 39 == 0);
    assert!(SYSTEM_PAGES <= 512);
};

/// Where the entry of a page of the program lies.
pub(crate) const fn entry_address(page: u64) -> u64 {
    PTS + page * 8
}

/// The entry that lets the guest do with a page what `protection` says.
pub(crate) fn entry(page: u64, protection: Protection) -> u64 {
    let Protection { read, write, execute } = protection;
    if !(read || write || execute) {
        return 0;
    }
    (page * PAGE)
        | PRESENT
        | USER
        | ACCESSED_DIRTY
        | if write { WRITABLE } else { 0 }
        | if execute { 0 } else { NO_EXECUTE }
}

/// What the guest may do with a page of the system part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemPage {
    /// Ring 3 may read and execute it, nobody may write it.
    UserCode,
    /// Ring 3 may read it, nobody may write it.
    UserData,
    /// Ring 3 may read and write it.
    UserShared,
    /// Ring 0 may read and execute it.
    Code,
    /// Ring 0 may read it.
    Data,
    /// Ring 0 may read and write it.
    Stack,
}

impl SystemPage {
    fn bits(self) -> u64 {
        match self {
            Self::UserCode => USER,
            Self::UserData => USER | NO_EXECUTE,
            Self::UserShared => USER | WRITABLE | NO_EXECUTE,
            Self::Code => 0,
            Self::Data => NO_EXECUTE,
            Self::Stack => WRITABLE | NO_EXECUTE,
        }
    }
}

/// What the entry of an upper level has beside the table's address.
const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED_DIRTY;

/// How many pages a PT maps.
pub(crate) const TABLE_PAGES: u64 = PAGE / 8;

/// The PT with the entry of a page of the program, as the number of the page that it is.
pub(crate) const fn table_of(page: u64) -> u64 {
    PTS / PAGE + page / TABLE_PAGES
}

/// The pages whose entries a PT has.
pub(crate) const fn pages_of(table: u64) -> Range<u64> {
    let first = (table - PTS / PAGE) * TABLE_PAGES;
    first..first + TABLE_PAGES
}

/// Where the entry of a PT lies in its PD, and what it is.
pub(crate) const fn directory_entry(table: u64) -> (u64, u64) {
    (PDS + (table - PTS / PAGE) * 8, (table * PAGE) | TABLE)
}

/// Everything of the tables that never changes: hands `(address, entry)` to `put`.
pub(crate) fn fixed_entries(
    system: impl Iterator<Item = SystemPage>,
    mut put: impl FnMut(u64, u64),
) {
    put(PML4, PDPT | TABLE);
    for gigabyte in 0..USER_END >> 30 {
        put(PDPT + gigabyte * 8, (PDS + gigabyte * PAGE) | TABLE);
    }
    put(PDPT + (SYSTEM >> 30) * 8, SYSTEM_PD | TABLE);
    put(SYSTEM_PD, SYSTEM_PT | TABLE);
    for (index, page) in (0..SYSTEM_PAGES).zip(system) {
        put(
            SYSTEM_PT + index * 8,
            (SYSTEM + index * PAGE) | page.bits() | PRESENT | ACCESSED_DIRTY,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Walks as the processor does.
    fn walk(tables: &HashMap<u64, u64>, address: u64) -> Option<u64> {
        let mut table = ROOT;
        for level in [39, 30, 21, 12] {
            let entry = tables.get(&(table + (address >> level & 511) * 8))?;
            if entry & PRESENT == 0 {
                return None;
            }
            table = entry & 0x000f_ffff_ffff_f000;
        }
        Some(table | (address % PAGE))
    }

    #[test]
    fn a_page_is_found_where_the_host_writes_its_entry() {
        let mut tables = HashMap::new();
        fixed_entries([SystemPage::UserCode].into_iter(), |address, entry| {
            tables.insert(address, entry);
        });
        let all = Protection { read: true, write: true, execute: true };
        for address in [0x1000, 0x40_0123, (1 << 30) - 1, 5 << 30, USER_END - 1] {
            assert_eq!(walk(&tables, address), None);
            let page = address / PAGE;
            tables.extend([directory_entry(table_of(page))]);
            assert_eq!(entry_address(page) / PAGE, table_of(page));
            tables.insert(entry_address(page), entry(page, all));
            assert_eq!(walk(&tables, address), Some(address));
        }
        assert_eq!(walk(&tables, SYSTEM + 5), Some(SYSTEM + 5));
        assert_eq!(walk(&tables, SYSTEM + PAGE), None);
        assert_eq!(walk(&tables, TABLES), None, "the guest does not see its tables");
        assert!(tables.keys().all(|address| (TABLES..END).contains(address)));
    }

    #[test]
    fn no_right_is_no_entry() {
        assert_eq!(entry(5, Protection::default()), 0);
        let read = entry(5, Protection { read: true, ..Protection::default() });
        assert_eq!(read & (WRITABLE | NO_EXECUTE), NO_EXECUTE);
    }
}
