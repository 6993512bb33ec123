//! Ways to undo what a request has written, side by side: the same requests write N of M pages, drawn
//! anew for each, eight words a page.
//!
//! * `marked`: stores look in the page table and note the page; a reset copies exactly those. What
//!   the server does, through its own [`Space`].
//! * `working-set`: the host protects pages; the first write to one faults and opens it. A reset
//!   copies all pages that are open, since which of them were written is not known, and every 64
//!   resets all are protected again.
//! * `protected`: the same, and protected again at every reset, which so copies exactly what was
//!   written, at the price of a fault for each.
//!
//! Prints JSON lines; all times are CPU time of the thread.
#![allow(unsafe_code, reason = "an experiment with page protection, in no server")]

use std::{
    io,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect},
    time::{ClockId, clock_gettime},
};
use sandtide_memory::{Access, PAGE, SHRINK_PERIOD, Space};

/// Where the pages lie in the guest's addresses.
const START: u32 = 0x10_0000;

const WORDS: usize = 8;

/// Requests between two looks at the clock: whole periods of the shrinking.
const REQUESTS: u32 = 8 * SHRINK_PERIOD;

/// How often each way is measured, in turn with the others.
const ROUNDS: usize = 7;

fn main() -> anyhow::Result<()> {
    // Of hello it is always the same page.
    for (name, written, pages) in [
        ("hello", 1, 1),
        ("1-of-64", 1, 64),
        ("8-of-64", 8, 64),
        ("64-of-64", 64, 64),
        ("1-of-512", 1, 512),
        ("8-of-512", 8, 512),
        ("64-of-512", 64, 512),
    ] {
        let mut ways: [(&str, Box<dyn Pages>); 3] = [
            ("marked", Box::new(Marked::new(pages)?)),
            ("working-set", Box::new(Protected::new(pages, SHRINK_PERIOD)?)),
            ("protected", Box::new(Protected::new(pages, 1)?)),
        ];
        let mut times = [const { Vec::new() }; 3];
        let mut per_request = [(0.0, 0.0); 3];
        for round in 0..=ROUNDS {
            for (number, (_, way)) in ways.iter_mut().enumerate() {
                let (time, faults, copied) = run(&mut **way, written, pages)?;
                // The first warms up.
                if round > 0 {
                    times[number].push(time.as_nanos() as f64 / f64::from(REQUESTS));
                    per_request[number] = (faults, copied);
                }
            }
        }
        for (number, (way, _)) in ways.iter().enumerate() {
            times[number].sort_by(f64::total_cmp);
            let (faults, copied) = per_request[number];
            for (metric, value, unit) in [
                ("request", times[number][ROUNDS / 2], "ns"),
                ("faults", faults, "faults/request"),
                ("copied", copied, "pages/request"),
            ] {
                print(&format!("resets/{name}/{way}"), metric, value, unit);
            }
        }
    }
    print("resets", "fault", fault()?, "ns");
    Ok(())
}

fn print(bench: &str, metric: &str, value: f64, unit: &str) {
    let line =
        serde_json::json!({ "bench": bench, "metric": metric, "value": value, "unit": unit });
    println!("{line}");
}

/// Memory that requests write, and how it comes back.
trait Pages {
    /// Writes a few words of a page.
    fn write(&mut self, page: usize, value: u64);
    /// Undoes all writes. Tells how many pages were copied for that.
    fn reset(&mut self) -> io::Result<usize>;
    /// Whether all is as it was.
    fn is_clean(&self) -> bool;
}

/// Time for [`REQUESTS`], faults and copied pages for each.
fn run(pages: &mut dyn Pages, written: usize, of: usize) -> anyhow::Result<(Duration, f64, f64)> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (start, faults, mut copied) = (cpu_time(), FAULTS.load(Ordering::Relaxed), 0);
    for request in 0..REQUESTS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // An odd step goes through all pages: their number is a power of two.
        let (first, step) = (random as usize, (random >> 32) as usize | 1);
        for number in 0..written {
            pages.write(first.wrapping_add(number * step) % of, u64::from(request));
        }
        copied += pages.reset()?;
    }
    let time = cpu_time() - start;
    anyhow::ensure!(pages.is_clean(), "a reset left something behind");
    let per = |count: usize| count as f64 / f64::from(REQUESTS);
    Ok((time, per(FAULTS.load(Ordering::Relaxed) - faults), per(copied)))
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a page holds in the beginning.
fn content(page: usize) -> [u8; PAGE] {
    [page as u8 | 1; PAGE]
}

/// The server's own way.
struct Marked(Space);

impl Marked {
    fn new(pages: usize) -> anyhow::Result<Self> {
        let limit = (pages * PAGE * 4) as u64;
        let mut space = Space::new(limit)?;
        space.map(u64::from(START), (pages * PAGE) as u64, Access::WRITE);
        for page in 0..pages {
            space.initialise(START + (page * PAGE) as u32, &content(page))?;
        }
        Ok(Self(Space::from_snapshot(Arc::new(space.freeze()?), limit)?))
    }
}

impl Pages for Marked {
    fn write(&mut self, page: usize, value: u64) {
        for word in 0..WORDS {
            let address = START + (page * PAGE + word * PAGE / WORDS) as u32;
            let stored = self.0.store(std::hint::black_box(address), value.to_le_bytes());
            debug_assert!(stored.is_ok());
        }
    }

    fn reset(&mut self) -> io::Result<usize> {
        let copied = self.0.written_pages();
        self.0.reset()?;
        Ok(copied)
    }

    fn is_clean(&self) -> bool {
        self.0.differs_from_snapshot().is_none()
    }
}

/// Pages that fault when they are first written.
struct Protected {
    /// Mapped privately from a file.
    base: NonNull<u8>,
    /// The same file.
    pristine: NonNull<u8>,
    pages: usize,
    /// After how many resets they are protected again.
    period: u32,
    resets: u32,
}

/// What the signal handler may open: the memory that is being written.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Pages that it opened, as far as [`OPENED`] goes.
static OPEN: [AtomicUsize; 512] = [const { AtomicUsize::new(0) }; 512];
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Times that it ran.
static FAULTS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn open(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives handlers with `SA_SIGINFO` a valid `info`, which for SIGSEGV has an
    // address.
    let address = unsafe { (*info).si_addr() } as usize;
    let (base, length) = (BASE.load(Ordering::Relaxed), LENGTH.load(Ordering::Relaxed));
    let number = OPENED.load(Ordering::Relaxed);
    if !(base..base + length).contains(&address) || number >= OPEN.len() {
        std::process::abort();
    }
    FAULTS.store(FAULTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    OPEN[number].store((address - base) / PAGE, Ordering::Relaxed);
    OPENED.store(number + 1, Ordering::Relaxed);
    let page = (address & !(PAGE - 1)) as *mut std::ffi::c_void;
    // SAFETY: the page belongs to the mapping that is being written.
    if unsafe { mprotect(page, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) }.is_err() {
        std::process::abort();
    }
}

impl Protected {
    fn new(pages: usize, period: u32) -> anyhow::Result<Self> {
        handle_faults()?;
        let file = memfd_create("pages", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (pages * PAGE) as u64)?;
        let map = |access| {
            let (length, share) = (pages * PAGE, MapFlags::PRIVATE);
            // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
            let at = unsafe { mmap(ptr::null_mut(), length, access, share, &file, 0) };
            anyhow::Ok(NonNull::new(at?.cast::<u8>()).context("mapped at 0")?)
        };
        for page in 0..pages {
            rustix::io::pwrite(&file, &content(page), (page * PAGE) as u64)?;
        }
        let (base, pristine) = (map(ProtFlags::READ)?, map(ProtFlags::READ)?);
        Ok(Self { base, pristine, pages, period, resets: 0 })
    }

    fn take_over(&self) {
        if BASE.load(Ordering::Relaxed) != self.base.as_ptr() as usize {
            BASE.store(self.base.as_ptr() as usize, Ordering::Relaxed);
            LENGTH.store(self.pages * PAGE, Ordering::Relaxed);
            // Whoever had it has left nothing open: turns are whole periods.
            OPENED.store(0, Ordering::Relaxed);
        }
    }
}

impl Pages for Protected {
    fn write(&mut self, page: usize, value: u64) {
        self.take_over();
        for word in 0..WORDS {
            let offset = page * PAGE + word * PAGE / WORDS;
            // SAFETY: inside the mapping; what is protected faults, and the handler opens it.
            unsafe { self.base.add(offset).cast::<u64>().write_volatile(value) };
        }
    }

    fn reset(&mut self) -> io::Result<usize> {
        let opened = OPENED.load(Ordering::Relaxed);
        for page in &OPEN[..opened] {
            let offset = page.load(Ordering::Relaxed) * PAGE;
            // SAFETY: whole pages of two mappings, of which the first is open.
            unsafe {
                let from = self.pristine.add(offset).cast::<[u8; PAGE]>();
                self.base.add(offset).cast::<[u8; PAGE]>().copy_from_nonoverlapping(from, 1);
            }
        }
        self.resets += 1;
        if self.resets.is_multiple_of(self.period) {
            OPENED.store(0, Ordering::Relaxed);
            // SAFETY: the whole mapping, which is ours. The copies of pages stay.
            unsafe {
                mprotect(self.base.as_ptr().cast(), self.pages * PAGE, MprotectFlags::READ)?;
            }
        }
        Ok(opened)
    }

    fn is_clean(&self) -> bool {
        // SAFETY: two mappings of that length, which can be read.
        let bytes =
            |at: NonNull<u8>| unsafe { std::slice::from_raw_parts(at.as_ptr(), self.pages * PAGE) };
        bytes(self.base) == bytes(self.pristine)
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        for at in [self.base, self.pristine] {
            // SAFETY: the whole mapping, which is ours.
            let result = unsafe { rustix::mm::munmap(at.as_ptr().cast(), self.pages * PAGE) };
            debug_assert!(result.is_ok(), "munmap: {result:?}");
        }
    }
}

fn handle_faults() -> io::Result<()> {
    // SAFETY: zeros are a valid `sigaction`; the handler only uses atomics and a system call.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = open as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nanoseconds for the fault of a page that has its copy already.
fn fault() -> anyhow::Result<f64> {
    let pages = OPEN.len();
    let mut protected = Protected::new(pages, 1)?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let start = cpu_time();
        // Every other one, so that no two neighbours become one mapping again.
        (0..pages).step_by(2).for_each(|page| protected.write(page, 1));
        let time = cpu_time() - start;
        protected.reset()?;
        if round > 0 {
            times.push(time.as_nanos() as f64 / (pages / 2) as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}
