//! The dispatcher: runs a thread in host code where there is some, and interprets the rest.
#![allow(unsafe_code, reason = "fills in the frame, and enters host code")]

use sandtide_memory::Space;

use super::{
    Translation, flags,
    frame::{Frame, NO_SITE, leave},
    helpers, native, stack,
    table::Entry,
};
use crate::isa::{Code, Cpu, Exit, Session, run, run_until};

/// So many instructions are interpreted at most before the caller is asked again: budgets are made
/// for host code, which is several times as fast.
const PIECE: u64 = 10_000;

/// And so many pages are written for the first time, each of which may be a page fault of the host.
/// [`helpers`] leave host code then.
pub(super) const MOST_PAGES: usize = 64;

/// As [`isa::run`](crate::isa::run), with the same results: the same registers, memory, exits and
/// counts. But it may end before the budget does, if that takes long.
pub(crate) fn run_some(
    translation: Option<&Translation>,
    cpu: &mut Cpu,
    space: &mut Space,
    code: &Code,
    budget: &mut u64,
) -> Exit {
    let Some(translation) = translation else {
        return in_piece(budget, |budget| run(cpu, space, code, budget));
    };
    let pages = space.written_pages();
    loop {
        if !is_usual(cpu, space) {
            return in_piece(budget, |budget| run(cpu, space, code, budget));
        }
        if let Some(entry) = translation.entries.at(cpu.pc) {
            match translation.enter(entry, cpu, space, budget) {
                leave::BUDGET => {
                    // It is translated code none the less.
                    let left = *budget;
                    let exit = run(cpu, space, code, budget);
                    cpu.translated += left - *budget;
                    return exit;
                }
                leave::INTERPRET if space.written_pages() - pages >= MOST_PAGES => {
                    return Exit::Budget;
                }
                leave::INTERPRET => {}
                // Somewhere else, or with the host's stack used up: again from here.
                _ => continue,
            }
        }
        let entries = &translation.entries;
        match in_piece(budget, |budget| run_until(cpu, space, code, budget, entries)) {
            Exit::Entry => {}
            exit => return exit,
        }
    }
}

/// As [`run_some`], until the budget is used up or there is another reason.
#[cfg(test)]
pub(crate) fn run_translated(
    translation: Option<&Translation>,
    cpu: &mut Cpu,
    space: &mut Space,
    code: &Code,
    budget: &mut u64,
) -> Exit {
    loop {
        match run_some(translation, cpu, space, code, budget) {
            Exit::Budget if *budget > 0 => {}
            exit => return exit,
        }
    }
}

/// Whether translated code is right: it rounds to nearest, is that of the file, and leaves the check
/// of loads to the host.
fn is_usual(cpu: &Cpu, space: &Space) -> bool {
    cpu.frm == 0 && space.code_is_pristine() && space.is_mirrored()
}

/// Interprets with a part of a budget.
fn in_piece(budget: &mut u64, interpret: impl FnOnce(&mut u64) -> Exit) -> Exit {
    let granted = (*budget).min(PIECE);
    let mut piece = granted;
    let exit = interpret(&mut piece);
    *budget -= granted - piece;
    exit
}

impl Translation {
    /// Enters host code, and brings registers and budget up to date when it comes back to where there
    /// is none. Tells why.
    fn enter(&self, mut entry: Entry, cpu: &mut Cpu, space: &mut Space, budget: &mut u64) -> u64 {
        let granted = (*budget).min(i64::MAX as u64) as i64;
        let (frame, base) = native::frame_of(space);
        let cpu: *mut Cpu = cpu;
        let space: *mut Space = space;
        let mut session = Session::new();
        session.open();
        // SAFETY: the frame is part of the space, which lives and is ours alone; it is aligned to
        // a page. `cpu` and `space` come from exclusive references that are not used until the
        // call is over, other than by helpers.
        unsafe {
            let Frame { x, f, .. } = &mut *frame;
            x.copy_from_slice(&(&(*cpu).x)[..32]);
            *f = (*cpu).f;
            (*frame).left = granted;
            (*frame).stack_limit = stack::limit();
            (*frame).numbers = self.entries.numbers.as_ptr();
            (*frame).entries = self.entries.entries.as_ptr();
            (*frame).space = space;
            (*frame).cpu = cpu;
            (*frame).fflags = &raw const (*cpu).fflags;
            (*frame).functions = helpers::addresses();
            (*frame).helpers = self.helpers;
            (*frame).flags_of_host = flags::FLAGS_OF_HOST;
            ((*frame).code, (*frame).code_length) = self.code.range();
            (*frame).site = NO_SITE;
            (*frame).sites = &raw const self.sites;
        }
        let next = loop {
            // SAFETY: as above, and the frame is filled in.
            let (next, is_usual) = unsafe {
                (*frame).resume = entry.resume;
                let left = if entry.resume == 0 { (*frame).left } else { -1 };
                let next = self.code.enter(base, entry.function, left);
                (next, is_usual(&*cpu, &*space))
            };
            // A guest that returns farther than the host can, or has used up the host's stack, goes
            // on with its registers where they are.
            let pc = match next & leave::MASK {
                leave::STACK => next & !leave::MASK,
                _ => next,
            };
            match self.entries.at(pc) {
                Some(next) if is_usual => entry = next,
                _ => break next,
            }
        };
        // SAFETY: as above; the call is over.
        let (cpu, frame) = unsafe { (&mut *cpu, &mut *frame) };
        session.harvest(cpu);
        cpu.x[..32].copy_from_slice(&frame.x);
        cpu.f = frame.f;
        let left = frame.left.max(0);
        let retired = (granted - left) as u64;
        *budget -= retired;
        cpu.instret = cpu.instret.wrapping_add(retired);
        cpu.translated = cpu.translated.wrapping_add(retired);
        cpu.pc = next & !leave::MASK;
        if next & 1 == 0 {
            cpu.pc = next;
            return 0;
        }
        next & leave::MASK
    }
}
