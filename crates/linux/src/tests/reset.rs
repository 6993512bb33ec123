//! A reset undoes everything.

use super::*;

/// Everything about a process that a guest can see, as text.
pub(super) fn state(process: &Process<FakeCpu>) -> String {
    let kernel = &process.kernel;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        *kernel.threads,
        *kernel.space,
        *kernel.files,
        kernel.fresh,
        kernel.objects,
        *kernel.scratch,
        *kernel.signals,
        process.cpus
    )
}

#[test]
fn calls_that_change_nothing_leave_nothing_to_restore() {
    let mut machine = Machine::new();
    let snapshot = machine.process.clone();
    machine.process.reset_from(&snapshot);
    machine.write(1, b"text").unwrap();
    let time = machine.words(&[0, 0]);
    machine.call("clock_gettime", &[0, time]).unwrap();
    machine.call("getrandom", &[time, 16, 0]).unwrap();
    machine.call("gettid", &[]).unwrap();
    assert_eq!(machine.open("/missing", 0), Err(Errno::NOENT));
    assert!(!machine.process.has_changed());
    assert_eq!(machine.process.cpu().result, Some(-2i64 as u64));
    machine.process.reset_from(&snapshot);
    assert_eq!(machine.process.differs_from(&snapshot), None);
}

/// Changes something.
type Step = fn(&mut Machine);

#[test]
fn a_reset_restores_every_part() {
    let mut machine = Machine::new();
    let kept = machine.open("/tmp/kept", 0o102).unwrap();
    machine.write(kept, b"before").unwrap();
    machine.call("eventfd2", &[1, 0o4000]).unwrap();
    machine.call("epoll_create1", &[0]).unwrap();
    let event = machine.words(&[5 | 1 << 31, 0]);
    machine.call("epoll_ctl", &[5, 1, 4, event]).unwrap();
    let pair = machine.put(&[0; 8]);
    machine.call("socketpair", &[1, 1, 0, pair]).unwrap();
    machine.call("timerfd_create", &[1, 0]).unwrap();
    let snapshot = machine.process.clone();
    machine.process.reset_from(&snapshot);

    let steps: [(&str, Step); 19] = [
        ("a thread", |machine| {
            machine.call("clone", &[0x1_0900, 0, 0, 0, 0]).unwrap();
            machine.process.preempt();
            machine.schedule();
            machine.action("exit", &[0]);
            machine.schedule();
        }),
        ("a wait", |machine| {
            let word = machine.put(&[0; 4]);
            machine.action("futex", &[word, 0, 0, 0]);
        }),
        ("a descriptor", |machine| {
            machine.call("dup", &[1]).unwrap();
        }),
        ("an offset", |machine| {
            machine.call("lseek", &[3, 0, 0]).unwrap();
        }),
        ("a pipe", |machine| {
            let pair = machine.put(&[0; 8]);
            machine.call("pipe2", &[pair, 0]).unwrap();
            let writer = u64::from(machine.u32_at(pair + 4));
            machine.write(writer, b"secret").unwrap();
        }),
        ("a counter", |machine| {
            machine.write(4, &1u64.to_le_bytes()).unwrap();
        }),
        ("what an edge has told", |machine| {
            let buffer = machine.words(&[0; 2]);
            assert_eq!(machine.call("epoll_pwait", &[5, buffer, 1, 0, 0, 0]), Ok(1));
        }),
        ("a watch", |machine| {
            machine.call("epoll_ctl", &[5, 2, 4, 0]).unwrap();
        }),
        ("a socket's bytes", |machine| {
            machine.write(6, b"secret").unwrap();
        }),
        ("a socket's end", |machine| {
            machine.call("shutdown", &[7, 1]).unwrap();
        }),
        ("a timer", |machine| {
            let times = machine.words(&[0, 0, 3600, 0]);
            machine.call("timerfd_settime", &[8, 0, times, 0]).unwrap();
        }),
        ("an alarm", |machine| {
            let times = machine.words(&[0, 0, 3600, 0]);
            machine.call("setitimer", &[0, times, 0]).unwrap();
        }),
        ("a list of robust futexes", |machine| {
            machine.call("set_robust_list", &[DATA, 24]).unwrap();
        }),
        ("a file", |machine| {
            machine.open("/tmp/new", 0o102).unwrap();
        }),
        ("contents", |machine| {
            machine.write(3, b"after").unwrap();
        }),
        ("a mapping", |machine| {
            machine.mmap(PAGE);
        }),
        ("the heap", |machine| {
            let brk = machine.call("brk", &[0]).unwrap();
            machine.call("brk", &[brk + 10]).unwrap();
        }),
        ("a signal action", |machine| {
            let action = machine.words(&[1, 0, 0]);
            machine.call("rt_sigaction", &[10, action, 0, 8]).unwrap();
        }),
        ("mask, name and directory", |machine| {
            let word = machine.words(&[1 << 9]);
            machine.call("rt_sigprocmask", &[0, word, 0, 8]).unwrap();
            machine.call("tkill", &[100, 10]).unwrap();
            let name = machine.text("name");
            machine.call("prctl", &[15, name]).unwrap();
            let path = machine.text("/tmp");
            machine.call("chdir", &[path]).unwrap();
        }),
    ];
    for (what, step) in steps {
        step(&mut machine);
        assert!(machine.process.has_changed(), "{what}");
        let differs = machine.process.differs_from(&snapshot);
        assert!(differs.is_some_and(|part| part != "marks of change"), "{what}: {differs:?}");
        machine.process.reset_from(&snapshot);
        assert_eq!(machine.process.differs_from(&snapshot), None, "{what}");
    }
}

#[test]
fn what_was_changed_without_a_mark_is_found() {
    let mut machine = Machine::new();
    let snapshot = machine.process.clone();
    machine.process.reset_from(&snapshot);
    machine.process.kernel.pid.get(&mut rand::rng());
    assert_eq!(machine.process.differs_from(&snapshot), Some("process id"));
    machine.process.reset_from(&snapshot);
    machine.process.kernel.pause = crate::pause::Pause::default();
    assert_eq!(machine.process.differs_from(&snapshot), Some("clocks"));
    machine.process.reset_from(&snapshot);
    machine.process.cpus[0].result = Some(1);
    assert_eq!(machine.process.differs_from(&snapshot), Some("registers"));
}

#[test]
fn randomness_does_not_repeat() {
    let mut machine = Machine::new();
    let snapshot = machine.process.clone();
    let buffer = machine.put(&[0; 16]);
    machine.call("getrandom", &[buffer, 16, 0]).unwrap();
    let first = machine.bytes(buffer, 16);
    machine.process.reset_from(&snapshot);
    machine.call("getrandom", &[buffer, 16, 0]).unwrap();
    assert_ne!(machine.bytes(buffer, 16), first);
}
