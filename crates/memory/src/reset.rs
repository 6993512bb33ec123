//! Putting a space back to its snapshot.

use std::io;

use crate::{
    Difference, Look, PAGE, Space,
    table::{PRIVATE, RECENT, WRITTEN},
};

/// After how many resets host memory that was not written in the meantime is given back.
pub const SHRINK_PERIOD: u32 = 64;

impl Space {
    /// Puts bytes and access of every page back to the snapshot. Costs a copy for each page
    /// written since the last reset, and nothing for the others.
    ///
    /// # Errors
    /// If the kernel refuses to take memory back; the space must not be used again.
    ///
    /// # Panics
    /// If the space was not made from a snapshot.
    pub fn reset(&mut self) -> io::Result<()> {
        let Some(snapshot) = self.snapshot.take() else { panic!("reset without a snapshot") };
        self.open_as_in(&snapshot)?;
        for &page in &self.written {
            let entry = self.table.get(page);
            if entry & WRITTEN == 0 {
                continue;
            }
            // SAFETY: a whole page inside the reservation; it is open, since a page that was written
            // and is not needed by the snapshot was just dealt with. `&mut self` makes the access
            // exclusive; the source is another mapping.
            unsafe {
                self.memory
                    .base()
                    .add(page.offset())
                    .cast::<[u8; PAGE]>()
                    .copy_from_nonoverlapping(snapshot.page_bytes(page), 1);
            }
            self.table.set(page, entry & !WRITTEN);
        }
        self.forget_written();
        self.restore_access(&snapshot)?;
        self.lasting.reset_from(snapshot.lasting());
        self.snapshot = Some(snapshot);
        self.resets = self.resets.wrapping_add(1);
        if self.resets.is_multiple_of(SHRINK_PERIOD) { self.shrink() } else { Ok(()) }
    }

    /// Gives back the host memory of pages that were not written since the last time.
    fn shrink(&mut self) -> io::Result<()> {
        let Self { private, table, memory, .. } = self;
        private.sort_unstable();
        private.dedup();
        let mut idle: Option<std::ops::Range<usize>> = None;
        let discard = |run: Option<std::ops::Range<usize>>| match run {
            Some(run) => memory.discard(run.start * PAGE, run.len() * PAGE),
            None => Ok(()),
        };
        let mut result = Ok(());
        private.retain(|&page| {
            let entry = table.get(page);
            if entry & (PRIVATE | RECENT) != PRIVATE {
                table.set(page, entry & !RECENT);
                return entry & PRIVATE != 0;
            }
            table.set(page, entry & !PRIVATE);
            match &mut idle {
                Some(run) if run.end == page.index() => run.end += 1,
                _ => {
                    let done = discard(idle.replace(page.index()..page.index() + 1));
                    result = std::mem::replace(&mut result, Ok(())).and(done);
                }
            }
            false
        });
        result.and(discard(idle))
    }

    /// How this space is not as the snapshot has it, if at all: the check behind "a reset restores
    /// everything", for tests.
    ///
    /// # Panics
    /// If the kernel does not let us look.
    pub fn differs_from_snapshot(&self) -> Option<Difference> {
        self.verify(&Look::ALL).unwrap_or_else(|error| panic!("cannot look: {error}"))
    }
}
