//! The table of system calls: what each name does, for both instruction sets.
//!
//! Numbers come from the `syscalls` crate. The table drives dispatch and `docs/syscalls.md`.

use std::sync::LazyLock;

use syscalls::{riscv64, x86_64};

use crate::{
    Architecture,
    calls::{
        descriptors, epoll, files, futex, identity, io, mapping, memory, metadata, network, poll,
        resources, robust, signalfd, signals, socket, threads, time, timers,
    },
    kernel::Handler,
};

/// A system call that is implemented.
pub(crate) struct Entry {
    /// Its name in Linux.
    pub(crate) name: &'static str,
    pub(crate) handler: Handler,
    /// What a guest can count on and what not; for the documentation.
    #[cfg_attr(not(test), expect(dead_code))]
    pub(crate) notes: &'static str,
}

macro_rules! table {
    ($($title:literal { $($name:ident => $handler:path, $notes:literal;)* })*) => {
        /// The subjects of [`TABLE`], each with how many entries it has.
        #[cfg(test)]
        pub(crate) const SUBJECTS: &[(&str, usize)] =
            &[$(($title, [$(stringify!($name)),*].len())),*];

        /// Every system call that is implemented.
        pub(crate) static TABLE: &[Entry] = &[$($(
            Entry { name: stringify!($name), handler: $handler, notes: $notes },
        )*)*];
    };
}

table! {
    "Memory" {
        brk => memory::brk, "The heap grows up to the tenant's memory limit; beyond, the old end is returned.";
        mmap => mapping::mmap, "Anonymous memory, private or shared; files as a private copy or shared read-only (a copy too). `MAP_FIXED`, `MAP_FIXED_NOREPLACE`, `MAP_NORESERVE`. No huge pages. Writable memory beyond what the memory limit leaves is `ENOMEM`; reservations (`PROT_NONE`, `MAP_NORESERVE`) do not count.";
        munmap => memory::munmap, "";
        mprotect => memory::mprotect, "Any of read, write, execute; write implies read.";
        mremap => mapping::mremap, "`MREMAP_MAYMOVE`, `MREMAP_FIXED`. One mapping at a time; no second view of the same memory.";
        madvise => memory::madvise, "`MADV_DONTNEED` zeroes. `MADV_WIPEONFORK`: zero in what starts from the snapshot. Other advice is accepted without effect.";
        msync => memory::mapped_only, "Nothing to write back.";
        mlock => memory::mapped_only, "Nothing is ever paged out.";
        munlock => memory::mapped_only, "Nothing is ever paged out.";
        mlock2 => memory::mapped_only, "Nothing is ever paged out.";
        mlockall => memory::mlockall, "Nothing is ever paged out.";
        munlockall => identity::nothing, "Nothing is ever paged out.";
        mincore => memory::mincore, "Everything that is mapped is there.";
        membarrier => memory::membarrier, "Threads share one processor, so every barrier holds already.";
    }
    "Reading and writing" {
        read => io::read, "At most 1 MiB a call.";
        readv => io::readv, "At most 1 MiB and 1024 ranges a call.";
        pread64 => io::pread64, "At most 1 MiB a call.";
        preadv => io::preadv, "At most 1 MiB and 1024 ranges a call.";
        write => io::write, "At most 1 MiB a call. Standard output and error go to the tenant's log.";
        writev => io::writev, "At most 1 MiB and 1024 ranges a call.";
        pwrite64 => io::pwrite64, "At most 1 MiB a call.";
        pwritev => io::pwritev, "At most 1 MiB and 1024 ranges a call.";
        preadv2 => io::preadv2, "As `preadv`, without flags.";
        pwritev2 => io::pwritev2, "As `pwritev`, without flags.";
        sendfile => io::no_shortcut, "Always `EINVAL`: programs then read and write.";
        splice => io::no_shortcut, "Always `EINVAL`: programs then read and write.";
        lseek => io::lseek, "Files have no holes.";
        ppoll => poll::ppoll, "Files and standard streams are always ready.";
        poll => poll::poll, "As `ppoll`.";
        pselect6 => poll::pselect6, "As `ppoll`; no exceptional conditions.";
        select => poll::select, "As `ppoll`; the time left is not written back.";
        epoll_create1 => epoll::epoll_create1, "";
        epoll_create => epoll::epoll_create, "";
        epoll_ctl => epoll::epoll_ctl, "`EPOLLET`, `EPOLLONESHOT`; `EPOLLEXCLUSIVE` and `EPOLLWAKEUP` are accepted without effect. Sets in sets up to five deep; in total twice as many watches as descriptors (`ENOSPC`). Files and devices cannot be watched (`EPERM`).";
        epoll_pwait => epoll::epoll_pwait, "Events come in the order of descriptors.";
        epoll_pwait2 => epoll::epoll_pwait2, "As `epoll_pwait`.";
        epoll_wait => epoll::epoll_wait, "As `epoll_pwait`.";
        fsync => files::open_only, "Nothing to write back.";
        fdatasync => files::open_only, "Nothing to write back.";
        fadvise64 => files::open_only, "Accepted without effect.";
        readahead => files::open_only, "Accepted without effect.";
        sync_file_range => files::open_only, "Nothing to write back.";
        syncfs => files::open_only, "Nothing to write back.";
        sync => identity::nothing, "Nothing to write back.";
    }
    "Descriptors" {
        close => descriptors::close, "";
        close_range => descriptors::close_range, "";
        dup => descriptors::dup, "";
        dup2 => descriptors::dup2, "";
        dup3 => descriptors::dup3, "";
        fcntl => descriptors::fcntl, "`F_DUPFD`, `F_DUPFD_CLOEXEC`, `F_GETFD`, `F_SETFD`, `F_GETFL`, `F_SETFL` (`O_APPEND`, `O_NONBLOCK`), `F_GETPIPE_SZ`, `F_SETPIPE_SZ` without effect; locks always succeed.";
        flock => descriptors::flock, "Always succeeds: nobody else can hold a lock.";
        ioctl => descriptors::ioctl, "`FIONREAD`, `FIONBIO`, `FIOCLEX`, `FIONCLEX`; everything else is `ENOTTY`, as nothing is a terminal.";
        eventfd2 => descriptors::eventfd2, "`EFD_SEMAPHORE`, `EFD_NONBLOCK`, `EFD_CLOEXEC`.";
        eventfd => descriptors::eventfd, "As `eventfd2`.";
        pipe2 => descriptors::pipe2, "`O_CLOEXEC`, `O_NONBLOCK`; holds 64 KiB.";
        pipe => descriptors::pipe, "Holds 64 KiB.";
    }
    "Files and directories" {
        openat => files::openat, "Granted files read-only (`EROFS` to write), `/tmp` in memory until the reset, `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random`, `/dev/urandom`, the direct protocol's files in `/sandtide`, `/sandtide/fresh` ([random numbers](sockets.md#random-numbers)), and a few files of `/proc` and `/sys`. No `O_TMPFILE`.";
        open => files::open, "As `openat`.";
        creat => files::creat, "As `openat`.";
        getdents64 => files::getdents64, "A directory is read when its first entry is; at most 65536 entries. Inode numbers are not those of `fstat`.";
        getcwd => files::getcwd, "";
        chdir => files::chdir, "";
        fchdir => files::fchdir, "";
        mkdirat => files::mkdirat, "In `/tmp` only; modes are remembered, not enforced.";
        mkdir => files::mkdir, "As `mkdirat`.";
        unlinkat => files::unlinkat, "In `/tmp` only.";
        unlink => files::unlink, "As `unlinkat`.";
        rmdir => files::rmdir, "As `unlinkat`.";
        renameat2 => files::renameat2, "In `/tmp` only. `RENAME_NOREPLACE`; no exchange.";
        renameat => files::renameat, "As `renameat2`.";
        rename => files::rename, "As `renameat2`.";
        linkat => files::no_links, "Always `EPERM`.";
        symlinkat => files::no_links, "Always `EPERM`.";
        link => files::no_links, "Always `EPERM`.";
        symlink => files::no_links, "Always `EPERM`.";
        truncate => files::truncate, "In `/tmp` only.";
        ftruncate => files::ftruncate, "In `/tmp` only.";
        memfd_create => files::memfd_create, "A file of `/tmp` without a name. No seals, no huge pages, no shared mapping to write to.";
        fallocate => files::fallocate, "In `/tmp` only, without flags.";
        umask => files::umask, "Applied to the modes of new files.";
    }
    "Metadata" {
        fstat => metadata::fstat, "Granted files belong to user 0, `/tmp` to the guest. Only the time of the last change is kept.";
        newfstatat => metadata::newfstatat, "As `fstat`. `AT_EMPTY_PATH`, `AT_SYMLINK_NOFOLLOW`.";
        stat => metadata::stat, "As `fstat`.";
        lstat => metadata::lstat, "As `fstat`.";
        statx => metadata::statx, "As `newfstatat`; the basic fields.";
        faccessat => metadata::faccessat, "";
        faccessat2 => metadata::faccessat2, "`AT_EMPTY_PATH`, `AT_SYMLINK_NOFOLLOW`.";
        access => metadata::access, "";
        readlinkat => metadata::readlinkat, "Links of granted directories, and `/proc/self/exe`.";
        readlink => metadata::readlink, "As `readlinkat`.";
        utimensat => metadata::change_metadata_at, "In `/tmp` only; accepted without effect.";
        fchmodat => metadata::change_metadata_at, "In `/tmp` only; accepted without effect.";
        fchownat => metadata::change_metadata_at, "In `/tmp` only; accepted without effect.";
        fchmod => metadata::change_metadata, "In `/tmp` only; accepted without effect.";
        fchown => metadata::change_metadata, "In `/tmp` only; accepted without effect.";
        fchmodat2 => metadata::change_metadata_at, "In `/tmp` only; accepted without effect.";
        chmod => metadata::change_metadata_of, "In `/tmp` only; accepted without effect.";
        chown => metadata::change_metadata_of, "In `/tmp` only; accepted without effect.";
        lchown => metadata::change_metadata_of, "In `/tmp` only; accepted without effect.";
        utime => metadata::change_metadata_of, "In `/tmp` only; accepted without effect.";
        utimes => metadata::change_metadata_of, "In `/tmp` only; accepted without effect.";
        futimesat => metadata::change_metadata_at, "In `/tmp` only; accepted without effect.";
        statfs => metadata::statfs, "Always the scratch area's room.";
        fstatfs => metadata::fstatfs, "Always the scratch area's room.";
    }
    "Threads" {
        clone => threads::clone, "Threads only (`CLONE_VM`, `CLONE_SIGHAND`, `CLONE_THREAD`), up to the tenant's limit (`EAGAIN`). No new processes (`ENOSYS`).";
        exit => threads::exit, "";
        exit_group => threads::exit_group, "";
        set_tid_address => threads::set_tid_address, "";
        clone3 => threads::clone3, "As `clone`.";
        set_robust_list => robust::set_robust_list, "At most 2048 locks of a thread that ends are given up.";
        get_robust_list => robust::get_robust_list, "";
        futex => futex::futex, "`WAIT`, `WAKE`, `WAIT_BITSET`, `WAKE_BITSET`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, with time-outs. No priority inheritance.";
        sched_yield => threads::sched_yield, "";
        sched_getaffinity => threads::sched_getaffinity, "One processor.";
        sched_setaffinity => threads::sched_setaffinity, "One processor.";
        sched_getscheduler => threads::sched_getscheduler, "Always `SCHED_OTHER`.";
        sched_setscheduler => threads::sched_setscheduler, "Only `SCHED_OTHER`.";
        sched_getparam => threads::sched_getparam, "Always priority 0.";
        sched_setparam => threads::sched_setparam, "Only priority 0.";
        sched_get_priority_max => threads::sched_get_priority, "Ordinary policies only.";
        sched_get_priority_min => threads::sched_get_priority, "Ordinary policies only.";
        getpriority => threads::getpriority, "Always 0.";
        setpriority => threads::setpriority, "Accepted without effect.";
        arch_prctl => threads::arch_prctl, "`ARCH_SET_FS`, `ARCH_GET_FS`.";
    }
    "Signals" {
        rt_sigaction => signals::rt_sigaction, "`SA_SIGINFO`, `SA_ONSTACK`, `SA_RESTART`, `SA_NODEFER`, `SA_RESETHAND`. Stopping signals are ignored by default.";
        rt_sigprocmask => signals::rt_sigprocmask, "";
        rt_sigpending => signals::rt_sigpending, "";
        rt_sigsuspend => signals::rt_sigsuspend, "";
        rt_sigreturn => signals::rt_sigreturn, "";
        sigaltstack => signals::sigaltstack, "Never says `SS_ONSTACK`; no `SS_AUTODISARM`.";
        rt_sigtimedwait => signalfd::rt_sigtimedwait, "";
        signalfd4 => signalfd::signalfd4, "`SFD_NONBLOCK`, `SFD_CLOEXEC`.";
        signalfd => signalfd::signalfd, "As `signalfd4`.";
        pause => signals::pause, "";
        kill => signals::kill, "To itself only.";
        tkill => signals::tkill, "To its own threads only.";
        tgkill => signals::tgkill, "To its own threads only.";
    }
    "Time" {
        clock_gettime => time::clock_gettime, "Real, monotonic, boot time and their variants; CPU clocks are the sandbox's. After a reset real and boot time are true; monotonic time goes on from the snapshot, as after a suspend, and so do sleeps and timers.";
        clock_getres => time::clock_getres, "";
        gettimeofday => time::gettimeofday, "UTC.";
        time => time::time, "";
        times => time::times, "All time is user time.";
        timerfd_create => timers::timerfd_create, "Real, monotonic and boot time; `TFD_NONBLOCK`, `TFD_CLOEXEC`.";
        timerfd_settime => timers::timerfd_settime, "`TFD_TIMER_ABSTIME`; `TFD_TIMER_CANCEL_ON_SET` is accepted without effect. A clock that is set moves no timer.";
        timerfd_gettime => timers::timerfd_gettime, "";
        setitimer => timers::setitimer, "`ITIMER_REAL`. It rings at the end of a slice, a millisecond or two late if the program computes.";
        getitimer => timers::getitimer, "`ITIMER_REAL`.";
        alarm => timers::alarm, "As `setitimer`.";
        nanosleep => time::nanosleep, "The time left is not written back after a signal.";
        clock_nanosleep => time::clock_nanosleep, "Real and monotonic, relative and absolute. The time left is not written back after a signal.";
    }
    "Identity and system" {
        getpid => identity::getpid, "100 up to the snapshot, and another number in each request: OpenSSL seeds itself anew then. For CPython before 3.12 always 100.";
        getppid => identity::getppid, "Always 1.";
        gettid => threads::gettid, "";
        getuid => identity::getuid, "Always 1000.";
        geteuid => identity::getuid, "Always 1000.";
        getgid => identity::getuid, "Always 1000.";
        getegid => identity::getuid, "Always 1000.";
        getresuid => identity::getresuid, "Always 1000.";
        getresgid => identity::getresuid, "Always 1000.";
        getgroups => identity::getgroups, "None.";
        getpgid => identity::getpgid, "Of itself.";
        getpgrp => identity::getpid, "As `getpid`.";
        getsid => identity::getpgid, "Of itself.";
        setsid => identity::setsid, "Always `EPERM`: the process leads its session.";
        setpgid => identity::setsid, "Always `EPERM`.";
        setuid => identity::setuid, "To 1000 only.";
        setgid => identity::setuid, "To 1000 only.";
        wait4 => identity::wait, "Always `ECHILD`.";
        waitid => identity::wait, "Always `ECHILD`.";
        personality => identity::personality, "The usual one only.";
        capget => identity::capget, "None.";
        uname => identity::uname, "Linux 6.1.";
        prctl => identity::prctl, "`PR_SET_NAME`, `PR_GET_NAME`, `PR_SET_VMA`, `PR_SET_PDEATHSIG`, `PR_SET_TIMERSLACK`, `PR_SET_THP_DISABLE` without effect, `PR_CAPBSET_READ`, `PR_GET_SECCOMP`, `PR_GET_DUMPABLE`, `PR_SET_DUMPABLE`, `PR_SET_NO_NEW_PRIVS`, `PR_GET_NO_NEW_PRIVS`.";
        getcpu => identity::getcpu, "Always 0.";
        getrandom => identity::getrandom, "Never repeats after a reset. At most 1 MiB a call.";
        prlimit64 => resources::prlimit64, "Says the tenant's limits. Lower limits are accepted without effect, higher ones are `EPERM`.";
        getrlimit => resources::getrlimit, "As `prlimit64`.";
        setrlimit => resources::setrlimit, "As `prlimit64`.";
        getrusage => resources::getrusage, "User time and memory.";
        sysinfo => resources::sysinfo, "Memory is the tenant's limit.";
        riscv_flush_icache => identity::nothing, "Code is never modified in place.";
    }
    "Sockets" {
        socket => network::socket, "`SOCK_STREAM` of `AF_INET`, `AF_INET6`, `AF_UNIX`; `SOCK_DGRAM` of the first two. Other kinds are `EACCES`, other families `EAFNOSUPPORT`.";
        socketpair => socket::socketpair, "`AF_UNIX` streams, datagrams and sequenced packets; holds 64 KiB and 256 messages each way.";
        bind => network::bind, "Any address, port and path; port 0 becomes a free one. Nothing is opened on the host, and no file is made for a path.";
        listen => network::listen, "Connections come from the host, for requests: one at a time, whatever the backlog.";
        accept => network::accept, "The client seems to be on the same machine.";
        accept4 => network::accept4, "As `accept`. `SOCK_NONBLOCK`, `SOCK_CLOEXEC`.";
        connect => network::connect, "To a listener of the guest itself, at a loopback address or a Unix path, or else to the outside, as far as `egress` allows: what it does not is `EACCES`, a loopback address `ECONNREFUSED`, one connection too many `EADDRNOTAVAIL`. Of datagrams any IPv4 address.";
        sendto => network::sendto, "`MSG_DONTWAIT`, `MSG_NOSIGNAL`; over connections without an address. A connection holds 64 KiB each way. Datagrams go to the resolver only (`EACCES`), 4 KiB at most.";
        recvfrom => network::recvfrom, "`MSG_PEEK`, `MSG_DONTWAIT`, `MSG_WAITALL`; of messages also `MSG_TRUNC`.";
        sendmsg => network::sendmsg, "As `sendto`. No descriptors or credentials (`EOPNOTSUPP`).";
        recvmsg => network::recvmsg, "As `recvfrom`.";
        sendmmsg => network::sendmmsg, "As `sendmsg`; at most 1024 messages.";
        recvmmsg => network::recvmmsg, "As `recvmsg`: waits for the first message only. No time-out.";
        getsockopt => network::getsockopt, "What was set; `SO_TYPE`, `SO_DOMAIN`, `SO_PROTOCOL`, `SO_ERROR`, `SO_ACCEPTCONN`, `SO_SNDBUF`, `SO_RCVBUF`, `SO_PEERCRED`.";
        setsockopt => network::setsockopt, "`SO_RCVTIMEO` and `SO_SNDTIMEO` are obeyed; of a pair they are `ENOPROTOOPT`. What else servers set is accepted and has no effect; the rest is `ENOPROTOOPT`.";
        getsockname => network::getsockname, "The ends of a pair have no name.";
        getpeername => network::getpeername, "As `accept`.";
        shutdown => network::shutdown, "";
    }
    "Refused, and not counted as unknown" {
        pkey_alloc => identity::refused, "`ENOSYS`: memory has no keys.";
        openat2 => identity::refused, "`ENOSYS`: use `openat`.";
        inotify_init1 => identity::refused, "`ENOSYS`: nobody else changes the files that a guest sees.";
        inotify_init => identity::refused, "As `inotify_init1`.";
        rseq => identity::refused, "`ENOSYS`: C libraries do without.";
        riscv_hwprobe => identity::refused, "`ENOSYS`: `AT_HWCAP` says what there is.";
    }
}

/// More than any number of an implemented call.
const NUMBERS: usize = 512;

/// For each number, one more than the index in [`TABLE`], or 0.
type Numbers = [u16; NUMBERS];

static RISCV64: LazyLock<Numbers> = LazyLock::new(|| numbers(Architecture::Riscv64));
static X86_64: LazyLock<Numbers> = LazyLock::new(|| numbers(Architecture::X86_64));

fn numbers(architecture: Architecture) -> Numbers {
    let mut numbers = [0; NUMBERS];
    for (number, slot) in numbers.iter_mut().enumerate() {
        let name = name(architecture, number as u64);
        if let Some(index) = TABLE.iter().position(|entry| entry.name == name) {
            *slot = index as u16 + 1;
        }
    }
    numbers
}

/// The implementation of a number.
pub(crate) fn find(architecture: Architecture, number: u64) -> Option<&'static Entry> {
    let numbers = match architecture {
        Architecture::Riscv64 => &*RISCV64,
        Architecture::X86_64 => &*X86_64,
    };
    let index = *numbers.get(usize::try_from(number).ok()?)?;
    TABLE.get(usize::from(index).checked_sub(1)?)
}

/// The name of a number, implemented or not.
pub(crate) fn name(architecture: Architecture, number: u64) -> &'static str {
    let name = usize::try_from(number).ok().and_then(|number| match architecture {
        Architecture::Riscv64 => riscv64::Sysno::new(number).map(|call| call.name()),
        Architecture::X86_64 => x86_64::Sysno::new(number).map(|call| call.name()),
    });
    match name {
        Some("fstatat") => "newfstatat",
        Some("sync_file_range2") => "sync_file_range",
        Some(name) => name,
        None => "unassigned",
    }
}

#[cfg(test)]
mod tests;
