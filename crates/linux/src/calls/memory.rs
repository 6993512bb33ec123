//! brk, munmap, mprotect, madvise and their kin. `mmap` and `mremap` are in `mapping`.

use crate::{
    Errno, GuestMemory, Host, PAGE, Protection,
    kernel::{Args, CallResult, DONE, Kernel, Stop, fail, value},
    space::{Area, Kind, TooManyAreas, page_up},
};

pub(super) const PROT_READ: u64 = 1;
pub(super) const PROT_WRITE: u64 = 2;
pub(super) const PROT_EXEC: u64 = 4;

impl From<TooManyAreas> for Stop {
    fn from(_: TooManyAreas) -> Self {
        Self::Errno(Errno::NOMEM)
    }
}

/// The protection that `PROT_` bits ask for.
pub(super) fn protection(bits: u64) -> Result<Protection, Errno> {
    if bits & !(PROT_READ | PROT_WRITE | PROT_EXEC) != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Protection {
        // No instruction set of ours has pages that can be written but not read.
        read: bits & (PROT_READ | PROT_WRITE) != 0,
        write: bits & PROT_WRITE != 0,
        execute: bits & PROT_EXEC != 0,
    })
}

pub(super) fn is_none(protection: Protection) -> bool {
    protection == Protection::default()
}

impl Kernel {
    /// The pages from `start` over `length` bytes, if they lie in the address space.
    pub(super) fn page_range(
        &self,
        start: u64,
        length: u64,
        outside: Errno,
    ) -> Result<(u64, u64), Errno> {
        if !start.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let end = page_up(length).and_then(|length| start.checked_add(length)).ok_or(outside)?;
        if end > self.space.end {
            return Err(outside);
        }
        Ok((start, end))
    }

    /// Unmaps whatever is mapped in a range.
    pub(super) fn unmap(
        &mut self,
        memory: &mut dyn GuestMemory,
        start: u64,
        end: u64,
    ) -> Result<(), Stop> {
        let areas: Vec<Area> = self.space.areas_in(start, end).collect();
        if areas.is_empty() {
            return Ok(());
        }
        self.space.change().remove(start, end)?;
        for area in areas.iter().filter(|area| area.kind.present) {
            memory.unmap(area.start, area.end - area.start);
        }
        Ok(())
    }

    /// Maps fresh zero pages in place of whatever is there.
    pub(super) fn map(
        &mut self,
        memory: &mut dyn GuestMemory,
        start: u64,
        end: u64,
        protection: Protection,
    ) -> Result<(), Stop> {
        self.unmap(memory, start, end)?;
        let present = !is_none(protection);
        self.space.change().insert(start, end, Kind::new(protection, present))?;
        if present {
            memory.map(start, end - start, protection);
        }
        Ok(())
    }
}

pub(crate) fn brk(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let (start, old, limit) = (kernel.space.brk_start, kernel.space.brk, kernel.space.brk_limit);
    let new = args[0];
    if new < start || new > limit {
        return value(old);
    }
    // `new` is at most the limit, a page boundary, so rounding cannot overflow.
    let (old_end, new_end) = (old.next_multiple_of(PAGE), new.next_multiple_of(PAGE));
    if new_end > old_end {
        let grow = new_end - old_end;
        if grow > host.memory.available() || !kernel.space.is_free(old_end, new_end) {
            return value(old);
        }
        let protection = Protection { read: true, write: true, execute: false };
        match kernel.map(host.memory, old_end, new_end, protection) {
            Ok(()) => {}
            Err(Stop::Errno(_)) => return value(old),
            Err(stop) => return Err(stop),
        }
    } else if new_end < old_end {
        kernel.unmap(host.memory, new_end, old_end)?;
    }
    kernel.space.change().brk = new;
    value(new)
}

pub(crate) fn munmap(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let (start, end) = kernel.page_range(args[0], args[1], Errno::INVAL)?;
    if start == end {
        return fail(Errno::INVAL);
    }
    kernel.unmap(host.memory, start, end)?;
    DONE
}

pub(crate) fn mprotect(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let protection = protection(args[2])?;
    let (start, end) = kernel.page_range(args[0], args[1], Errno::NOMEM)?;
    if start == end {
        return DONE;
    }
    if !kernel.space.is_mapped(start, end) {
        return fail(Errno::NOMEM);
    }
    let areas: Vec<Area> = kernel.space.areas_in(start, end).collect();
    let fresh: u64 =
        areas.iter().filter(|area| !area.kind.present).map(|area| area.end - area.start).sum();
    if protection.write && fresh > host.memory.available() {
        return fail(Errno::NOMEM);
    }
    if areas.iter().all(|area| area.kind.protection == protection) {
        return DONE;
    }
    let accessible = !is_none(protection);
    kernel.space.change().change(start, end, |kind| Kind {
        protection,
        present: kind.present || accessible,
        ..kind
    })?;
    for area in areas {
        let length = area.end - area.start;
        match area.kind.present {
            true => host.memory.protect(area.start, length, protection),
            false if accessible => host.memory.map(area.start, length, protection),
            false => {}
        }
    }
    DONE
}

pub(crate) fn madvise(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const DONTNEED: u64 = 4;
    const FREE: u64 = 8;
    const WIPEONFORK: u64 = 18;
    const KEEPONFORK: u64 = 19;
    const DONTNEED_LOCKED: u64 = 24;
    /// What changes nothing that a guest can see here.
    const ACCEPTED: [u64; 14] = [0, 1, 2, 3, FREE, 10, 11, 12, 13, 14, 15, 16, 17, 20];
    let (start, end) = kernel.page_range(args[0], args[1], Errno::NOMEM)?;
    let advice = args[2];
    if !matches!(advice, DONTNEED | DONTNEED_LOCKED | WIPEONFORK | KEEPONFORK) {
        return if ACCEPTED.contains(&advice) { DONE } else { fail(Errno::INVAL) };
    }
    if start == end {
        return DONE;
    }
    if !kernel.space.is_mapped(start, end) {
        return fail(Errno::NOMEM);
    }
    if matches!(advice, WIPEONFORK | KEEPONFORK) {
        let wiped = advice == WIPEONFORK;
        kernel.space.change().change(start, end, |kind| Kind { wiped, ..kind })?;
        return DONE;
    }
    for area in kernel.space.areas_in(start, end).filter(|area| area.kind.present) {
        host.memory.unmap(area.start, area.end - area.start);
        host.memory.map(area.start, area.end - area.start, area.kind.protection);
    }
    DONE
}

/// `msync`, `mlock`, `munlock`: nothing is ever paged out or written back.
pub(crate) fn mapped_only(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let start = args[0] / PAGE * PAGE;
    let length = args[1].saturating_add(args[0] % PAGE);
    let (start, end) = kernel.page_range(start, length, Errno::NOMEM)?;
    if start < end && !kernel.space.is_mapped(start, end) {
        return fail(Errno::NOMEM);
    }
    DONE
}

/// `mlockall`: nothing is ever paged out.
pub(crate) fn mlockall(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const FLAGS: u64 = 0b111;
    if args[0] == 0 || args[0] & !FLAGS != 0 { fail(Errno::INVAL) } else { DONE }
}

/// `mincore(start, length, vector)`: everything is there.
pub(crate) fn mincore(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let (start, end) = kernel.page_range(args[0], args[1], Errno::NOMEM)?;
    if start < end {
        if !kernel.space.is_mapped(start, end) {
            return fail(Errno::NOMEM);
        }
        host.memory.view_mut(args[2], (end - start) / PAGE)?.fill(1);
    }
    DONE
}

pub(crate) fn membarrier(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const QUERY: u32 = 0;
    /// Global and private expedited, with their registrations.
    const SUPPORTED: u64 = 0b1_1111;
    match args[0] as u32 {
        QUERY => value(SUPPORTED),
        // Threads share one processor: they see each other's writes in order as it is.
        command if command.is_power_of_two() && u64::from(command) & SUPPORTED != 0 => DONE,
        _ => fail(Errno::INVAL),
    }
}
