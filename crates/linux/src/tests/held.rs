//! What a process can have the host hold for it, beside its memory: so much for each descriptor.

use super::*;

const NON_BLOCKING: u64 = 0o4000;

/// Writes until there is no room; the bytes that went in.
fn fill(machine: &mut Machine, fd: u64, buffer: u64, piece: u64) -> u64 {
    let mut held = 0;
    loop {
        match machine.call("write", &[fd, buffer, piece]) {
            Ok(0) => panic!("nothing was written"),
            Ok(count) => held += count,
            Err(Errno::AGAIN) => return held,
            Err(error) => panic!("{error:?}"),
        }
        assert!(held <= 1 << 20, "no end");
    }
}

#[test]
fn what_descriptors_hold_is_bounded_and_gone_after_a_reset() {
    const STREAM: u64 = 1;
    const DATAGRAM: u64 = 2;
    const SEQUENCE: u64 = 5;
    for piece in [1, 1000, 16 << 10] {
        let mut machine = Machine::new();
        let snapshot = machine.process.clone();
        let pair = machine.put(&[0; 8]);
        let buffer = machine.mmap(piece);
        let (mut held, mut ends) = (0, 0);
        loop {
            let made = match ends % 4 {
                0 => machine.call("pipe2", &[pair, NON_BLOCKING]),
                1 => machine.call("socketpair", &[1, STREAM | NON_BLOCKING, 0, pair]),
                2 => machine.call("socketpair", &[1, DATAGRAM | NON_BLOCKING, 0, pair]),
                _ => machine.call("socketpair", &[1, SEQUENCE | NON_BLOCKING, 0, pair]),
            };
            match made {
                Ok(_) => {}
                Err(Errno::MFILE) => break,
                Err(error) => panic!("{error:?}"),
            }
            let [one, other] = [pair, pair + 4].map(|at| u64::from(machine.u32_at(at)));
            held += fill(&mut machine, other, buffer, piece);
            if ends % 4 != 0 {
                held += fill(&mut machine, one, buffer, piece);
            }
            ends += 1;
        }
        let descriptors = u64::from(limits().descriptors);
        assert!(ends >= descriptors / 2 - 3, "{ends}");
        assert!(held <= descriptors * (64 << 10), "{held} bytes");
        machine.process.reset_from(&snapshot);
        assert_eq!(machine.call("pipe2", &[pair, 0]), Ok(0));
        assert_eq!([pair, pair + 4].map(|at| machine.u32_at(at)), [3, 4]);
    }
}
