//! Who the process is, and what system it runs on.

use crate::{
    Errno, Host, guest,
    kernel::{Args, CallResult, DONE, Kernel, UID, fail, value},
};

/// The Linux release that guests are told: one whose calls libcs can expect to be refused.
macro_rules! release {
    () => {
        "6.1.0-sandtide"
    };
}
pub(crate) use release;

pub(crate) fn getpid(kernel: &mut Kernel, host: &mut Host<'_>, _: Args) -> CallResult {
    value(kernel.pid.get(host.random))
}

pub(crate) fn getppid(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    value(1u32)
}

/// `getuid`, `geteuid`, `getgid`, `getegid`.
pub(crate) fn getuid(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    value(UID)
}

/// `getresuid`, `getresgid`.
pub(crate) fn getresuid(_: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    for address in &args[..3] {
        guest::write_u32(host.memory, *address, UID)?;
    }
    DONE
}

pub(crate) fn getgroups(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    DONE
}

/// `getpgid`, `getsid` of itself.
pub(crate) fn getpgid(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let pid = args[0] as u32;
    if pid != 0 && !kernel.pid.is(pid) {
        return fail(Errno::SRCH);
    }
    value(kernel.pid.get(host.random))
}

/// `setsid`, `setpgid`: the process leads its group and session already.
pub(crate) fn setsid(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    fail(Errno::PERM)
}

/// `wait4`, `waitid`: there are no children.
pub(crate) fn wait(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    fail(Errno::CHILD)
}

/// `setuid`, `setgid` and their kin, with what holds already.
pub(crate) fn setuid(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let is_own = |id: u64| id as u32 == UID;
    if is_own(args[0]) { DONE } else { fail(Errno::PERM) }
}

/// `personality`: only asked for.
pub(crate) fn personality(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const QUERY: u32 = u32::MAX;
    match args[0] as u32 {
        0 | QUERY => DONE,
        _ => fail(Errno::INVAL),
    }
}

pub(crate) fn uname(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const FIELD: usize = 65;
    let machine = kernel.fixed.architecture.machine();
    let fields = ["Linux", "sandtide", release!(), "#1 Sandtide", machine, "(none)"];
    let mut bytes = [0; 6 * FIELD];
    for (field, text) in bytes.chunks_exact_mut(FIELD).zip(fields) {
        field[..text.len()].copy_from_slice(text.as_bytes());
    }
    guest::write(host.memory, args[0], &bytes)?;
    DONE
}

pub(crate) fn prctl(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const SET_DEATH_SIGNAL: u32 = 1;
    const GET_DUMPABLE: u32 = 3;
    const SET_DUMPABLE: u32 = 4;
    const SET_NAME: u32 = 15;
    const GET_NAME: u32 = 16;
    const GET_SECCOMP: u32 = 21;
    const HAS_CAPABILITY: u32 = 23;
    const SET_TIMER_SLACK: u32 = 29;
    const SET_NO_NEW_PRIVS: u32 = 38;
    const GET_NO_NEW_PRIVS: u32 = 39;
    const SET_HUGE_PAGES: u32 = 41;
    const SET_VMA: u32 = 0x5356_4d41;
    match args[0] as u32 {
        SET_NAME => {
            let mut name = [0; 16];
            let given = match guest::string(host.memory, args[1], 16, Errno::NAMETOOLONG) {
                // Longer names are cut.
                Err(crate::kernel::Stop::Errno(Errno::NAMETOOLONG)) => {
                    guest::array::<15>(host.memory, args[1])?.to_vec()
                }
                given => given?,
            };
            name[..given.len()].copy_from_slice(&given);
            kernel.threads.change().current_mut().name = name;
            DONE
        }
        GET_NAME => {
            guest::write(host.memory, args[1], &kernel.threads.current().name)?;
            DONE
        }
        GET_DUMPABLE | GET_SECCOMP => DONE,
        HAS_CAPABILITY if args[1] <= 40 => DONE,
        // What a parent, a timer or the memory of a sandbox does not have.
        SET_DEATH_SIGNAL if args[1] <= 64 => DONE,
        SET_TIMER_SLACK | SET_HUGE_PAGES => DONE,
        GET_NO_NEW_PRIVS => value(1u32),
        SET_DUMPABLE | SET_NO_NEW_PRIVS if args[1] <= 1 => DONE,
        // Names of mappings: nobody looks at them.
        SET_VMA => DONE,
        _ => fail(Errno::INVAL),
    }
}

/// A process without capabilities (`capget(2)`).
pub(crate) fn capget(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const VERSION_1: u32 = 0x1998_0330;
    const VERSION_2: u32 = 0x2007_1026;
    const VERSION_3: u32 = 0x2008_0522;
    let [header, data, ..] = args;
    let words = match guest::read_u32(host.memory, header)? {
        VERSION_1 => 3,
        VERSION_2 | VERSION_3 => 6,
        _ => {
            guest::write_u32(host.memory, header, VERSION_3)?;
            return if data == 0 { DONE } else { fail(Errno::INVAL) };
        }
    };
    let pid = guest::read_u32(host.memory, header.wrapping_add(4))?;
    if pid != 0 && !kernel.pid.is(pid) {
        return fail(Errno::SRCH);
    }
    if data != 0 {
        guest::write(host.memory, data, &[0; 24][..4 * words])?;
    }
    DONE
}

pub(crate) fn getrandom(_: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const FLAGS: u64 = 0b111;
    if args[2] & !FLAGS != 0 {
        return fail(Errno::INVAL);
    }
    let length = args[1].min(guest::CHUNK);
    if length > 0 {
        host.random.fill_bytes(host.memory.view_mut(args[0], length)?);
    }
    value(length)
}

pub(crate) fn getcpu(_: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    for address in args[..2].iter().filter(|address| **address != 0) {
        guest::write_u32(host.memory, *address, 0)?;
    }
    DONE
}

/// What has nothing to do here: `riscv_flush_icache`, as translated code is never written.
pub(crate) fn nothing(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    DONE
}

/// What libcs ask for and do without.
pub(crate) fn refused(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    fail(Errno::NOSYS)
}
