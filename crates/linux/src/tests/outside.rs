//! Connections to the outside, over a network that is a test's own.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use sandtide_engine::{Link, Lookup, Network, NetworkError};

use super::*;

const INET: u64 = 2;
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
const NONBLOCK: u64 = 0o4000;
const SILENT: u64 = 0x4000;
/// 192.0.2.1, port 80.
const AWAY: [u8; 16] = [2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0];
/// The resolver.
const RESOLVER: [u8; 16] = [2, 0, 0, 53, 127, 0, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0];

/// What is at the other ends, in the order in which they were connected to.
#[derive(Debug, Clone, Default)]
struct Net(Arc<Mutex<Vec<End>>>);

#[derive(Debug, Default)]
struct End {
    outcome: Option<Result<(), NetworkError>>,
    input: VecDeque<Result<Vec<u8>, NetworkError>>,
    output: Vec<u8>,
    /// How many bytes it takes.
    room: usize,
    is_shut: bool,
    is_gone: bool,
}

struct TestLink(Net, usize);

impl Net {
    fn end<R>(&self, index: usize, change: impl FnOnce(&mut End) -> R) -> R {
        change(&mut self.0.lock().unwrap()[index])
    }
}

impl Network for Net {
    fn connect(&self, to: SocketAddr) -> Result<Box<dyn Link>, NetworkError> {
        if to.port() != 80 {
            return Err(NetworkError::Denied);
        }
        let mut ends = self.0.lock().unwrap();
        ends.push(End { room: usize::MAX, ..End::default() });
        Ok(Box::new(TestLink(self.clone(), ends.len() - 1)))
    }

    fn resolve(&self, query: &[u8]) -> Lookup {
        let answer = (!query.is_empty()).then(|| [b"re:", query].concat());
        Box::pin(async move { answer })
    }
}

impl Link for TestLink {
    fn poll_connected(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NetworkError>> {
        self.0.end(self.1, |end| end.outcome.map_or(Poll::Pending, Poll::Ready))
    }

    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, NetworkError>> {
        self.0.end(self.1, |end| match end.input.pop_front() {
            None => Poll::Pending,
            Some(Err(error)) => Poll::Ready(Err(error)),
            Some(Ok(mut bytes)) => {
                let length = bytes.len().min(buffer.len());
                buffer[..length].copy_from_slice(&bytes[..length]);
                if length < bytes.len() {
                    end.input.push_front(Ok(bytes.split_off(length)));
                }
                Poll::Ready(Ok(length))
            }
        })
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, NetworkError>> {
        self.0.end(self.1, |end| {
            let length = bytes.len().min(end.room);
            if length == 0 {
                return Poll::Pending;
            }
            end.room -= length;
            end.output.extend_from_slice(&bytes[..length]);
            Poll::Ready(Ok(length))
        })
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NetworkError>> {
        self.0.end(self.1, |end| end.is_shut = true);
        Poll::Ready(Ok(()))
    }
}

impl Drop for TestLink {
    fn drop(&mut self) {
        self.0.end(self.1, |end| end.is_gone = true);
    }
}

fn machine() -> (Machine, Net) {
    let net = Net::default();
    let network: Arc<dyn Network> = Arc::new(net.clone());
    (Machine::with_network(&network), net)
}

impl Machine {
    fn with_network(network: &Arc<dyn Network>) -> Self {
        Self::with(&[], Some(network)).unwrap()
    }

    fn look_outside(&mut self) -> bool {
        self.process.exchange_outside(&mut Context::from_waker(Waker::noop()))
    }

    fn client(&mut self, flags: u64) -> u64 {
        self.call("socket", &[INET, STREAM | flags, 0]).unwrap()
    }

    fn away(&mut self, fd: u64) -> Result<u64, Errno> {
        let away = self.put(&AWAY);
        self.call("connect", &[fd, away, 16])
    }

    /// A connection that was made, on a socket that does not wait.
    fn linked(&mut self, net: &Net, index: usize) -> u64 {
        let fd = self.client(NONBLOCK);
        assert_eq!(self.away(fd), Err(Errno::INPROGRESS));
        net.end(index, |end| end.outcome = Some(Ok(())));
        assert!(self.look_outside());
        assert_eq!(self.away(fd), Ok(0));
        fd
    }

    fn conditions(&mut self, fd: u64) -> u64 {
        let entry = self.words(&[fd | 0x2015 << 32]);
        let zero = self.words(&[0, 0]);
        self.call("ppoll", &[entry, 1, zero, 0, 0]).unwrap();
        u64::from(self.u32_at(entry + 4) >> 16)
    }

    fn error(&mut self, fd: u64) -> u32 {
        let value = self.words(&[0, 4]);
        self.call("getsockopt", &[fd, 1, 4, value, value + 8]).unwrap();
        self.u32_at(value)
    }
}

#[test]
fn a_call_that_waits_is_told_what_has_become_of_it() {
    for (outcome, expected) in [
        (Ok(()), Ok(0)),
        (Err(NetworkError::Refused), Err(Errno::CONNREFUSED)),
        (Err(NetworkError::Denied), Err(Errno::ACCESS)),
        (Err(NetworkError::TimedOut), Err(Errno::TIMEDOUT)),
        (Err(NetworkError::Unreachable), Err(Errno::HOSTUNREACH)),
        (Err(NetworkError::TooMany), Err(Errno::ADDRNOTAVAIL)),
    ] {
        let (mut machine, net) = machine();
        let fd = machine.client(0);
        let away = machine.put(&AWAY);
        assert_eq!(machine.action("connect", &[fd, away, 16]), Action::Resched);
        assert!(machine.process.take_output(), "the host is to look");
        assert!(!machine.look_outside() && machine.process.is_connecting());
        assert_eq!(machine.schedule(), Schedule::Idle { until: None });
        net.end(0, |end| end.outcome = Some(outcome));
        assert!(machine.look_outside());
        assert_eq!(machine.schedule(), Schedule::Run);
        assert_eq!(machine.result(), expected);
        assert_eq!(machine.process.awaits_outside(), outcome.is_ok());
        let denied = u64::from(outcome == Err(NetworkError::Denied));
        assert_eq!(machine.process.traffic().denied, denied);
    }
}

#[test]
fn a_connection_is_made_while_the_guest_does_other_things() {
    let (mut machine, net) = machine();
    let fd = machine.client(NONBLOCK);
    assert_eq!(machine.away(fd), Err(Errno::INPROGRESS));
    assert_eq!(machine.away(fd), Err(Errno::ALREADY));
    assert_eq!(machine.conditions(fd), 0);
    assert_eq!(machine.write(fd, b"early"), Err(Errno::AGAIN));
    net.end(0, |end| end.outcome = Some(Err(NetworkError::Refused)));
    machine.look_outside();
    assert_eq!(machine.conditions(fd), 0x201d);
    assert_eq!(machine.error(fd), 111);
    assert_eq!((machine.error(fd), machine.conditions(fd)), (0, 0x14));
    assert_eq!(machine.away(fd), Err(Errno::INPROGRESS), "and again");
    net.end(1, |end| end.outcome = Some(Ok(())));
    machine.look_outside();
    assert_eq!((machine.conditions(fd), machine.error(fd)), (4, 0));
    assert_eq!(machine.away(fd), Ok(0));
    assert_eq!(machine.away(fd), Err(Errno::ISCONN));
}

#[test]
fn bytes_go_both_ways_and_are_counted() {
    let (mut machine, net) = machine();
    let fd = machine.linked(&net, 0);
    machine.write(fd, b"there").unwrap();
    machine.look_outside();
    assert_eq!(net.end(0, |end| end.output.clone()), b"there");
    assert_eq!(machine.read(fd, 16), Err(Errno::AGAIN));
    net.end(0, |end| end.input.push_back(Ok(b"back".to_vec())));
    assert!(machine.look_outside());
    assert_eq!(machine.read(fd, 16).unwrap(), b"back");
    let traffic = machine.process.traffic();
    assert_eq!((traffic.connections, traffic.sent, traffic.received), (1, 5, 4));
    machine.call("shutdown", &[fd, 1]).unwrap();
    machine.look_outside();
    assert!(net.end(0, |end| end.is_shut));
    net.end(0, |end| end.input.push_back(Ok(Vec::new())));
    machine.look_outside();
    assert_eq!(machine.read(fd, 16).unwrap(), b"");
    machine.process.clear_traffic();
    assert_eq!(machine.process.traffic(), Default::default());
}

#[test]
fn what_the_other_end_does_not_take_makes_the_guest_wait() {
    let (mut machine, net) = machine();
    let fd = machine.linked(&net, 0);
    net.end(0, |end| end.room = 1000);
    let buffer = machine.mmap(100_000);
    let send = [fd, buffer, 100_000, SILENT, 0, 0];
    assert_eq!(machine.call("sendto", &send), Ok(64 << 10));
    assert_eq!(machine.call("sendto", &send), Err(Errno::AGAIN));
    machine.look_outside();
    assert_eq!(machine.call("sendto", &send), Ok(1000));
    assert_eq!(machine.conditions(fd), 0);
    // What comes is bounded as well.
    net.end(0, |end| end.input.push_back(Ok(vec![7; 200_000])));
    machine.look_outside();
    let left = net.end(0, |end| end.input.iter().flatten().map(Vec::len).sum::<usize>());
    assert_eq!(left, 200_000 - (64 << 10));
}

#[test]
fn what_was_written_before_a_close_is_sent() {
    let (mut machine, net) = machine();
    let fd = machine.linked(&net, 0);
    net.end(0, |end| end.room = 2);
    machine.write(fd, b"last").unwrap();
    machine.call("close", &[fd]).unwrap();
    machine.look_outside();
    assert!(!net.end(0, |end| end.is_gone) && machine.process.awaits_outside());
    net.end(0, |end| end.room = 10);
    machine.look_outside();
    assert_eq!(net.end(0, |end| (end.output.clone(), end.is_gone)), (b"last".to_vec(), true));
    assert!(!machine.process.awaits_outside());
    assert_eq!(machine.process.kernel.objects.endpoints.iter().count(), 0);

    let fd = machine.client(NONBLOCK);
    assert_eq!(machine.away(fd), Err(Errno::INPROGRESS));
    machine.call("close", &[fd]).unwrap();
    machine.look_outside();
    assert!(net.end(1, |end| end.is_gone), "on its way only");
}

#[test]
fn a_connection_that_breaks_is_reset() {
    let (mut machine, net) = machine();
    let fd = machine.linked(&net, 0);
    net.end(0, |end| end.input.push_back(Err(NetworkError::Reset)));
    machine.look_outside();
    assert_eq!(machine.conditions(fd) & 0x19, 0x19);
    assert_eq!(machine.read(fd, 16), Err(Errno::CONNRESET));
    assert_eq!(machine.read(fd, 16).unwrap(), b"");
    assert!(net.end(0, |end| end.is_gone));
}

#[test]
fn a_snapshot_has_no_connections_and_a_reset_closes_them() {
    let (mut machine, net) = machine();
    let fd = machine.linked(&net, 0);
    let waiting = machine.client(NONBLOCK);
    assert_eq!(machine.away(waiting), Err(Errno::INPROGRESS));
    let snapshot = machine.process.clone();
    let rest = std::mem::replace(&mut machine.process, snapshot.clone());
    assert_eq!(machine.read(fd, 16), Err(Errno::CONNRESET));
    assert_eq!(machine.error(waiting), 104);
    assert!(!net.end(0, |end| end.is_gone), "others may go on");
    drop(rest);
    assert!(net.end(0, |end| end.is_gone));

    machine.process.reset_from(&snapshot);
    let fd = machine.linked(&net, 2);
    machine.write(fd, b"secret").unwrap();
    machine.process.reset_from(&snapshot);
    assert!(net.end(2, |end| end.is_gone) && !machine.process.awaits_outside());
    assert_eq!(machine.read(fd, 16), Err(Errno::BADF));
    // A later one is not taken for one before.
    let fd = machine.linked(&net, 3);
    assert_eq!(machine.read(fd, 16), Err(Errno::AGAIN));
}

#[test]
fn who_waits_at_the_snapshot_is_woken() {
    let (mut machine, net) = machine();
    let fd = machine.linked(&net, 0);
    let entry = machine.words(&[fd | 1 << 32]);
    assert_eq!(machine.action("ppoll", &[entry, 1, 0, 0, 0]), Action::Resched);
    machine.schedule();
    machine.process = machine.process.clone();
    assert_eq!(machine.schedule(), Schedule::Run);
    assert_eq!(machine.result(), Ok(1));
}

#[test]
fn connections_are_limited_and_denied() {
    let (mut machine, net) = machine();
    let limit = limits().connections as usize;
    for _ in 0..limit {
        let fd = machine.client(NONBLOCK);
        assert_eq!(machine.away(fd), Err(Errno::INPROGRESS));
    }
    let fd = machine.client(NONBLOCK);
    assert_eq!(machine.away(fd), Err(Errno::ADDRNOTAVAIL));
    assert_eq!(net.0.lock().unwrap().len(), limit);
    machine.process.cut_off();
    for (at, expected) in [([192, 0, 2, 1], Errno::ACCESS), ([127, 0, 0, 1], Errno::CONNREFUSED)] {
        let bytes = [&[2, 0, 0, 81], &at[..], &[0; 8]].concat();
        let address = machine.put(&bytes);
        assert_eq!(machine.call("connect", &[fd, address, 16]), Err(expected));
    }
    assert_eq!(machine.process.traffic().denied, 2);
}

#[test]
fn the_resolver_is_asked_and_answers() {
    let (mut machine, _) = machine();
    let fd = machine.call("socket", &[INET, DATAGRAM, 0]).unwrap();
    let resolver = machine.put(&RESOLVER);
    assert_eq!(machine.write(fd, b"x"), Err(Errno::DESTADDRREQ));
    machine.call("connect", &[fd, resolver, 16]).unwrap();
    machine.write(fd, b"one").unwrap();
    assert!(machine.process.take_output());
    let query = machine.put(b"two");
    machine.call("sendto", &[fd, query, 3, 0, resolver, 16]).unwrap();
    machine.write(fd, b"").unwrap();
    assert!(machine.look_outside() && !machine.process.awaits_outside());
    assert_eq!(machine.conditions(fd), 5);
    assert_eq!(machine.read(fd, 64).unwrap(), b"re:one", "each for itself");
    let from = machine.put(&[0; 16]);
    let length = machine.words(&[16]);
    let buffer = machine.put(&[0; 16]);
    assert_eq!(machine.call("recvfrom", &[fd, buffer, 4, 0x20, from, length]), Ok(6), "cut");
    assert_eq!(
        (machine.bytes(buffer, 4), machine.bytes(from, 8)),
        (b"re:t".to_vec(), RESOLVER[..8].to_vec())
    );
    assert_eq!(machine.call("recvfrom", &[fd, buffer, 4, 0x40, 0, 0]), Err(Errno::AGAIN));
}

#[test]
fn datagrams_go_nowhere_else() {
    let (mut machine, _) = machine();
    let fd = machine.call("socket", &[INET, DATAGRAM | NONBLOCK, 0]).unwrap();
    let away = machine.put(&AWAY);
    let byte = machine.put(b"x");
    assert_eq!(machine.call("sendto", &[fd, byte, 1, 0, away, 16]), Err(Errno::ACCESS));
    // To learn its own address.
    machine.call("connect", &[fd, away, 16]).unwrap();
    let name = machine.put(&[0; 16]);
    let length = machine.words(&[16]);
    machine.call("getsockname", &[fd, name, length]).unwrap();
    assert_eq!(machine.bytes(name + 4, 4), [10, 0, 0, 2]);
    assert_eq!(machine.write(fd, b"x"), Err(Errno::ACCESS));
    for call in ["listen", "accept"] {
        assert!(machine.call(call, &[fd, 1, 0]).is_err(), "{call}");
    }
    let resolver = machine.put(&RESOLVER);
    let long = machine.mmap(8192);
    assert_eq!(machine.call("sendto", &[fd, long, 5000, 0, resolver, 16]), Err(Errno::MSGSIZE));
}

#[test]
fn queries_and_answers_are_bounded() {
    let (mut machine, _) = machine();
    let fd = machine.call("socket", &[INET, DATAGRAM | NONBLOCK, 0]).unwrap();
    let resolver = machine.put(&RESOLVER);
    machine.call("connect", &[fd, resolver, 16]).unwrap();
    let byte = machine.put(b"x");
    for _ in 0..100 {
        machine.call("write", &[fd, byte, 1]).unwrap();
    }
    machine.look_outside();
    let room = machine.put(&[0; 8]);
    let answers = (0..).take_while(|_| machine.call("read", &[fd, room, 8]).is_ok()).count();
    assert_eq!(answers, 32);
    // To a socket that is closed, nobody answers, and to the next in its place neither.
    machine.call("write", &[fd, byte, 1]).unwrap();
    machine.call("close", &[fd]).unwrap();
    let next = machine.call("socket", &[INET, DATAGRAM | NONBLOCK, 0]).unwrap();
    machine.look_outside();
    assert_eq!(machine.call("read", &[next, room, 8]), Err(Errno::AGAIN));
}

#[test]
fn several_messages_go_in_one_call() {
    let (mut machine, _) = machine();
    let fd = machine.call("socket", &[INET, DATAGRAM | NONBLOCK, 0]).unwrap();
    let resolver = machine.put(&RESOLVER);
    machine.call("connect", &[fd, resolver, 16]).unwrap();
    let texts = machine.put(b"onetwo..........................");
    let ranges = machine.words(&[texts, 3, texts + 3, 3]);
    let messages: Vec<u64> =
        [0, 1].iter().flat_map(|at| [0, 0, ranges + 16 * at, 1, 0, 0, 0, 0]).collect();
    let messages = machine.words(&messages);
    assert_eq!(machine.call("sendmmsg", &[fd, messages, 2, 0]), Ok(2));
    assert_eq!(machine.u32_at(messages + 64 + 56), 3);
    machine.look_outside();
    let wide = machine.words(&[texts, 8, texts + 8, 8]);
    let both: Vec<u64> =
        [0, 1, 1].iter().flat_map(|at| [0, 0, wide + 16 * at, 1, 0, 0, 0, 0]).collect();
    let both = machine.words(&both);
    assert_eq!(machine.call("recvmmsg", &[fd, both, 3, 0, 0]), Ok(2));
    assert_eq!(machine.bytes(texts, 6), b"re:one");
    assert_eq!((machine.bytes(texts + 8, 6), machine.u32_at(both + 120)), (b"re:two".to_vec(), 6));
    assert_eq!(machine.call("recvmmsg", &[fd, both, 3, 0, 0]), Err(Errno::AGAIN));
}
