use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use super::*;

struct Told {
    way: Way,
    denied: Arc<Mutex<Vec<Denied>>>,
    asked: Arc<AtomicUsize>,
}

/// A way with these rules, where names have these addresses.
fn way(rules: &[&str], names: &'static [(&str, &str)]) -> Told {
    way_with(rules, names, 100)
}

fn way_with(rules: &[&str], names: &'static [(&str, &str)], connections: u32) -> Told {
    let denied: Arc<Mutex<Vec<Denied>>> = Arc::default();
    let asked: Arc<AtomicUsize> = Arc::default();
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let policy = Policy::new(rules, vec![("own.example".to_owned(), [127, 0, 0, 1].into())]);
    let count = asked.clone();
    let lookups = Lookups::new(move |name| {
        count.fetch_add(1, Ordering::Relaxed);
        let found = names.iter().filter(|(known, _)| *known == name);
        let found: Vec<IpAddr> = found.map(|(_, ip)| ip.parse().unwrap()).collect();
        if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
    });
    let copy = denied.clone();
    let way = Way::new(policy, lookups, connections, move |one| copy.lock().unwrap().push(one));
    Told { way, denied, asked }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn connected(told: &Told, to: SocketAddr) -> Result<Box<dyn Link>, NetworkError> {
    let mut link = told.way.connect(to)?;
    wait(std::future::poll_fn(|cx| link.poll_connected(cx)))?;
    Ok(link)
}

fn query(name: &str, kind: u8) -> Vec<u8> {
    let labels =
        name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    head.into_iter().chain(labels).chain([0, 0, kind, 0, 1]).collect()
}

/// The code of an answer, and how many addresses it has.
fn ask(told: &Told, name: &str, kind: u8) -> (u8, u8) {
    let answer = wait(told.way.resolve(&query(name, kind))).expect("an answer");
    (answer[3] & 15, answer[7])
}

#[test]
fn bytes_go_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let told = way(&[&to.to_string()], &[]);
    // Off any event loop, as while a program is loaded.
    let mut link = told.way.connect(to).unwrap();
    let (mut peer, _) = {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = link.poll_connected(&mut cx);
        listener.accept().unwrap()
    };
    wait(async {
        use std::future::poll_fn;
        poll_fn(|cx| link.poll_connected(cx)).await.unwrap();
        assert_eq!(poll_fn(|cx| link.poll_write(cx, b"there")).await, Ok(5));
        let mut buffer = [0; 16];
        peer.read_exact(&mut buffer[..5]).unwrap();
        assert_eq!(&buffer[..5], b"there");
        peer.write_all(b"back").unwrap();
        assert_eq!(poll_fn(|cx| link.poll_read(cx, &mut buffer)).await, Ok(4));
        assert_eq!(&buffer[..4], b"back");
        poll_fn(|cx| link.poll_shutdown(cx)).await.unwrap();
        assert_eq!(peer.read(&mut buffer).unwrap(), 0);
        drop(peer);
        assert_eq!(poll_fn(|cx| link.poll_read(cx, &mut buffer)).await, Ok(0));
    });
    assert!(told.denied.lock().unwrap().is_empty());
}

#[test]
fn what_is_not_named_is_denied_at_once() {
    let told = way(&["127.0.0.1:1"], &[]);
    for to in ["127.0.0.1:2", "127.0.0.2:1", "[::1]:1", "1.1.1.1:1"] {
        let to = to.parse().unwrap();
        assert!(matches!(told.way.connect(to), Err(NetworkError::Denied)), "{to}");
    }
    let denied = told.denied.lock().unwrap();
    assert_eq!(denied[0].what, "127.0.0.1:2");
    assert!(denied.iter().all(|denied| denied.reason == Reason::NotNamed));
}

#[test]
fn who_refuses_is_found_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    drop(listener);
    let told = way(&[&to.to_string()], &[]);
    assert!(matches!(connected(&told, to), Err(NetworkError::Refused)));
}

#[test]
fn names_lead_to_their_addresses() {
    const NAMES: &[(&str, &str)] = &[
        ("good.example", "192.0.2.1"),
        ("good.example", "1.1.1.1"),
        ("good.example", "2606:4700::1"),
        ("a.example.com", "1.0.0.1"),
    ];
    let told = way(&["good.example:80", "*.example.com:80", "own.example:80", "gone.x:1"], NAMES);
    assert_eq!(ask(&told, "good.example", 1), (0, 1), "not the special one");
    assert_eq!(ask(&told, "GOOD.example", 28), (0, 1));
    assert_eq!(ask(&told, "good.example", 15), (0, 0), "no mail");
    assert_eq!(told.asked.load(Ordering::Relaxed), 1, "the answer is kept for a while");
    assert_eq!(ask(&told, "a.example.com", 1), (0, 1));
    assert_eq!(ask(&told, "own.example", 1), (0, 1));
    assert_eq!(ask(&told, "gone.x", 1), (3, 0));
    assert_eq!(told.asked.load(Ordering::Relaxed), 3);
    assert!(told.denied.lock().unwrap().is_empty());
    assert_eq!(ask(&told, "other.example", 1), (3, 0));
    assert_eq!(told.asked.load(Ordering::Relaxed), 3, "the resolver is not asked");
    assert_eq!(told.denied.lock().unwrap()[0].what, "other.example");
}

/// DNS rebinding: whoever owns a name points it to the operator's own network.
#[test]
fn a_name_does_not_lead_inside() {
    const NAMES: &[(&str, &str)] = &[
        ("evil.example", "127.0.0.1"),
        ("evil.example", "169.254.169.254"),
        ("evil.example", "::ffff:10.0.0.1"),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let rule = format!("evil.example:{}", to.port());
    let told = way(&[&rule], NAMES);
    assert_eq!(ask(&told, "evil.example", 1), (3, 0));
    assert_eq!(told.denied.lock().unwrap()[0].reason, Reason::Special);
    assert!(matches!(connected(&told, to), Err(NetworkError::Denied)));
    assert_eq!(told.denied.lock().unwrap()[1].reason, Reason::Special);

    let own = format!("own.example:{}", to.port());
    assert!(connected(&way(&[&own], &[]), to).is_ok(), "the operator's own");
    let both = [&rule[..], &format!("127.0.0.0/8:{}", to.port())];
    assert!(connected(&way(&both, NAMES), to).is_ok(), "the range is named");
}

#[test]
fn connections_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let told = way_with(&[&to.to_string()], &[], 2);
    let (first, _second) = (connected(&told, to).unwrap(), connected(&told, to).unwrap());
    assert!(matches!(told.way.connect(to), Err(NetworkError::TooMany)));
    drop(first);
    assert!(connected(&told, to).is_ok());
}

#[test]
fn a_slow_reader_holds_the_writer_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let told = way(&[&to.to_string()], &[]);
    let mut link = connected(&told, to).unwrap();
    let (_peer, _) = listener.accept().unwrap();
    wait(async {
        let full = std::future::poll_fn(|cx| {
            loop {
                match link.poll_write(cx, &[0; 65_536]) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => panic!("{error}"),
                    Poll::Pending => return Poll::Ready(true),
                }
            }
        });
        assert!(full.await);
    });
}
