//! What a program finds when it starts.

use super::*;
use crate::guest;

/// The words from the stack pointer on.
fn stack(machine: &mut Machine) -> Vec<u64> {
    let sp = machine.process.cpu().sp;
    assert_eq!(sp % 16, 0);
    guest::words::<44>(&machine.memory, sp).unwrap().to_vec()
}

fn string(machine: &Machine, address: u64) -> String {
    String::from_utf8(guest::path(&machine.memory, address).unwrap()).unwrap()
}

#[test]
fn the_stack_has_arguments_environment_and_auxiliary_vector() {
    let mut machine = Machine::new();
    let words = stack(&mut machine);
    assert_eq!(words[0], 2);
    assert_eq!(string(&machine, words[1]), "program");
    assert_eq!(string(&machine, words[2]), "one");
    assert_eq!(words[3], 0);
    assert_eq!(string(&machine, words[4]), "KEY=value");
    assert_eq!(words[5], 0);
    let auxv: Vec<[u64; 2]> =
        words[6..].as_chunks::<2>().0.iter().copied().take_while(|pair| pair[0] != 0).collect();
    let value = |key| auxv.iter().find(|pair| pair[0] == key).map(|pair| pair[1]);
    assert_eq!(value(3), Some(0x1_0040));
    assert_eq!(value(6), Some(PAGE));
    assert_eq!(value(9), Some(0x1_0000));
    assert_eq!(value(16), Some(0x1105));
    assert_eq!(value(23), Some(0));
    assert_eq!(string(&machine, value(31).unwrap()), "/bin/program");
    assert_ne!(machine.bytes(value(25).unwrap(), 16), [0; 16]);
}

#[test]
fn the_stack_has_a_guard_and_lies_near_the_image() {
    let mut machine = Machine::new();
    let sp = machine.process.cpu().sp;
    assert!(sp < image().brk_start + (2 << 20));
    let bottom =
        (0..sp / PAGE).rev().find(|page| machine.memory.protection(page * PAGE).is_none()).unwrap();
    assert!(sp - bottom * PAGE >= STACK - 2 * PAGE);
    assert!(bottom * PAGE >= image().brk_start);
}

#[test]
fn too_many_arguments_are_refused() {
    let limits = limits();
    let args = vec!["x".repeat(1000); 300];
    let setup = ProcessSetup {
        program: "p",
        args: &args,
        env: &[],
        reseed: true,
        files: &[],
        limits: &limits,
        stack: STACK,
        hardware: Hardware::default(),
        directory: "/",
        network: None,
    };
    let mut memory = FlatMemory::new(16 << 20);
    let mut random = StdRng::seed_from_u64(1);
    let cpu = FakeCpu::<false>::default();
    let result = Process::start(&image(), &setup, cpu, &mut memory, &mut random);
    assert!(matches!(result, Err(StartError::ArgumentsTooLong { .. })));
}

#[test]
fn an_image_that_leaves_no_room_is_refused() {
    let limits = limits();
    let setup = ProcessSetup {
        program: "p",
        args: &[],
        env: &[],
        reseed: true,
        files: &[],
        limits: &limits,
        stack: STACK,
        hardware: Hardware::default(),
        directory: "/",
        network: None,
    };
    for (start, end, fits) in
        [(0x1_0000, 16 << 20, false), (15 << 20, 16 << 20, true), (0, !0xfff, false)]
    {
        let mut memory = FlatMemory::new(16 << 20);
        let segment = Segment { start, end, protection: READ_WRITE };
        let image = ImageLayout { segments: vec![segment], ..ImageLayout::default() };
        let mut random = StdRng::seed_from_u64(1);
        let cpu = FakeCpu::<false>::default();
        let result = Process::start(&image, &setup, cpu, &mut memory, &mut random);
        match result {
            Ok(_) => assert!(fits),
            Err(error) => assert!(matches!(error, StartError::NoRoom { .. }) && !fits),
        }
    }
}
