//! Listeners, and connections that end at the host.

use super::*;
use crate::{Connection, Listener};

const INET: u64 = 2;
const STREAM: u64 = 1;
const NONBLOCK: u64 = 0o4000;
const ANY_V4: [u8; 16] = [2, 0, 0x1f, 0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Machine {
    /// A socket that listens on port 8080.
    pub(super) fn listener(&mut self, flags: u64) -> u64 {
        let fd = self.call("socket", &[INET, STREAM | flags, 0]).unwrap();
        let address = self.put(&ANY_V4);
        self.call("bind", &[fd, address, 16]).unwrap();
        self.call("listen", &[fd, 5]).unwrap();
        fd
    }

    /// Parks the guest in `accept`, and says on what.
    fn park(&mut self, fd: u64) -> Listener {
        assert_eq!(self.action("accept", &[fd, 0, 0]), Action::Resched);
        assert_eq!(self.schedule(), Schedule::Idle { until: None });
        self.process.waiting_listener().expect("the guest waits")
    }

    /// A connection that the guest has accepted.
    pub(super) fn connected(&mut self) -> (u64, Connection) {
        let fd = self.listener(0);
        let listener = self.park(fd);
        let connection = self.process.connect(listener).unwrap();
        assert_eq!(self.schedule(), Schedule::Run);
        (self.result().unwrap(), connection)
    }

    fn send(&mut self, fd: u64, length: u64, flags: u64) -> Result<u64, Errno> {
        let buffer = self.mmap(length);
        self.call("sendto", &[fd, buffer, length, flags, 0, 0])
    }
}

#[test]
fn a_listener_waits_for_the_host() {
    let mut machine = Machine::new();
    let fd = machine.listener(NONBLOCK);
    assert_eq!(machine.call("accept", &[fd, 0, 0]), Err(Errno::AGAIN));
    assert_eq!(machine.process.waiting_listener(), None, "nobody waits");
    machine.call("fcntl", &[fd, 4, 0]).unwrap();
    let listener = machine.park(fd);
    let connection = machine.process.connect(listener).unwrap();
    assert!(!machine.process.is_accepted(connection) && machine.process.is_idle(connection));
    assert_eq!(machine.schedule(), Schedule::Run);
    assert!(machine.process.is_accepted(connection));
    assert_eq!(machine.result(), Ok(fd + 1));
}

#[test]
fn the_first_to_listen_gets_the_requests() {
    let mut machine = Machine::new();
    let other = machine.call("socket", &[INET, STREAM, 0]).unwrap();
    let first = machine.listener(0);
    machine.call("listen", &[other, 5]).unwrap();
    let entries = machine.words(&[other | 1 << 32, first | 1 << 32]);
    assert_eq!(machine.action("ppoll", &[entries, 2, 0, 0, 0]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Idle { until: None });
    let listener = machine.process.waiting_listener().unwrap();
    machine.process.connect(listener).unwrap();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.u32_at(entries + 4) >> 16, 0);
    assert_eq!(machine.u32_at(entries + 12) >> 16, 1);
}

#[test]
fn bytes_go_both_ways() {
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    let buffer = machine.put(&[0; 16]);
    assert_eq!(machine.action("read", &[fd, buffer, 16]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Idle { until: None });
    machine.process.send(connection, b"request");
    assert!(!machine.process.has_read(connection));
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!((machine.result(), machine.bytes(buffer, 7)), (Ok(7), b"request".to_vec()));
    assert!(machine.process.has_read(connection));
    assert!(!machine.process.take_output());
    machine.write(fd, b"response").unwrap();
    assert!(machine.process.take_output() && !machine.process.take_output());
    assert_eq!(machine.process.received(connection), b"response");
    machine.process.take_received(connection, 3);
    assert_eq!(machine.process.received(connection), b"ponse");
    machine.call("close", &[fd]).unwrap();
    assert!(machine.process.take_output() && machine.process.has_ended(connection));
    assert_eq!(machine.process.received(connection), b"ponse", "what was written stays");
    machine.process.hang_up(connection);
    assert_eq!(machine.process.received(connection), b"");
}

#[test]
fn a_write_that_waits_goes_on_where_it_was() {
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    let length = 150_000;
    let buffer = machine.mmap(length);
    for index in 0..length {
        let byte = [(index % 251) as u8];
        crate::guest::write(&mut machine.memory, buffer + index, &byte).unwrap();
    }
    assert_eq!(machine.action("write", &[fd, buffer, length]), Action::Resched);
    assert_eq!(machine.schedule(), Schedule::Idle { until: None });
    let mut got = Vec::new();
    while (got.len() as u64) < length {
        assert!(machine.process.take_output());
        let bytes = machine.process.received(connection).to_vec();
        assert!(!bytes.is_empty() && bytes.len() <= 64 << 10);
        machine.process.take_received(connection, bytes.len());
        got.extend(bytes);
        machine.schedule();
    }
    assert_eq!(machine.result(), Ok(length));
    assert!(got.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8));
}

#[test]
fn a_write_that_must_not_wait_takes_what_there_is_room_for() {
    const DONT_WAIT: u64 = 0x40;
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    assert_eq!(machine.send(fd, 100_000, DONT_WAIT), Ok(64 << 10));
    assert_eq!(machine.send(fd, 1, DONT_WAIT), Err(Errno::AGAIN));
    machine.process.take_received(connection, 10);
    assert_eq!(machine.send(fd, 100, DONT_WAIT), Ok(10));
}

#[test]
fn reads_peek_and_wait_for_all() {
    const PEEK: u64 = 2;
    const DONT_WAIT: u64 = 0x40;
    const WAIT_ALL: u64 = 0x100;
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    machine.process.send(connection, b"abc");
    let buffer = machine.put(&[0; 8]);
    assert_eq!(machine.call("recvfrom", &[fd, buffer, 8, PEEK, 0, 0]), Ok(3));
    assert!(!machine.process.has_read(connection));
    let all = [fd, buffer, 6, WAIT_ALL, 0, 0];
    assert_eq!(machine.action("recvfrom", &all), Action::Resched);
    machine.process.send(connection, b"def");
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!((machine.result(), machine.bytes(buffer, 6)), (Ok(6), b"abcdef".to_vec()));
    assert_eq!(machine.call("recvfrom", &[fd, buffer, 8, DONT_WAIT, 0, 0]), Err(Errno::AGAIN));
    machine.process.break_off(connection);
    assert_eq!(machine.call("read", &[fd, buffer, 8]), Err(Errno::CONNRESET));
}

#[test]
fn a_connection_that_was_not_read_gives_the_request_back() {
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    machine.process.send(connection, b"request");
    machine.call("close", &[fd]).unwrap();
    assert_eq!(machine.process.hang_up(connection), b"request");
    // Nothing is left of it.
    assert!(machine.process.has_ended(connection) && machine.process.room(connection) == 0);
}

#[test]
fn a_connection_that_was_not_accepted_goes_with_the_host() {
    let mut machine = Machine::new();
    let fd = machine.listener(NONBLOCK);
    machine.call("fcntl", &[fd, 4, 0]).unwrap();
    let listener = machine.park(fd);
    machine.process.connect(listener).unwrap();
    assert_eq!(machine.schedule(), Schedule::Run);
    for _ in 0..100 {
        let connection = machine.process.connect(listener).unwrap();
        machine.process.hang_up(connection);
        assert!(machine.process.is_accepted(connection), "there is nothing to accept");
    }
    assert!(machine.process.kernel.objects.endpoints.iter().count() == 2);
    machine.call("fcntl", &[fd, 4, NONBLOCK]).unwrap();
    assert_eq!(machine.call("accept", &[fd, 0, 0]), Err(Errno::AGAIN));
}

#[test]
fn addresses_are_told_as_they_were_given() {
    let mut machine = Machine::new();
    let fd = machine.call("socket", &[INET, STREAM, 0]).unwrap();
    let address = machine.put(&[2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    machine.call("bind", &[fd, address, 16]).unwrap();
    assert_eq!(machine.call("bind", &[fd, address, 16]), Err(Errno::INVAL));
    let length = machine.put(&100u32.to_le_bytes());
    machine.call("getsockname", &[fd, address, length]).unwrap();
    assert_eq!(machine.bytes(address, 8), [2, 0, 0xc0, 0, 127, 0, 0, 1]);
    assert_eq!(machine.u32_at(length), 16);
    machine.listener(0);
    let other = machine.call("socket", &[INET, STREAM, 0]).unwrap();
    let taken = machine.put(&ANY_V4);
    assert_eq!(machine.call("bind", &[other, taken, 16]), Err(Errno::ADDRINUSE));
    let one = machine.put(&1u32.to_le_bytes());
    machine.call("setsockopt", &[other, 1, 15, one, 4]).unwrap();
    assert_eq!(machine.call("bind", &[other, taken, 16]), Ok(0), "SO_REUSEPORT");
    for (family, length) in [(9, 16), (2, 3), (10, 16), (2, 1 << 20)] {
        let address = machine.words(&[family, 0]);
        assert!(machine.call("bind", &[fd, address, length]).is_err(), "{family} {length}");
    }
}

#[test]
fn options_are_kept_and_nonsense_is_refused() {
    let mut machine = Machine::new();
    let fd = machine.listener(0);
    let value = machine.put(&7u32.to_le_bytes());
    let length = machine.put(&4u32.to_le_bytes());
    machine.call("setsockopt", &[fd, 6, 1, value, 4]).unwrap();
    let read = machine.put(&[0; 4]);
    for (level, name, expected) in [(6, 1, 7), (1, 4, 0), (1, 3, 1), (1, 30, 1), (1, 39, 2)] {
        machine.call("getsockopt", &[fd, level, name, read, length]).unwrap();
        assert_eq!(machine.u32_at(read), expected, "{level} {name}");
    }
    assert_eq!(machine.call("setsockopt", &[fd, 6, 99, value, 4]), Err(Errno::NOPROTOOPT));
    assert_eq!(machine.call("getsockopt", &[fd, 99, 1, read, length]), Err(Errno::NOPROTOOPT));
    assert_eq!(machine.call("setsockopt", &[fd, 1, 2, value, 1]), Err(Errno::INVAL));
    for _ in 0..1000 {
        machine.call("setsockopt", &[fd, 6, 1, value, 4]).unwrap();
    }
}

#[test]
fn nothing_leads_outside() {
    let mut machine = Machine::new();
    for (family, kind, expected) in [
        (1, 2, Errno::ACCESS),
        (10, 3, Errno::ACCESS),
        (16, 3, Errno::AFNOSUPPORT),
        (INET, STREAM | 1 << 20, Errno::INVAL),
    ] {
        assert_eq!(machine.call("socket", &[family, kind, 0]), Err(expected), "{family} {kind}");
    }
    let fd = machine.call("socket", &[INET, STREAM, 0]).unwrap();
    let away = machine.put(&[2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.call("connect", &[fd, away, 16]), Err(Errno::ACCESS));
    let own = machine.put(&[2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.call("connect", &[fd, own, 16]), Err(Errno::CONNREFUSED));
    assert_eq!(machine.call("sendto", &[fd, own, 1, 0x4000, 0, 0]), Err(Errno::PIPE));
    assert_eq!(machine.call("accept", &[1, 0, 0]), Err(Errno::NOTSOCK));
}

#[test]
fn a_reset_takes_connections_back() {
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    let snapshot = machine.process.clone();
    machine.process.send(connection, b"secret");
    machine.read(fd, 3).unwrap();
    machine.write(fd, b"answer").unwrap();
    machine.process.reset_from(&snapshot);
    assert!(!machine.process.take_output() && !machine.process.has_read(connection));
    assert_eq!(machine.process.received(connection), b"");
    assert_eq!(machine.call("recvfrom", &[fd, DATA, 16, 0x40, 0, 0]), Err(Errno::AGAIN));
    machine.call("close", &[fd]).unwrap();
    machine.process.hang_up(connection);
    machine.process.reset_from(&snapshot);
    assert!(machine.process.is_idle(connection));
    machine.process.send(connection, b"again");
    assert_eq!(machine.read(fd, 16).unwrap(), b"again");
}

#[test]
fn a_listener_that_goes_takes_its_connections_along() {
    let mut machine = Machine::new();
    let fd = machine.listener(0);
    let listener = machine.park(fd);
    let connection = machine.process.connect(listener).unwrap();
    machine.process.send(connection, b"request");
    assert_eq!(machine.schedule(), Schedule::Run);
    let other = machine.process.connect(listener).unwrap();
    machine.call("close", &[fd]).unwrap();
    assert!(machine.process.has_ended(other) && !machine.process.has_ended(connection));
    assert_eq!(machine.process.connect(listener), None);
    machine.process.hang_up(other);
}

/// A connection of the guest to its own listener: the end that has connected, and the other.
fn own(machine: &mut Machine) -> (u64, u64) {
    let listener = machine.listener(NONBLOCK);
    let near = machine.call("socket", &[INET, STREAM | NONBLOCK, 0]).unwrap();
    let address = machine.put(&ANY_V4);
    machine.call("connect", &[near, address, 16]).unwrap();
    let far = machine.call("accept4", &[listener, 0, 0, NONBLOCK]).unwrap();
    (near, far)
}

#[test]
fn a_guest_connects_to_itself_and_a_reset_undoes_it() {
    let mut machine = Machine::new();
    let (near, far) = own(&mut machine);
    machine.write(near, b"before").unwrap();
    assert!(!machine.process.take_output(), "the host has nothing to do with it");
    let snapshot = machine.process.clone();
    machine.process.reset_from(&snapshot);
    machine.write(near, b" secret").unwrap();
    assert_eq!(machine.read(far, 64).unwrap(), b"before secret");
    machine.write(far, b"secret").unwrap();
    machine.call("close", &[near]).unwrap();
    machine.process.reset_from(&snapshot);
    assert_eq!(machine.read(near, 64), Err(Errno::AGAIN));
    assert_eq!(machine.read(far, 64).unwrap(), b"before");
}

#[test]
fn what_is_sent_to_oneself_is_bounded() {
    let mut machine = Machine::new();
    let (near, far) = own(&mut machine);
    assert_eq!(machine.send(near, 100_000, 0), Ok(64 << 10));
    assert_eq!(machine.send(near, 1, 0), Err(Errno::AGAIN));
    let buffer = machine.mmap(4096);
    machine.call("read", &[far, buffer, 100]).unwrap();
    assert_eq!(machine.send(near, 4096, 0), Ok(100));
}

#[test]
fn connections_that_nobody_accepts_are_few() {
    let mut machine = Machine::new();
    let listener = machine.listener(NONBLOCK);
    let address = machine.put(&ANY_V4);
    let connect = |machine: &mut Machine| {
        let near = machine.call("socket", &[INET, STREAM, 0]).unwrap();
        let connected = machine.call("connect", &[near, address, 16]);
        machine.call("close", &[near]).unwrap();
        connected
    };
    let made = (0..1000).take_while(|_| connect(&mut machine).is_ok()).count();
    assert!((16..=128).contains(&made), "{made}");
    assert_eq!(connect(&mut machine), Err(Errno::CONNREFUSED));
    machine.call("close", &[listener]).unwrap();
    assert_eq!(machine.process.kernel.objects.endpoints.iter().count(), 0);
}

#[test]
fn a_receive_waits_no_longer_than_it_is_told() {
    const RECEIVE_LIMIT: u64 = 20;
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    let limit = machine.words(&[5, 0]);
    machine.call("setsockopt", &[fd, 1, RECEIVE_LIMIT, limit, 16]).unwrap();
    let buffer = machine.put(&[0; 16]);
    let read = [fd, buffer, 8, 0x100, 0, 0];
    assert_eq!(machine.action("recvfrom", &read), Action::Resched);
    let Schedule::Idle { until: Some(first) } = machine.schedule() else { panic!() };
    machine.process.send(connection, b"part");
    let Schedule::Idle { until: Some(then) } = machine.schedule() else { panic!() };
    assert_eq!(first, then, "what comes does not make it longer");
    assert_eq!(machine.schedule_at(then), Schedule::Run);
    assert_eq!((machine.result(), machine.bytes(buffer, 4)), (Ok(4), b"part".to_vec()));
    assert_eq!(machine.action("recvfrom", &read), Action::Resched);
    let Schedule::Idle { until: Some(then) } = machine.schedule() else { panic!() };
    assert_eq!(machine.schedule_at(then), Schedule::Run);
    assert_eq!(machine.result(), Err(Errno::AGAIN));
}

#[test]
fn an_engine_may_answer_what_the_guest_would_be_answered_here() {
    let mut machine = Machine::new();
    let (fd, connection) = machine.connected();
    machine.process.send(connection, b"hello world");
    let mut random = StdRng::seed_from_u64(1);
    let answers = machine.process.answers(&mut random);
    assert_eq!((answers.process, answers.thread), (100, 100));
    assert!(answers.is_alone);
    assert_eq!(answers.waiters, Some(Default::default()));
    let input = answers.input.unwrap();
    assert_eq!((input.fd, input.start, input.bytes), (fd, 0, &b"hello world"[..]));
    assert!(!input.is_nonblocking, "a read that finds nothing waits");

    let index = input.connection;
    machine.process.take_in(index, 6);
    let buffer = machine.put(&[0; 16]);
    assert_eq!(machine.call("recvfrom", &[fd, buffer, 16, 2, 0, 0]), Ok(5), "peeks");
    machine.call("fcntl", &[fd, 4, NONBLOCK]).unwrap();
    let input = machine.process.answers(&mut random).input.unwrap();
    assert_eq!((input.start, input.bytes, input.is_nonblocking), (6, &b"world"[..], true));
    machine.process.take_in(index, 100);
    assert_eq!(machine.call("read", &[fd, buffer, 16]), Err(Errno::AGAIN));
    assert!(machine.process.has_read(connection));
    machine.process.take_in(77, 5);

    // The end is for the host to tell.
    machine.process.break_off(connection);
    assert!(!machine.process.answers(&mut random).input.unwrap().is_nonblocking);
    machine.process.hang_up(connection);
    assert_eq!(machine.process.answers(&mut random).input, None);
}
