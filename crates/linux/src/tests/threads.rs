//! Threads, futexes, pipes and time.

use super::*;

const THREAD: u64 = 0x100 | 0x800 | 0x1_0000;
const PRIVATE: u64 = 128;

/// Makes a thread; the maker goes on.
fn spawn(machine: &mut Machine) -> u64 {
    machine.call("clone", &[THREAD | 0x8_0000, 0x3_0000, 0, 0x77, 0]).unwrap()
}

/// The thread id of the running thread.
fn current(machine: &mut Machine) -> u64 {
    machine.call("gettid", &[]).unwrap()
}

/// Lets the next thread run.
fn switch(machine: &mut Machine) {
    machine.process.preempt();
    assert_eq!(machine.schedule(), Schedule::Run);
}

#[test]
fn a_thread_starts_behind_the_call_with_its_own_registers() {
    let mut machine = Machine::new();
    let (parent, child) = (machine.put(&[0; 4]), machine.put(&[0; 4]));
    let flags = THREAD | 0x8_0000 | 0x10_0000 | 0x100_0000;
    let tid = machine.call("clone", &[flags, 0x3_0000, parent, 0x77, child]).unwrap();
    assert_eq!((u64::from(machine.u32_at(parent)), machine.u32_at(child)), (tid, tid as u32));
    switch(&mut machine);
    let cpu = machine.process.cpu();
    assert_eq!((cpu.result, cpu.sp, cpu.thread_pointer), (Some(0), 0x3_0000, 0x77));
    assert_eq!(current(&mut machine), tid);
    switch(&mut machine);
    assert_eq!(current(&mut machine), 100);
}

#[test]
fn threads_are_limited_and_processes_refused() {
    let mut machine = Machine::new();
    for _ in 1..limits().threads {
        spawn(&mut machine);
    }
    assert_eq!(machine.call("clone", &[THREAD, 0, 0, 0, 0]), Err(Errno::AGAIN));
    assert_eq!(machine.call("clone", &[17, 0, 0, 0, 0]), Err(Errno::NOSYS));
    let process = machine.words(&[0; 8]);
    assert_eq!(machine.call("clone3", &[process, 64]), Err(Errno::NOSYS));
    assert_eq!(machine.call("clone3", &[process, 63]), Err(Errno::INVAL));
    assert_eq!(machine.call("clone3", &[process, 5000]), Err(Errno::TOOBIG));
    let thread = machine.words(&[THREAD, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.call("clone3", &[thread, 64]), Err(Errno::AGAIN));
}

#[test]
fn clone3_takes_a_stack_by_its_start() {
    let mut machine = Machine::new();
    let word = machine.put(&[0; 4]);
    let flags = THREAD | 0x8_0000 | 0x10_0000;
    let args = machine.words(&[flags, 0, 0, word, 0, 0x3_0000, 0x1000, 0x1234, 0, 0, 0]);
    let tid = machine.call("clone3", &[args, 88]).unwrap();
    assert_eq!(u64::from(machine.u32_at(word)), tid);
    switch(&mut machine);
    let cpu = machine.process.cpu();
    assert_eq!((cpu.sp, cpu.thread_pointer, cpu.result), (0x3_1000, 0x1234, Some(0)));
}

#[test]
fn locks_of_a_thread_that_ends_are_given_up() {
    let mut machine = Machine::new();
    let tid = spawn(&mut machine);
    // The list's head, and two entries with their futexes 16 behind them; one is another's lock.
    let head = machine.words(&[0; 8]);
    let own = machine.words(&[0, 0, tid | 0x8000_0000]);
    let others = machine.words(&[head, 0, 100]);
    let lists = [(own, others), (head, own)];
    for (at, next) in lists {
        crate::guest::write_words(&mut machine.memory, at, &[next]).unwrap();
    }
    crate::guest::write_words(&mut machine.memory, head + 8, &[16]).unwrap();
    let waiting = [own + 16, 0, tid | 0x8000_0000, 0];
    assert_eq!(machine.action("futex", &waiting), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.call("set_robust_list", &[head, 23]), Err(Errno::INVAL));
    machine.call("set_robust_list", &[head, 24]).unwrap();
    assert_eq!(machine.action("exit", &[0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.result(), Ok(0));
    assert_eq!(machine.u32_at(own + 16), 0xc000_0000);
    assert_eq!(machine.u32_at(others + 16), 100);
}

#[test]
fn a_circle_of_robust_futexes_ends() {
    let mut machine = Machine::new();
    spawn(&mut machine);
    let entry = machine.words(&[0; 4]);
    crate::guest::write_words(&mut machine.memory, entry, &[entry]).unwrap();
    let head = machine.words(&[entry, 8, 0]);
    machine.call("set_robust_list", &[head, 24]).unwrap();
    assert_eq!(machine.action("exit", &[0]), Action::Resched);
}

#[test]
fn a_futex_wakes_in_order() {
    let mut machine = Machine::new();
    let word = machine.put(&7u32.to_le_bytes());
    let tids = [spawn(&mut machine), spawn(&mut machine)];
    for tid in tids {
        switch(&mut machine);
        // The main thread goes behind the others each time.
        while current(&mut machine) != tid {
            switch(&mut machine);
        }
        assert_eq!(machine.call("futex", &[word, PRIVATE, 8]), Err(Errno::AGAIN));
        assert_eq!(machine.action("futex", &[word, PRIVATE, 7, 0]), Action::Resched);
        assert_eq!(machine.schedule(), Schedule::Run);
    }
    assert_eq!(current(&mut machine), 100);
    assert_eq!(machine.call("futex", &[word, 1 | PRIVATE, 1]), Ok(1));
    assert_eq!(machine.call("futex", &[word, 1 | PRIVATE, 100]), Ok(1));
    assert_eq!(machine.call("futex", &[word, 1 | PRIVATE, 1]), Ok(0));
    machine.process.preempt();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.result(), Ok(0));
    assert_eq!(current(&mut machine), tids[0]);
    switch(&mut machine);
    assert_eq!(current(&mut machine), tids[1]);
}

#[test]
fn waiters_are_requeued_and_told_apart_by_bits() {
    let mut machine = Machine::new();
    let (first, second) = (machine.put(&[0; 4]), machine.put(&[0; 4]));
    for _ in 0..2 {
        spawn(&mut machine);
        switch(&mut machine);
        let bits = 2;
        assert_eq!(machine.action("futex", &[first, 9 | PRIVATE, 0, 0, 0, bits]), Action::Resched);
        assert_eq!(machine.schedule(), Schedule::Run);
    }
    assert_eq!(machine.call("futex", &[first, 10, 9, 0, 0, 1]), Ok(0));
    let requeue = |compare| [first, 4, 0, 9, second, compare];
    assert_eq!(machine.call("futex", &requeue(5)), Err(Errno::AGAIN));
    assert_eq!(machine.call("futex", &requeue(0)), Ok(2));
    assert_eq!(machine.call("futex", &[first, 1, 9]), Ok(0));
    assert_eq!(machine.call("futex", &[second, 10, 9, 0, 0, 2]), Ok(2));
}

#[test]
fn a_time_out_ends_a_wait() {
    let mut machine = Machine::new();
    let word = machine.put(&[0; 4]);
    let hour = machine.words(&[3600, 0]);
    assert_eq!(machine.action("futex", &[word, 0, 0, hour]), Action::Resched);
    let Schedule::Idle { until: Some(until) } = machine.schedule() else { panic!() };
    assert_eq!(machine.schedule_at(until), Schedule::Run);
    assert_eq!(machine.result(), Err(Errno::TIMEDOUT));
    assert_eq!(machine.action("nanosleep", &[hour, 0]), Action::Resched);
    let Schedule::Idle { until: Some(until) } = machine.schedule() else { panic!() };
    assert!(until > Instant::now());
    assert_eq!(machine.schedule_at(until), Schedule::Run);
    assert_eq!(machine.result(), Ok(0));
    let endless = machine.words(&[i64::MAX as u64, 0]);
    assert_eq!(machine.action("nanosleep", &[endless, 0]), Action::Resched);
    assert!(matches!(machine.schedule(), Schedule::Stalled | Schedule::Idle { .. }));
}

#[test]
fn a_deadlock_is_noticed() {
    let mut machine = Machine::new();
    let word = machine.put(&[0; 4]);
    spawn(&mut machine);
    for expected in [Schedule::Run, Schedule::Stalled] {
        assert_eq!(machine.action("futex", &[word, 0, 0, 0]), Action::Resched);
        assert_eq!(machine.schedule(), expected);
    }
}

#[test]
fn a_thread_that_ends_wakes_its_joiner() {
    let mut machine = Machine::new();
    let word = machine.put(&1u32.to_le_bytes());
    let clear = 0x20_0000;
    machine.call("clone", &[THREAD | clear, 0, 0, 0, word]).unwrap();
    assert_eq!(machine.action("futex", &[word, 0, 1, 0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.action("exit", &[3]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!((machine.u32_at(word), machine.result()), (0, Ok(0)));
    assert_eq!(machine.process.threads(), 1);
    assert_eq!(machine.action("exit", &[4]), Action::Exit(4));
}

#[test]
fn the_main_thread_may_end_first() {
    let mut machine = Machine::new();
    let tid = spawn(&mut machine);
    assert_eq!(machine.action("exit", &[0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(current(&mut machine), tid);
    assert_eq!(machine.action("exit_group", &[9]), Action::Exit(9));
}

#[test]
fn waiting_for_the_host_makes_the_call_again() {
    let mut machine = Machine::new();
    let number = sandtide_abi::call::READ;
    assert!(matches!(machine.raw(number, [0; 6]), Action::GuestCall { .. }));
    machine.process.wait_for_host();
    assert_eq!(machine.schedule(), Schedule::Idle { until: None });
    machine.process.wake_host_waiters();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert!(machine.process.cpu().restarted);
    assert!(matches!(machine.again(), Action::GuestCall { .. }));
}

#[test]
fn a_reader_waits_for_a_writer() {
    let mut machine = Machine::new();
    let pair = machine.put(&[0; 8]);
    machine.call("pipe2", &[pair, 0]).unwrap();
    let (reader, writer) = (u64::from(machine.u32_at(pair)), u64::from(machine.u32_at(pair + 4)));
    spawn(&mut machine);
    let buffer = machine.put(&[0; 16]);
    assert_eq!(machine.action("read", &[reader, buffer, 16]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    machine.write(writer, b"hello").unwrap();
    switch(&mut machine);
    assert!(!machine.process.cpu().restarted, "the host has made the call again");
    assert_eq!((machine.result(), machine.bytes(buffer, 5)), (Ok(5), b"hello".to_vec()));
    machine.call("close", &[writer]).unwrap();
    assert_eq!(machine.read(reader, 4).unwrap(), b"");
}

#[test]
fn poll_waits_and_keeps_its_deadline() {
    let mut machine = Machine::new();
    let pair = machine.put(&[0; 8]);
    machine.call("pipe2", &[pair, 0]).unwrap();
    let (reader, writer) = (u64::from(machine.u32_at(pair)), u64::from(machine.u32_at(pair + 4)));
    let entry = machine.words(&[reader | 1 << 32]);
    let zero = machine.words(&[0, 0]);
    let hour = machine.words(&[3600, 0]);
    assert_eq!(machine.call("ppoll", &[entry, 1, zero, 0, 0]), Ok(0));
    assert_eq!(machine.action("ppoll", &[entry, 1, hour, 0, 0]), Action::Resched);
    let Schedule::Idle { until: Some(until) } = machine.schedule() else { panic!() };
    assert_eq!(machine.schedule_at(until), Schedule::Run);
    assert_eq!(machine.result(), Ok(0));
    machine.write(writer, b"x").unwrap();
    assert_eq!(machine.call("ppoll", &[entry, 1, 0, 0, 0]), Ok(1));
    assert_eq!(machine.bytes(entry + 6, 2), [1, 0]);
    let set = machine.words(&[1 << reader, 0]);
    assert_eq!(machine.call("pselect6", &[reader + 1, set, 0, 0, 0, 0]), Ok(1));
    assert_eq!(machine.call("pselect6", &[64, machine.next - 16, 0, 0, zero, 0]), Ok(1));
}

#[test]
fn clocks_go_forward() {
    let mut machine = Machine::new();
    let time = machine.words(&[0, 0]);
    for clock in [0, 1, 4, 7] {
        machine.call("clock_gettime", &[clock, time]).unwrap();
        let first = machine.bytes(time, 16);
        assert_ne!(first[..8], [0; 8]);
    }
    machine.call("clock_gettime", &[2, time]).unwrap();
    let used = machine.bytes(time, 16);
    let [seconds, nanoseconds] =
        [&used[..8], &used[8..]].map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    assert!(seconds > 0 || nanoseconds >= 5_000_000, "less than before: {nanoseconds} ns");
    assert_eq!(machine.call("clock_gettime", &[99, time]), Err(Errno::INVAL));
}
