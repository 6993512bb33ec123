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
