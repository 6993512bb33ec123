//! Signals.

use super::*;
use crate::{Delivered, SignalInfo};

const HANDLER: u64 = 0x1_2340;
const ABORT: u64 = 6;
const SEGV: u64 = 11;
const USER: u64 = 10;
const ONSTACK: u64 = 0x0800_0000;
const RESTART: u64 = 0x1000_0000;
const RESETHAND: u64 = 0x8000_0000;

fn handle(machine: &mut Machine, signal: u64, flags: u64, mask: u64) {
    let action = machine.words(&[HANDLER, flags, mask]);
    machine.call("rt_sigaction", &[signal, action, 0, 8]).unwrap();
}

fn mask(machine: &mut Machine) -> u64 {
    let old = machine.words(&[0]);
    machine.call("rt_sigprocmask", &[0, 0, old, 8]).unwrap();
    crate::guest::read_u64(&machine.memory, old).unwrap()
}

fn set_mask(machine: &mut Machine, mask: u64) {
    let new = machine.words(&[mask]);
    machine.call("rt_sigprocmask", &[2, new, 0, 8]).unwrap();
}

#[test]
fn abort_ends_the_process() {
    let mut machine = Machine::new();
    assert_eq!(machine.action("tgkill", &[100, 100, ABORT]), Action::Killed(6));
    let mut machine = Machine::new();
    assert_eq!(machine.action("kill", &[100, 9]), Action::Killed(9));
    let mut machine = Machine::new();
    assert_eq!(machine.call("kill", &[1, 9]), Err(Errno::SRCH));
    assert_eq!(machine.call("tgkill", &[100, 100, 17]), Ok(0));
    assert_eq!(machine.call("tgkill", &[100, 100, 0]), Ok(0));
    assert_eq!(machine.call("tgkill", &[100, 100, 65]), Err(Errno::INVAL));
}

#[test]
fn a_handler_runs_and_returns() {
    let mut machine = Machine::new();
    handle(&mut machine, USER, 0, 1 << 14);
    let sp = machine.process.cpu().sp;
    assert_eq!(machine.call("tkill", &[100, USER]), Ok(0));
    assert_eq!(machine.process.cpu().pc, HANDLER);
    assert_eq!(mask(&mut machine), 1 << 14 | 1 << 9);
    // A second one waits for the handler to return.
    assert_eq!(machine.call("tkill", &[100, USER]), Ok(0));
    let inner = machine.process.cpu().sp;
    assert_eq!(machine.action("rt_sigreturn", &[]), Action::Resched, "with all registers");
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.process.cpu().pc, HANDLER);
    assert_eq!(machine.process.cpu().sp, inner);
    assert_eq!(machine.action("rt_sigreturn", &[]), Action::Continue);
    assert_eq!((machine.process.cpu().pc, machine.process.cpu().sp), (0x1_0000, sp));
    assert_eq!(mask(&mut machine), 0);
}

#[test]
fn a_trap_reaches_its_handler_on_the_other_stack() {
    let mut machine = Machine::new();
    let info = SignalInfo { signal: SEGV as u8, code: 1, address: 0x1000 };
    let deliver = |machine: &mut Machine| machine.process.deliver(info, &mut machine.memory);
    assert_eq!(deliver(&mut machine), Delivered::Fatal(11));
    handle(&mut machine, SEGV, ONSTACK | RESETHAND, 0);
    let stack = machine.words(&[0x3_0000, 0, 0x4000]);
    machine.call("sigaltstack", &[stack, 0]).unwrap();
    assert_eq!(deliver(&mut machine), Delivered::Handler);
    assert_eq!(machine.process.cpu().sp, 0x3_4000 - 32);
    // Reset to the default, and blocked besides.
    assert_eq!(deliver(&mut machine), Delivered::Fatal(11));
    machine.action("rt_sigreturn", &[]);
    assert_eq!(deliver(&mut machine), Delivered::Fatal(11));
    let bad = SignalInfo { signal: 0, ..info };
    assert_eq!(machine.process.deliver(bad, &mut machine.memory), Delivered::Fatal(0));
}

#[test]
fn a_blocked_trap_and_a_bad_stack_are_fatal() {
    let mut machine = Machine::new();
    let info = SignalInfo { signal: SEGV as u8, code: 1, address: 0 };
    handle(&mut machine, SEGV, 0, 0);
    set_mask(&mut machine, 1 << 10);
    assert_eq!(machine.process.deliver(info, &mut machine.memory), Delivered::Fatal(11));
    set_mask(&mut machine, 0);
    machine.process.cpu().sp = 8;
    assert_eq!(machine.process.deliver(info, &mut machine.memory), Delivered::Fatal(11));
}

#[test]
fn a_blocked_signal_waits() {
    let mut machine = Machine::new();
    set_mask(&mut machine, u64::MAX);
    assert_eq!(mask(&mut machine), !(1 << 8 | 1 << 18));
    machine.call("tkill", &[100, USER]).unwrap();
    let set = machine.words(&[0]);
    machine.call("rt_sigpending", &[set, 8]).unwrap();
    assert_eq!(machine.bytes(set, 8), (1u64 << 9).to_le_bytes());
    let none = machine.words(&[0]);
    let action = machine.action("rt_sigprocmask", &[2, none, 0, 8]);
    assert_eq!(action, Action::Killed(USER as u8));
}

#[test]
fn a_signal_ends_a_wait() {
    for (flags, restarts) in [(0, false), (RESTART, true)] {
        let mut machine = Machine::new();
        handle(&mut machine, USER, flags, 0);
        let word = machine.put(&[0; 4]);
        machine.call("clone", &[0x1_0900, 0, 0, 0, 0]).unwrap();
        assert_eq!(machine.action("futex", &[word, 0, 0, 0]), Action::Resched);
        assert_eq!(machine.schedule(), Schedule::Run);
        machine.call("tkill", &[100, USER]).unwrap();
        machine.process.preempt();
        assert_eq!(machine.schedule(), Schedule::Run);
        let cpu = machine.process.cpu();
        assert_eq!((cpu.pc, cpu.restarted), (HANDLER, restarts));
        if !restarts {
            assert_eq!(machine.result(), Err(Errno::INTR));
        }
    }
}

#[test]
fn sigsuspend_restores_the_mask() {
    let mut machine = Machine::new();
    handle(&mut machine, USER, 0, 0);
    set_mask(&mut machine, 1 << 9);
    machine.call("clone", &[0x1_0900, 0, 0, 0, 0]).unwrap();
    let open = machine.words(&[0]);
    assert_eq!(machine.action("rt_sigsuspend", &[open, 8]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    machine.call("tkill", &[100, USER]).unwrap();
    machine.process.preempt();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.process.cpu().pc, HANDLER);
    assert_eq!(machine.result(), Err(Errno::INTR));
    machine.action("rt_sigreturn", &[]);
    assert_eq!(mask(&mut machine), 1 << 9);
}

#[test]
fn a_pipe_without_readers_kills() {
    let mut machine = Machine::new();
    let pair = machine.put(&[0; 8]);
    machine.call("pipe2", &[pair, 0]).unwrap();
    let (reader, writer) = (u64::from(machine.u32_at(pair)), u64::from(machine.u32_at(pair + 4)));
    machine.call("close", &[reader]).unwrap();
    let ignore = machine.words(&[1, 0, 0]);
    machine.call("rt_sigaction", &[13, ignore, 0, 8]).unwrap();
    assert_eq!(machine.write(writer, b"x"), Err(Errno::PIPE));
    let default = machine.words(&[0, 0, 0]);
    machine.call("rt_sigaction", &[13, default, 0, 8]).unwrap();
    assert_eq!(machine.action("write", &[writer, DATA, 1]), Action::Killed(13));
}
