//! What guests say in system calls: numbers, arguments, paths.

use arbitrary::Unstructured;
use sandtide_linux::{Architecture, Cpu, PAGE};

use crate::input::next;

/// Where the texts are, a slot each.
pub(crate) const TEXTS: u64 = 0x1_0000;
/// Where the data is.
pub(crate) const DATA: u64 = 0x1_1000;
/// Bytes of a text's slot.
pub(crate) const SLOT: usize = 32;

/// Descriptors that a guest may have open.
pub(crate) const DESCRIPTORS: u32 = 12;

/// What a guest likes to name. `/data` is granted.
pub(crate) const PATHS: [&str; 24] = [
    "/",
    "/data",
    "/data/a.txt",
    "/data/sub/b.txt",
    "/data/out",
    "/data/out/secret",
    "/data/absolute",
    "/data/up",
    "/data/loop",
    "/data/../data/a.txt",
    "/data/sub/../../../secret",
    "../../secret",
    "a.txt",
    "/tmp/x",
    "/tmp/y",
    "/tmp/dir",
    "/tmp/dir/z",
    "/tmp",
    "/dev/null",
    "/dev/urandom",
    "/proc/self/exe",
    "/proc/self/maps",
    "/proc/self/fd/0",
    "",
];

/// A number that Linux has, mostly.
pub(crate) fn number<C: Cpu>(input: &mut Unstructured<'_>) -> u64 {
    let choice: u16 = next(input);
    match choice >> 12 {
        15 => sandtide_abi::call::BASE + u64::from(choice % 10),
        14 => next(input),
        // pidfd_open and what came after it has the same numbers everywhere.
        13 => 424 + u64::from(choice % 40),
        _ if C::ARCHITECTURE == Architecture::X86_64 => u64::from(choice % 335),
        _ => u64::from(choice % 292),
    }
}

/// A pointer, a descriptor, a length, flags, or anything.
pub(crate) fn argument(input: &mut Unstructured<'_>) -> u64 {
    let (kind, value): (u8, u8) = input.arbitrary().unwrap_or_default();
    let wide = u64::from(value);
    match kind % 16 {
        0 => 0,
        1 | 2 => wide % 16,
        3 => wide,
        4 | 5 => TEXTS + (wide % PATHS.len() as u64) * SLOT as u64,
        6 | 7 => DATA + wide * 16,
        8 => DATA + 0x1000 + wide * 16,
        // Where mappings and the heap are.
        9 => 0x4_0000 + wide * PAGE,
        10 => wide * PAGE,
        11 => 1 << (wide % 64),
        12 => (wide as i8 as i64) as u64,
        // AT_FDCWD.
        13 => -100i64 as u64,
        14 => u64::from(next::<u16>(input)) << (wide % 49),
        _ => next(input),
    }
}

/// Calls that show the state of a process and whose answers do not depend on the time.
pub(crate) fn probes<C: Cpu>() -> Vec<(u64, [u64; 6])> {
    // openat, read, lseek, fcntl, getcwd, mmap, brk, rt_sigaction, rt_sigprocmask, sigaltstack,
    // dup, clone, newfstatat, unlinkat, write
    let numbers: [u64; 15] = match C::ARCHITECTURE {
        Architecture::Riscv64 => [56, 63, 62, 25, 17, 222, 214, 134, 135, 132, 23, 220, 79, 35, 64],
        Architecture::X86_64 => [257, 0, 8, 72, 79, 9, 12, 13, 14, 131, 32, 56, 262, 263, 1],
    };
    let [
        openat,
        read,
        lseek,
        fcntl,
        getcwd,
        mmap,
        brk,
        action,
        mask,
        stack,
        dup,
        clone,
        stat,
        unlink,
        write,
    ] = numbers;
    let path = |index: u64| TEXTS + index * SLOT as u64;
    let here = -100i64 as u64;
    let at = DATA + 0x2000;
    let mut calls = Vec::new();
    for descriptor in 0..u64::from(DESCRIPTORS) {
        calls.push((fcntl, [descriptor, 1, 0, 0, 0, 0]));
        calls.push((fcntl, [descriptor, 3, 0, 0, 0, 0]));
        calls.push((lseek, [descriptor, 0, 1, 0, 0, 0]));
    }
    for signal in 1..65 {
        calls.push((action, [signal, 0, at, 8, 0, 0]));
    }
    for index in 0..PATHS.len() as u64 {
        calls.push((stat, [here, path(index), at, 0, 0, 0]));
    }
    calls.extend([
        (mask, [0, 0, at, 8, 0, 0]),
        (stack, [0, at, 0, 0, 0, 0]),
        (getcwd, [at, 256, 0, 0, 0, 0]),
        (brk, [0; 6]),
        (mmap, [0, 3 * PAGE, 3, 0x22, u64::MAX, 0]),
        (openat, [here, path(2), 0, 0, 0, 0]),
        (openat, [here, path(13), 0o102, 0o600, 0, 0]),
        (write, [4, at, 100, 0, 0, 0]),
        (read, [3, at, 100, 0, 0, 0]),
        (dup, [3, 0, 0, 0, 0, 0]),
        (unlink, [here, path(13), 0, 0, 0, 0]),
        // CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM
        (clone, [0x5_0f00, at, 0, 0, 0, 0]),
    ]);
    calls
}
