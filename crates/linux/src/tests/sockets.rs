//! Pairs of sockets.

use super::*;

const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
const SEQUENCED: u64 = 5;
const NONBLOCK: u64 = 0o4000;
const SIGPIPE: u64 = 13;

impl Machine {
    fn pair(&mut self, kind: u64) -> (u64, u64) {
        let pair = self.put(&[0; 8]);
        self.call("socketpair", &[1, kind | NONBLOCK, 0, pair]).unwrap();
        (u64::from(self.u32_at(pair)), u64::from(self.u32_at(pair + 4)))
    }

    fn poll(&mut self, fd: u64) -> u64 {
        let all = 0x2015;
        let entry = self.words(&[fd | all << 32]);
        let zero = self.words(&[0, 0]);
        self.call("ppoll", &[entry, 1, zero, 0, 0]).unwrap();
        u64::from(self.u32_at(entry + 4) >> 16)
    }

    fn ignore(&mut self, signal: u64) {
        let action = self.words(&[1, 0, 0]);
        self.call("rt_sigaction", &[signal, action, 0, 8]).unwrap();
    }
}

const IN: u64 = 1;
const OUT: u64 = 4;
const HANG_UP: u64 = 0x10;
const READ_HANG_UP: u64 = 0x2000;

#[test]
fn bytes_go_both_ways_and_end() {
    let mut machine = Machine::new();
    let (a, b) = machine.pair(STREAM);
    assert_eq!(machine.read(a, 4), Err(Errno::AGAIN));
    machine.write(a, b"hel").unwrap();
    machine.write(a, b"lo").unwrap();
    assert_eq!(machine.poll(b), IN | OUT);
    assert_eq!(machine.read(b, 16).unwrap(), b"hello");
    machine.write(b, b"back").unwrap();
    machine.call("shutdown", &[a, 1]).unwrap();
    assert_eq!(machine.poll(b), IN | OUT | READ_HANG_UP);
    assert_eq!(machine.read(b, 16).unwrap(), b"");
    assert_eq!(machine.read(a, 16).unwrap(), b"back");
    machine.ignore(SIGPIPE);
    assert_eq!(machine.write(a, b"x"), Err(Errno::PIPE));
    machine.call("close", &[b]).unwrap();
    assert_eq!(machine.poll(a), IN | OUT | HANG_UP | READ_HANG_UP);
    assert_eq!(machine.read(a, 16).unwrap(), b"");
}

#[test]
fn what_nobody_reads_is_bounded() {
    for kind in [STREAM, DATAGRAM, SEQUENCED] {
        let mut machine = Machine::new();
        let (a, b) = machine.pair(kind);
        let piece = machine.put(&[7; 4096]);
        let mut sent = 0;
        let refused = loop {
            match machine.call("write", &[a, piece, 4096]) {
                Ok(count) => sent += count,
                Err(errno) => break errno,
            }
        };
        assert_eq!((refused, sent), (Errno::AGAIN, 64 << 10));
        assert_eq!(machine.poll(a), 0);
        for _ in 0..9 {
            machine.call("read", &[b, piece, 4096]).unwrap();
        }
        assert_eq!(machine.poll(a), OUT);
        if kind != STREAM {
            assert_eq!(machine.call("write", &[a, DATA, 70_000]), Err(Errno::MSGSIZE));
        }
    }
    let mut machine = Machine::new();
    let (a, _) = machine.pair(DATAGRAM);
    let sent = std::iter::from_fn(|| machine.call("sendto", &[a, 0, 0, 0, 0, 0]).ok()).count();
    assert_eq!(sent, 256, "empty messages");
}

#[test]
fn messages_stay_apart() {
    for kind in [DATAGRAM, SEQUENCED] {
        let mut machine = Machine::new();
        let (a, b) = machine.pair(kind);
        machine.write(a, b"one").unwrap();
        machine.write(a, b"message").unwrap();
        assert_eq!(machine.read(b, 16).unwrap(), b"one");
        let buffer = machine.put(&[0; 8]);
        let ranges = machine.words(&[buffer, 2, buffer + 4, 2]);
        let message = machine.words(&[0, 0, ranges, 2, 0, 0, 0]);
        assert_eq!(machine.call("recvmsg", &[b, message, 2]), Ok(4), "a peek");
        assert_eq!(machine.call("recvmsg", &[b, message, 0x20]), Ok(7), "the whole length");
        assert_eq!(machine.bytes(buffer, 6), b"me\0\0ss");
        assert_eq!(machine.u32_at(message + 48), 0x20, "MSG_TRUNC");
        assert_eq!(machine.read(b, 16), Err(Errno::AGAIN));
    }
}

#[test]
fn a_peer_that_leaves_without_reading_is_an_error() {
    let mut machine = Machine::new();
    let (a, b) = machine.pair(STREAM);
    machine.write(a, b"never read").unwrap();
    machine.call("close", &[b]).unwrap();
    assert_eq!(machine.read(a, 4), Err(Errno::CONNRESET));
    assert_eq!(machine.read(a, 4).unwrap(), b"");
    let (a, b) = machine.pair(DATAGRAM);
    machine.call("close", &[b]).unwrap();
    assert_eq!(machine.write(a, b"x"), Err(Errno::CONNREFUSED));
}

#[test]
fn a_reader_waits_for_all_bytes_if_it_asks_for_them() {
    let mut machine = Machine::new();
    let pair = machine.put(&[0; 8]);
    machine.call("socketpair", &[1, STREAM, 0, pair]).unwrap();
    let (a, b) = (u64::from(machine.u32_at(pair)), u64::from(machine.u32_at(pair + 4)));
    machine.call("clone", &[0x1_0900, 0x3_0000, 0, 0, 0]).unwrap();
    let buffer = machine.put(&[0; 4]);
    assert_eq!(machine.action("recvfrom", &[b, buffer, 4, 0x100, 0, 0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Run);
    machine.write(a, b"ab").unwrap();
    machine.write(a, b"cde").unwrap();
    machine.process.preempt();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!((machine.result(), machine.bytes(buffer, 4)), (Ok(4), b"abcd".to_vec()));
}

#[test]
fn what_is_no_pair_is_refused() {
    let mut machine = Machine::new();
    let pair = machine.put(&[0; 8]);
    assert_eq!(machine.call("socketpair", &[2, STREAM, 0, pair]), Err(Errno::OPNOTSUPP));
    assert_eq!(machine.call("socketpair", &[1, 3, 0, pair]), Err(Errno::SOCKTNOSUPPORT));
    assert_eq!(machine.call("socketpair", &[1, STREAM, 0, 8]), Err(Errno::FAULT));
    assert_eq!(machine.call("sendto", &[1, pair, 1, 0, 0, 0]), Err(Errno::NOTSOCK));
    let (a, _) = machine.pair(STREAM);
    let ranges = machine.words(&[pair, 1]);
    let message = machine.words(&[0, 0, ranges, 1, pair, 16, 0]);
    assert_eq!(machine.call("sendmsg", &[a, message, 0]), Err(Errno::OPNOTSUPP));
    assert_eq!(machine.call("listen", &[a, 1]), Err(Errno::OPNOTSUPP));
    while machine.call("dup", &[1]).is_ok() {}
    machine.call("close", &[1]).unwrap();
    assert_eq!(machine.call("socketpair", &[1, STREAM, 0, pair]), Err(Errno::MFILE));
    assert_eq!(machine.call("dup", &[0]), Ok(1), "nothing was left behind");
}
