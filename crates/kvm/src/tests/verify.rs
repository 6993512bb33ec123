//! A sandbox that is not what its snapshot is is found out: what a request may have left is planted
//! where no guest gets at.

use std::sync::Arc;

use kvm_bindings::{Msrs, kvm_msr_entry, kvm_xsave};
use sandtide_engine::{Limits, Mismatch, Sandbox as _, Scrutiny};

use super::{
    guests::{CODE, DATA, Quiet, has_kvm, source},
    sandboxes::{TIME, counts, renew, serve},
};
use crate::{machine::Machine, paging::TABLES, program, sandbox::KvmSandbox, stubs::VECTORS_AREA};

/// A sandbox that has served and was reset.
fn used() -> KvmSandbox {
    let program = program::load(&source(counts()), &Limits::default(), &Quiet).unwrap();
    let mut sandbox = KvmSandbox::new(program, Arc::new(Quiet)).unwrap();
    assert_eq!(serve(&mut sandbox, TIME).0.unwrap(), "111111\n");
    renew(&mut sandbox);
    sandbox
}

#[test]
fn what_is_left_in_memory_is_found() {
    if !has_kvm() {
        return;
    }
    // Code, data that the request wrote and data that it did not, what was never mapped, the
    // snapshot's vector registers, and page tables.
    for address in [CODE, DATA, DATA + 0x8000, CODE + 0x20_0000, VECTORS_AREA, TABLES] {
        let mut sandbox = used();
        sandbox.machine().memory.write_behind(address, 0xa5);
        let found = sandbox.verify(Scrutiny::Everything);
        assert!(matches!(found, Err(Mismatch::Bytes(at)) if at == address), "{found:?}");
        let sampled = (0..20_000).any(|_| sandbox.verify(Scrutiny::Sample).is_err());
        assert!(sampled, "no sample has come upon {address:#x}");
    }
}

/// Plants something, and the part that it is found in.
type Plant = (&'static str, fn(&mut Machine));

fn set_msr(machine: &mut Machine, index: u32, data: u64) {
    let entry = kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
    let set = machine.vcpu.fd().set_msrs(&Msrs::from_entries(&[entry]).unwrap());
    assert_eq!(set.unwrap(), 1);
}

#[test]
fn what_is_left_elsewhere_is_found() {
    if !has_kvm() {
        return;
    }
    let plants: [Plant; 5] = [
        ("registers", |machine| machine.process.cpu().general.r15 = 1),
        ("registers", |machine| machine.process.cpu().fs ^= 8),
        ("registers", |machine| {
            let mut extended = kvm_xsave::default();
            extended.region[40] = 1;
            machine.process.cpu().extended = Some(Arc::new(extended));
        }),
        // KERNEL_GS_BASE
        ("model-specific registers", |machine| set_msr(machine, 0xc000_0102, 7)),
        ("breakpoints", |machine| {
            let mut registers = machine.vcpu.fd().get_debug_regs().unwrap();
            registers.db[0] = CODE;
            machine.vcpu.fd().set_debug_regs(&registers).unwrap();
        }),
    ];
    for (part, plant) in plants {
        let mut sandbox = used();
        plant(sandbox.machine());
        for scrutiny in [Scrutiny::Sample, Scrutiny::Everything] {
            let found = sandbox.verify(scrutiny);
            assert!(matches!(found, Err(Mismatch::Part(at)) if at == part), "{part}: {found:?}");
        }
    }
}

#[test]
fn an_exception_under_way_does_not_reach_the_next_request() {
    if !has_kvm() {
        return;
    }
    let mut sandbox = used();
    let fd = sandbox.machine().vcpu.fd();
    let mut events = fd.get_vcpu_events().unwrap();
    (events.exception.injected, events.exception.nr) = (1, 6);
    fd.set_vcpu_events(&events).unwrap();
    assert_eq!(serve(&mut sandbox, TIME).0.unwrap(), "111111\n");
}
