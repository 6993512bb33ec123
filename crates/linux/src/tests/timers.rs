//! timerfd, alarms, and signals that are taken without a handler.

use super::*;

const NONBLOCK: u64 = 0o4000;
const MONOTONIC: u64 = 1;
const SIGALRM: u64 = 14;
const USER: u64 = 10;

fn timer(machine: &mut Machine, first: [u64; 2], interval: [u64; 2]) -> u64 {
    let timer = machine.call("timerfd_create", &[MONOTONIC, NONBLOCK]).unwrap();
    let times = machine.words(&[interval, first].concat());
    machine.call("timerfd_settime", &[timer, 0, times, 0]).unwrap();
    timer
}

#[test]
fn a_timer_that_has_happened_is_read_once() {
    let mut machine = Machine::new();
    let past = timer(&mut machine, [0, 1], [0, 0]);
    while machine.read(past, 8) == Err(Errno::AGAIN) {}
    assert_eq!(machine.read(past, 8), Err(Errno::AGAIN));
    let times = machine.words(&[0; 4]);
    machine.call("timerfd_gettime", &[past, times]).unwrap();
    assert_eq!(machine.bytes(times, 32), [0; 32]);
    let later = timer(&mut machine, [3600, 0], [7, 0]);
    assert_eq!(machine.read(later, 8), Err(Errno::AGAIN));
    machine.call("timerfd_gettime", &[later, times]).unwrap();
    assert_eq!(machine.u32_at(times), 7);
    assert!((3590..=3600).contains(&machine.u32_at(times + 16)));
    assert_eq!(machine.write(later, &[0; 8]), Err(Errno::INVAL));
}

#[test]
fn who_waits_for_a_timer_is_idle_until_then() {
    let mut machine = Machine::new();
    let timer = timer(&mut machine, [3600, 0], [0, 0]);
    let set = machine.call("epoll_create1", &[0]).unwrap();
    let event = machine.words(&[1, 5]);
    machine.call("epoll_ctl", &[set, 1, timer, event]).unwrap();
    let call = [set, event, 1, u64::MAX, 0, 0];
    assert_eq!(machine.action("epoll_pwait", &call), Action::Resched);
    let Schedule::Idle { until: Some(until) } = machine.schedule() else { panic!() };
    assert!(until > Instant::now() + Duration::from_secs(3590));
}

#[test]
fn nobody_waits_for_a_timer_that_nobody_can_see() {
    let mut machine = Machine::new();
    timer(&mut machine, [3600, 0], [0, 0]);
    let word = machine.put(&[0; 4]);
    assert_eq!(machine.action("futex", &[word, 0, 0, 0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Stalled);
}

/// What a clock shows, in milliseconds.
pub(super) fn clock(machine: &mut Machine, id: u64) -> u64 {
    let time = machine.words(&[0, 0]);
    machine.call("clock_gettime", &[id, time]).unwrap();
    let [seconds, nanoseconds] = crate::guest::words(&machine.memory, time).unwrap();
    seconds * 1000 + nanoseconds / 1_000_000
}

#[test]
fn the_time_between_snapshot_and_request_does_not_pass() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut machine = Machine::new();
    let timer = timer(&mut machine, [60, 0], [0, 0]);
    let real = machine.call("timerfd_create", &[0, NONBLOCK]).unwrap();
    let times = machine.words(&[0, 0, 60, 0]);
    machine.call("timerfd_settime", &[real, 0, times, 0]).unwrap();
    machine.call("setitimer", &[0, times, 0]).unwrap();
    let entry = machine.words(&[timer | 1 << 32]);
    let before = [0, 1, 7].map(|id| clock(&mut machine, id));
    let ninety = machine.words(&[90, 0]);
    assert_eq!(machine.action("ppoll", &[entry, 1, ninety, 0, 0]), Action::Resched);
    assert!(matches!(machine.schedule(), Schedule::Idle { .. }));
    let snapshot = machine.process.clone();
    for round in 1..=2 {
        machine.process.reset_from(&snapshot);
        let later = Instant::now() + round * HOUR;
        let Schedule::Idle { until: Some(until) } = machine.schedule_at(later) else { panic!() };
        // The host's clock has not gone on, as the test does not wait: what has passed for the
        // guest is less than nothing.
        let left = until - later;
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60), "{left:?}");
    }
    let mut late = snapshot.clone();
    late.kernel.go_on(Instant::now() + HOUR);
    machine.process = late;
    let after = [0, 1, 7].map(|id| clock(&mut machine, id));
    assert!(after[0] >= before[0] && after[2] >= before[2], "the true time");
    assert!(after[1] + 3_500_000 < before[1], "an hour that the test has not waited");
}

#[test]
fn a_sleep_until_a_time_of_day_ends_then() {
    let mut machine = Machine::new();
    let now = clock(&mut machine, 0) / 1000;
    let at = machine.words(&[now + 60, 0]);
    assert_eq!(machine.action("clock_nanosleep", &[0, 1, at, 0]), Action::Resched);
    assert!(matches!(machine.schedule(), Schedule::Idle { .. }));
    let snapshot = machine.process.clone();
    machine.process.reset_from(&snapshot);
    assert_eq!(machine.schedule_at(Instant::now() + Duration::from_secs(120)), Schedule::Run);
    assert_eq!(machine.result(), Ok(0));
}

#[test]
fn wild_times_are_refused() {
    let mut machine = Machine::new();
    let timer = machine.call("timerfd_create", &[0, 0]).unwrap();
    let times = machine.words(&[0, 0, 0, 1_000_000_000]);
    assert_eq!(machine.call("timerfd_settime", &[timer, 0, times, 0]), Err(Errno::INVAL));
    let times = machine.words(&[0, 1, i64::MAX as u64, 0]);
    assert_eq!(machine.call("timerfd_settime", &[timer, 1, times, 0]), Ok(0));
    assert_eq!(machine.call("timerfd_settime", &[timer, 8, times, 0]), Err(Errno::INVAL));
    assert_eq!(machine.call("timerfd_settime", &[1, 0, times, 0]), Err(Errno::INVAL));
    assert_eq!(machine.call("timerfd_create", &[2, 0]), Err(Errno::INVAL));
}

#[test]
fn an_alarm_sends_its_signal_again_and_again() {
    let mut machine = Machine::new();
    let action = machine.words(&[0x1_2340, 0, 0]);
    machine.call("rt_sigaction", &[SIGALRM, action, 0, 8]).unwrap();
    let times = machine.words(&[60, 0, 3600, 0]);
    machine.call("setitimer", &[0, times, 0]).unwrap();
    let word = machine.put(&[0; 4]);
    assert_eq!(machine.action("futex", &[word, 0, 0, 0]), Action::Resched);
    let Schedule::Idle { until: Some(until) } = machine.schedule() else { panic!() };
    machine.process.ring(Instant::now());
    assert_eq!(machine.schedule(), Schedule::Idle { until: Some(until) });
    machine.process.ring(until);
    assert_eq!(machine.schedule_at(until), Schedule::Run);
    assert_eq!(machine.result(), Err(Errno::INTR));
    assert_eq!(machine.process.cpu().pc, 0x1_2340);
    assert!(!machine.process.has_due_alarm(until));
    assert!(machine.process.has_due_alarm(until + Duration::from_secs(60)));
    assert_eq!(machine.call("setitimer", &[1, times, 0]), Err(Errno::INVAL));
}

#[test]
fn blocked_signals_are_taken_by_number() {
    let mut machine = Machine::new();
    let set = machine.words(&[1 << (USER - 1)]);
    machine.call("rt_sigprocmask", &[0, set, 0, 8]).unwrap();
    let signals = machine.call("signalfd4", &[u64::MAX, set, 8, NONBLOCK]).unwrap();
    assert_eq!(machine.read(signals, 128), Err(Errno::AGAIN));
    for _ in 0..2 {
        machine.call("tkill", &[100, USER]).unwrap();
    }
    let info = machine.read(signals, 300).unwrap();
    assert_eq!((info.len(), info[0], info[12]), (128, USER as u8, 100));
    assert_eq!(machine.read(signals, 128), Err(Errno::AGAIN));
    let (zero, info) = (machine.words(&[0, 0]), machine.put(&[0; 128]));
    assert_eq!(machine.call("rt_sigtimedwait", &[set, info, zero, 8]), Err(Errno::AGAIN));
    machine.call("kill", &[100, USER]).unwrap();
    assert_eq!(machine.call("rt_sigtimedwait", &[set, info, zero, 8]), Ok(USER));
    assert_eq!(machine.u32_at(info + 16), 100);
    let hour = machine.words(&[3600, 0]);
    assert_eq!(machine.action("rt_sigtimedwait", &[set, info, hour, 8]), Action::Resched);
    let Schedule::Idle { until: Some(until) } = machine.schedule() else { panic!() };
    assert_eq!(machine.schedule_at(until), Schedule::Run);
    assert_eq!(machine.result(), Err(Errno::AGAIN));
}
