//! Waiting for descriptions: epoll sets and what they watch.

use super::*;

const IN: u64 = 1;
const OUT: u64 = 4;
const HANG_UP: u64 = 0x10;
const ONE_SHOT: u64 = 1 << 30;
const EDGE: u64 = 1 << 31;

const ADD: u64 = 1;
const REMOVE: u64 = 2;
const MODIFY: u64 = 3;

const NONBLOCK: u64 = 0o4000;

impl Machine {
    fn pipe(&mut self) -> (u64, u64) {
        let pair = self.put(&[0; 8]);
        self.call("pipe2", &[pair, NONBLOCK]).unwrap();
        (u64::from(self.u32_at(pair)), u64::from(self.u32_at(pair + 4)))
    }

    fn control(&mut self, set: u64, operation: u64, fd: u64, events: u64) -> Result<u64, Errno> {
        let event = self.words(&[events, fd + 1000]);
        self.call("epoll_ctl", &[set, operation, fd, event])
    }

    /// Events and data of up to four watches, without waiting.
    fn events(&mut self, set: u64) -> Vec<(u64, u64)> {
        let buffer = self.words(&[0; 8]);
        let count = self.call("epoll_pwait", &[set, buffer, 4, 0, 0, 0]).unwrap();
        let words = self.bytes(buffer, 16 * count);
        let words: Vec<u64> =
            words.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        words.as_chunks::<2>().0.iter().map(|[events, data]| (*events, data - 1000)).collect()
    }

    fn epoll(&mut self) -> u64 {
        self.call("epoll_create1", &[0]).unwrap()
    }

    fn counter(&mut self) -> u64 {
        self.call("eventfd2", &[0, NONBLOCK]).unwrap()
    }
}

#[test]
fn a_level_is_reported_as_long_as_it_lasts() {
    let mut machine = Machine::new();
    let (set, (reader, writer)) = (machine.epoll(), machine.pipe());
    machine.control(set, ADD, reader, IN).unwrap();
    machine.control(set, ADD, writer, OUT).unwrap();
    assert_eq!(machine.control(set, ADD, reader, IN), Err(Errno::EXIST));
    assert_eq!(machine.events(set), [(OUT, writer)]);
    machine.write(writer, b"ab").unwrap();
    for _ in 0..2 {
        assert_eq!(machine.events(set), [(IN, reader), (OUT, writer)]);
    }
    machine.read(reader, 2).unwrap();
    assert_eq!(machine.events(set), [(OUT, writer)]);
    machine.control(set, MODIFY, reader, 0).unwrap();
    machine.control(set, REMOVE, writer, 0).unwrap();
    assert_eq!(machine.control(set, REMOVE, writer, 0), Err(Errno::NOENT));
    assert_eq!(machine.events(set), []);
    machine.call("close", &[writer]).unwrap();
    assert_eq!(machine.events(set), [(HANG_UP, reader)], "without being asked for");
}

#[test]
fn an_edge_is_reported_once() {
    let mut machine = Machine::new();
    let (set, counter) = (machine.epoll(), machine.counter());
    machine.control(set, ADD, counter, IN | OUT | EDGE).unwrap();
    assert_eq!(machine.events(set), [(OUT, counter)]);
    assert_eq!(machine.events(set), []);
    for _ in 0..2 {
        machine.write(counter, &1u64.to_le_bytes()).unwrap();
        assert_eq!(machine.events(set), [(IN | OUT, counter)], "each write is an edge");
        assert_eq!(machine.events(set), []);
    }
    assert_eq!(machine.read(counter, 8).unwrap(), 2u64.to_le_bytes());
    assert_eq!(machine.read(counter, 8), Err(Errno::AGAIN));
    assert_eq!(machine.events(set), [(OUT, counter)]);
    machine.control(set, MODIFY, counter, OUT | EDGE).unwrap();
    assert_eq!(machine.events(set), [(OUT, counter)], "a change of the watch arms it");
}

#[test]
fn a_one_shot_watch_is_off_until_it_is_changed() {
    let mut machine = Machine::new();
    let (set, counter) = (machine.epoll(), machine.counter());
    machine.control(set, ADD, counter, OUT | ONE_SHOT).unwrap();
    assert_eq!(machine.events(set), [(OUT, counter)]);
    assert_eq!(machine.events(set), []);
    machine.control(set, MODIFY, counter, OUT | ONE_SHOT).unwrap();
    assert_eq!(machine.events(set), [(OUT, counter)]);
}

#[test]
fn who_takes_few_events_takes_others_each_time() {
    let mut machine = Machine::new();
    let set = machine.epoll();
    let counters: Vec<u64> = (0..3).map(|_| machine.counter()).collect();
    for counter in &counters {
        machine.control(set, ADD, *counter, OUT).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..4 {
        let buffer = machine.words(&[0; 2]);
        assert_eq!(machine.call("epoll_pwait", &[set, buffer, 1, 0, 0, 0]), Ok(1));
        seen.push(u64::from(machine.u32_at(buffer + 8)) - 1000);
    }
    assert_eq!(seen, [counters[0], counters[1], counters[2], counters[0]]);
}

#[test]
fn a_watch_goes_with_the_last_descriptor_of_its_description() {
    let mut machine = Machine::new();
    let (set, counter) = (machine.epoll(), machine.counter());
    machine.control(set, ADD, counter, OUT).unwrap();
    let copy = machine.call("dup", &[counter]).unwrap();
    machine.control(set, ADD, copy, OUT).unwrap();
    machine.call("close", &[counter]).unwrap();
    assert_eq!(machine.events(set), [(OUT, counter), (OUT, copy)]);
    machine.call("close", &[copy]).unwrap();
    assert_eq!(machine.events(set), []);
    let other = machine.counter();
    assert_eq!(other, counter, "the number again, but another description");
    machine.control(set, ADD, other, OUT).unwrap();
}

#[test]
fn sets_watch_sets_but_not_in_circles() {
    let mut machine = Machine::new();
    let (outer, inner, counter) = (machine.epoll(), machine.epoll(), machine.counter());
    machine.control(outer, ADD, inner, IN).unwrap();
    assert_eq!(machine.events(outer), []);
    machine.control(inner, ADD, counter, OUT).unwrap();
    assert_eq!(machine.events(outer), [(IN, inner)]);
    assert_eq!(machine.control(inner, ADD, outer, IN), Err(Errno::LOOP));
    assert_eq!(machine.control(inner, ADD, inner, IN), Err(Errno::INVAL));
    let mut top = outer;
    for _ in 0..3 {
        let next = machine.epoll();
        machine.control(next, ADD, top, IN).unwrap();
        top = next;
    }
    assert_eq!(machine.events(top), [(IN, top - 1)]);
    let next = machine.epoll();
    assert_eq!(machine.control(next, ADD, top, IN), Err(Errno::LOOP));
}

#[test]
fn watches_are_limited() {
    let mut machine = Machine::new();
    let counter = machine.counter();
    let copies: Vec<u64> = (0..7).map(|_| machine.call("dup", &[counter]).unwrap()).collect();
    let mut results = Vec::new();
    while let Ok(set) = machine.call("epoll_create1", &[0]) {
        for copy in &copies {
            results.push(machine.control(set, ADD, *copy, 0));
        }
    }
    let allowed = 2 * limits().descriptors as usize;
    assert!(results[..allowed].iter().all(Result::is_ok));
    assert_eq!(results[allowed..], [Err(Errno::NOSPC); 3]);
    assert_eq!(machine.call("eventfd2", &[0, 0]), Err(Errno::MFILE));
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let mut machine = Machine::new();
    let set = machine.epoll();
    let file = machine.open("/tmp/file", 0o102).unwrap();
    assert_eq!(machine.control(set, ADD, file, IN), Err(Errno::PERM));
    assert_eq!(machine.control(set, ADD, 99, IN), Err(Errno::BADF));
    assert_eq!(machine.control(file, ADD, 0, IN), Err(Errno::INVAL));
    assert_eq!(machine.call("epoll_ctl", &[set, ADD, 0, 8]), Err(Errno::FAULT));
    let buffer = machine.words(&[0; 2]);
    assert_eq!(machine.call("epoll_pwait", &[set, buffer, 0, 0, 0, 0]), Err(Errno::INVAL));
    machine.control(set, ADD, 1, OUT).unwrap();
    assert_eq!(machine.call("epoll_pwait", &[set, 8, 4, 0, 0, 0]), Err(Errno::FAULT));
    assert_eq!(machine.events(set), [(OUT, 1)]);
}

#[test]
fn a_waiting_thread_takes_events_without_making_its_call_again() {
    let mut machine = Machine::new();
    let (set, counter) = (machine.epoll(), machine.counter());
    machine.control(set, ADD, counter, IN | EDGE).unwrap();
    machine.call("clone", &[0x1_0900, 0x3_0000, 0, 0, 0]).unwrap();
    let buffer = machine.words(&[0; 2]);
    assert_eq!(machine.action("epoll_pwait", &[set, buffer, 1, u64::MAX, 0, 0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    machine.write(counter, &7u64.to_le_bytes()).unwrap();
    machine.process.preempt();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert!(!machine.process.cpu().restarted);
    assert_eq!(machine.result(), Ok(1));
    assert_eq!(u64::from(machine.u32_at(buffer + 8)), counter + 1000);
    let second = machine.words(&[0, 1_000_000]);
    let call = [set, buffer, 1, second, 0, 0];
    assert_eq!(machine.action("epoll_pwait2", &call), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run, "the other thread");
    machine.process.preempt();
    let later = Instant::now() + Duration::from_secs(1);
    assert_eq!(machine.schedule_at(later), Schedule::Run);
}

#[test]
fn a_signal_that_the_mask_of_a_call_lets_in_ends_the_wait() {
    let mut machine = Machine::new();
    let set = machine.epoll();
    let action = machine.words(&[0x1_0010, 0, 0]);
    machine.call("rt_sigaction", &[10, action, 0, 8]).unwrap();
    let mask = machine.words(&[1 << 9]);
    machine.call("rt_sigprocmask", &[0, mask, 0, 8]).unwrap();
    machine.call("tkill", &[100, 10]).unwrap();
    let none = machine.words(&[0]);
    let buffer = machine.words(&[0; 2]);
    let sp = 0x3_8000;
    machine.process.cpu().sp = sp;
    let call = [set, buffer, 1, u64::MAX, none, 8];
    assert_eq!(machine.action("epoll_pwait", &call), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.result(), Err(Errno::INTR));
    assert_eq!(machine.process.cpu().pc, 0x1_0010, "in the handler");
    assert_eq!(machine.process.kernel.threads.current().mask, 1 << 9);
}

#[test]
fn semaphores_and_full_counters_wait() {
    let mut machine = Machine::new();
    let semaphore = machine.call("eventfd2", &[2, 1]).unwrap();
    for _ in 0..2 {
        assert_eq!(machine.read(semaphore, 8).unwrap(), 1u64.to_le_bytes());
    }
    let buffer = machine.words(&[u64::MAX - 1]);
    assert_eq!(machine.action("read", &[semaphore, buffer, 8]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Stalled);
    let mut machine = Machine::new();
    let counter = machine.counter();
    machine.write(counter, &(u64::MAX - 1).to_le_bytes()).unwrap();
    assert_eq!(machine.write(counter, &1u64.to_le_bytes()), Err(Errno::AGAIN));
    assert_eq!(machine.write(counter, &u64::MAX.to_le_bytes()), Err(Errno::INVAL));
    assert_eq!(machine.write(counter, b"short"), Err(Errno::INVAL));
}
