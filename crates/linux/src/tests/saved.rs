//! A process that is kept on disk goes on as its snapshot would.

use std::fs;

use proptest::prelude::*;

use super::{reset::state, timers::clock, *};
use crate::{RestoreError, SaveError, saved::of_older_host};

const HOUR: Duration = Duration::from_secs(3600);
const MONOTONIC: u64 = 1;
const BOOT: u64 = 7;

fn restore(bytes: &[u8], files: &[FileGrant]) -> Result<Process<FakeCpu>, RestoreError> {
    let (words, limits) = (words(), limits());
    Process::restore(bytes, &setup(&words, files, &limits))
}

/// A machine with something of everything.
fn full() -> Machine {
    let mut machine = Machine::new();
    let file = machine.open("/tmp/kept", 0o102).unwrap();
    machine.write(file, b"contents").unwrap();
    let name = machine.text("/tmp/directory");
    machine.call("mkdirat", &[0, name, 0o755]).unwrap();
    let counter = machine.call("eventfd2", &[1, 0o4000]).unwrap();
    let set = machine.call("epoll_create1", &[0]).unwrap();
    let event = machine.words(&[5 | 1 << 31, 0]);
    machine.call("epoll_ctl", &[set, 1, counter, event]).unwrap();
    let pair = machine.put(&[0; 8]);
    machine.call("socketpair", &[1, 1, 0, pair]).unwrap();
    let end = u64::from(machine.u32_at(pair));
    machine.write(end, b"on its way").unwrap();
    machine.call("pipe2", &[pair, 0]).unwrap();
    let writer = u64::from(machine.u32_at(pair + 4));
    machine.write(writer, b"in the pipe").unwrap();
    let socket = machine.call("socket", &[2, 1, 0]).unwrap();
    machine.call("listen", &[socket, 5]).unwrap();
    machine.open("/proc/self/status", 0).unwrap();
    let action = machine.words(&[0x1_2340, 0, 0]);
    machine.call("rt_sigaction", &[10, action, 0, 8]).unwrap();
    machine.call("clone", &[0x1_0900, 0, 0, 0, 0]).unwrap();
    let timer = machine.call("timerfd_create", &[MONOTONIC, 0]).unwrap();
    let times = machine.words(&[0, 0, 60, 0]);
    machine.call("timerfd_settime", &[timer, 0, times, 0]).unwrap();
    machine.mmap(PAGE);
    machine
}

fn saved(machine: &mut Machine) -> Vec<u8> {
    let reads = machine.process.take_reads();
    machine.process.clone().save(&reads).unwrap()
}

#[test]
fn every_part_is_as_it_was() {
    let mut machine = full();
    let bytes = saved(&mut machine);
    let process = restore(&bytes, &[]).unwrap();
    assert!(!process.has_changed());
    // Instants are others; the rest is to be the same.
    let without_times = |text: String| {
        let parts = text.split("Instant {").enumerate();
        let tails =
            parts.map(|(at, part)| if at == 0 { part } else { part.split_once('}').unwrap().1 });
        tails.collect::<Vec<_>>().join("then")
    };
    let before = machine.process.clone();
    assert!(without_times(state(&process)) == without_times(state(&before)));
}

#[test]
fn what_is_kept_fresh_stays_so() {
    let mut machine = Machine::new();
    let fd = machine.open("/sandtide/fresh", 0).unwrap();
    let address = machine.put(&[0; 16]);
    machine.call("read", &[fd, address, 16]).unwrap();
    let before = machine.bytes(address, 16);
    machine.process = restore(&saved(&mut machine), &[]).unwrap();
    machine.process.refresh(&mut machine.memory, &mut machine.random).unwrap();
    assert_ne!(machine.bytes(address, 16), before);
}

#[test]
fn as_much_time_is_left_as_there_was() {
    let mut machine = full();
    let timer = 12;
    let process = restore(&saved(&mut machine), &[]).unwrap();
    machine.process = process;
    machine.schedule();
    let times = machine.words(&[0; 4]);
    machine.call("timerfd_gettime", &[timer, times]).unwrap();
    assert!((50..=60).contains(&machine.u32_at(times + 16)));
}

#[test]
fn clocks_go_on_where_they_were_on_a_host_that_was_started_since() {
    let mut machine = Machine::new();
    let before = [MONOTONIC, BOOT].map(|id| clock(&mut machine, id));
    let bytes = saved(&mut machine);
    for older in [Duration::ZERO, HOUR, 1000 * HOUR] {
        machine.process = restore(&of_older_host(&bytes, older), &[]).unwrap();
        machine.schedule();
        let after = [MONOTONIC, BOOT].map(|id| clock(&mut machine, id));
        for (before, after) in before.into_iter().zip(after) {
            let ran = after - (before + older.as_millis() as u64);
            assert!(ran < 60_000, "{ran} ms after {older:?}");
        }
        let again = machine.process.clone();
        machine.process = again;
        machine.schedule();
        assert!(clock(&mut machine, MONOTONIC) >= after[0], "a snapshot of it keeps that");
    }
}

#[test]
fn it_is_another_process_with_other_numbers() {
    let mut machine = Machine::new();
    assert_eq!(machine.call("getpid", &[]), Ok(100));
    let bytes = saved(&mut machine);
    machine.process = restore(&bytes, &[]).unwrap();
    assert_ne!(machine.call("getpid", &[]), Ok(100));
}

fn with_file() -> (tempfile::TempDir, [FileGrant; 1], Machine, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "contents").unwrap();
    fs::write(directory.path().join("looked-at"), "contents").unwrap();
    fs::write(directory.path().join("never"), "contents").unwrap();
    std::os::unix::fs::symlink("file", directory.path().join("link")).unwrap();
    let host = directory.path().to_owned();
    let files = [FileGrant { guest: "/data".to_owned(), host, public: false }];
    let mut machine: Machine = Machine::with_files(&files).unwrap();
    let file = machine.open("/data/link", 0).unwrap();
    assert_eq!(machine.read(file, 3).unwrap(), b"con");
    let (path, stat) = (machine.text("/data/looked-at"), machine.put(&[0; 144]));
    machine.call("newfstatat", &[-100i64 as u64, path, stat, 0]).unwrap();
    let bytes = saved(&mut machine);
    (directory, files, machine, bytes)
}

#[test]
fn open_files_are_opened_again() {
    let (_directory, files, mut machine, bytes) = with_file();
    machine.process = restore(&bytes, &files).unwrap();
    assert_eq!(machine.read(3, 100).unwrap(), b"tents");
    let read = crate::FileRead::of(&bytes).unwrap();
    let paths: Vec<_> = read.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["/data/link", "/data/looked-at"]);
}

#[test]
fn what_it_has_looked_at_must_be_the_same() {
    let (directory, files, _machine, bytes) = with_file();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("never"), "changed!").unwrap();
    assert!(restore(&bytes, &files).is_ok(), "it has never seen that");
    // Touched, and copied: the same content.
    fs::write(path("looked-at"), "contents").unwrap();
    fs::copy(path("file"), path("copy")).unwrap();
    fs::rename(path("copy"), path("file")).unwrap();
    assert!(restore(&bytes, &files).is_ok());
    fs::write(path("looked-at"), "Contents").unwrap();
    let error = restore(&bytes, &files).unwrap_err().to_string();
    assert_eq!(error, "`/data/looked-at`, which it has read, has changed");
    fs::write(path("looked-at"), "contents").unwrap();
    fs::remove_file(path("link")).unwrap();
    std::os::unix::fs::symlink("never", path("link")).unwrap();
    let error = restore(&bytes, &files).unwrap_err().to_string();
    assert_eq!(error, "`/data/link`, which it has read, has changed", "it leads elsewhere");
    fs::remove_file(path("link")).unwrap();
    let error = restore(&bytes, &files).unwrap_err().to_string();
    assert!(error.starts_with("`/data/link`, which it has read, cannot be opened"), "{error}");
}

#[test]
fn what_has_changed_since_it_was_read_is_not_kept() {
    let (directory, files, ..) = with_file();
    let mut machine: Machine = Machine::with_files(&files).unwrap();
    machine.open("/data/file", 0).unwrap();
    fs::write(directory.path().join("file"), "other contents").unwrap();
    let reads = machine.process.take_reads();
    let error = machine.process.save(&reads).unwrap_err();
    assert!(matches!(error, SaveError::Changed(_)), "{error}");
}

#[test]
fn another_instruction_set_is_refused() {
    let bytes = saved(&mut Machine::new());
    let (words, limits) = (words(), limits());
    let error = Process::<FakeCpu<true>>::restore(&bytes, &setup(&words, &[], &limits));
    assert!(matches!(error, Err(RestoreError::Damaged(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 2000 }))]

    /// Whatever is there is refused, or is a process that can be used.
    #[test]
    fn any_bytes_are_refused_or_a_process(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        length in prop::option::of(any::<prop::sample::Index>()),
    ) {
        use std::sync::LazyLock;
        static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| saved(&mut full()));
        let mut bytes = BYTES.clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len()));
        }
        if let Ok(process) = restore(&bytes, &[]) {
            let mut machine = Machine::new();
            machine.process = process;
            let snapshot = machine.process.clone();
            machine.schedule();
            for fd in 0..16 {
                if machine.process.threads() == 0 {
                    break;
                }
                machine.action("close", &[fd]);
                machine.schedule();
            }
            machine.process.reset_from(&snapshot);
        }
    }
}
