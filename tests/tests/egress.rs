//! What programs reach of the outside, and what not: docs/egress.md. Each test runs on each engine that
//! is here, and needs no network but this machine's own.
//!
//! The guest is `tests/guests/suite_egress.c`.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use sandtide_tests::{Request, Server, binary::top, documented::documented, guest, guest::native};

/// Somebody outside.
struct Peer {
    address: SocketAddr,
    /// Connections that it has taken, if it does not talk.
    taken: Receiver<TcpStream>,
}

impl Peer {
    /// Answers each word with `back`.
    fn talking() -> Self {
        Self::of(|mut stream| {
            thread::spawn(move || {
                let mut word = [0; 64];
                while stream.read(&mut word).is_ok_and(|length| length > 0) {
                    let _ = stream.write_all(b"back");
                }
            });
            None
        })
    }

    /// Says nothing, and is the test's to read from.
    fn silent() -> Self {
        Self::of(Some)
    }

    fn of(serve: impl Fn(TcpStream) -> Option<TcpStream> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (give, taken) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(stream) = serve(stream)
                    && give.send(stream).is_err()
                {
                    return;
                }
            }
        });
        Self { address, taken }
    }

    fn taken(&self) -> TcpStream {
        let stream = self.taken.recv_timeout(Duration::from_secs(20)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
        stream
    }
}

/// The guest for each engine that is here.
fn programs() -> Vec<(&'static str, PathBuf)> {
    let source = top().join("tests/guests/suite_egress.c");
    let engines = [("riscv", guest("suite_egress.c")), ("kvm", native(&source))];
    engines.into_iter().filter_map(|(engine, program)| Some((engine, program?))).collect()
}

/// Does the same on each engine, with a server of the tenant `guest` that may have `egress`.
fn on_each(egress: &str, lines: &str, test: impl Fn(&Server)) {
    for (engine, program) in programs() {
        eprintln!("engine {engine}");
        test(&Server::start(&format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             egress = [{egress}]\n{lines}\n"
        )));
    }
}

fn text(server: &Server, target: &str) -> String {
    let response = server.get("guest", target);
    assert_eq!(response.status(), 200, "{target}: {response:?}");
    response.text().to_owned()
}

/// The rule for an address.
fn rule(peer: &Peer) -> String {
    format!("\"{}\"", peer.address)
}

/// A port where nobody listens.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound")
}

#[test]
fn what_is_named_is_reached_however_a_program_connects() {
    let peer = Peer::talking();
    let at = peer.address;
    on_each(&rule(&peer), "", |server| {
        for _ in 0..3 {
            assert_eq!(text(server, &format!("/ask?{at}")), "back, then 0");
        }
        // POLLOUT, no error, nothing to read yet.
        assert_eq!(text(server, &format!("/poll?{at}")), "conditions 4, error 0, read -11, back");
        assert_eq!(text(server, &format!("/edges?{at}")), "events 4, error 0, read -11, back");
        let mut client = server.connect();
        for _ in 0..20 {
            let answer = client.ask(&Request::get("guest", &format!("/ask?{at}")));
            assert_eq!(answer.text(), "back, then 0");
        }
    });
}

#[test]
fn what_is_not_named_is_denied_and_logged() {
    let peer = Peer::talking();
    on_each("\"192.0.2.1:80\"", "", |server| {
        // As if nobody listened there.
        assert_eq!(text(server, &format!("/ask?{}", peer.address)), "connect 111");
        assert_eq!(text(server, "/ask?192.0.2.2:80"), "connect 13", "EACCES");
        assert_eq!(text(server, "/ask?192.0.2.1:81"), "connect 13");
        assert_eq!(text(server, "/ask?169.254.169.254:80"), "connect 13");
        let line = server.log.wait("a report", |line| line.contains("192.0.2.2:80"));
        assert!(line.contains("denied") && line.contains("tenant=guest"), "{line}");
    });
    on_each("", "", |server| {
        assert_eq!(text(server, &format!("/ask?{}", peer.address)), "connect 111");
        assert_eq!(text(server, "/ask?192.0.2.1:80"), "connect 13");
    });
}

#[test]
fn failures_are_linuxs() {
    let nobody = nobody();
    on_each(&format!("\"{nobody}\""), "", |server| {
        assert_eq!(text(server, &format!("/ask?{nobody}")), "connect 111", "ECONNREFUSED");
        let told = text(server, &format!("/poll?{nobody}"));
        // POLLOUT with POLLERR and POLLHUP; told once, and then there is no connection.
        assert_eq!(told, "conditions 28, error 111, read -107, ");
    });
}

#[test]
fn names_are_answered_as_far_as_they_are_named() {
    let peer = Peer::talking();
    let port = peer.address.port();
    let lines = "hosts = { \"db.internal\" = \"127.0.0.1\", \"other.internal\" = \"127.0.0.1\" }";
    let egress = format!("\"db.internal:{port}\", \"*.wild.internal:1\", \"localhost:1\"");
    on_each(&egress, lines, |server| {
        assert_eq!(text(server, "/resolve?db.internal"), "code 0, addresses 1 127.0.0.1");
        assert_eq!(text(server, "/resolve?DB.Internal"), "code 0, addresses 1 127.0.0.1");
        assert_eq!(text(server, "/resolve?localhost"), "code 0, addresses 1 127.0.0.1");
        assert_eq!(text(server, "/resolve?other.internal"), "code 3, addresses 0");
        let line = server.log.wait("a report", |line| line.contains("other.internal"));
        assert!(line.contains("denied"), "{line}");
        // The address is the name's, on its own port only.
        assert_eq!(text(server, &format!("/ask?127.0.0.1:{port}")), "back, then 0");
        assert_eq!(text(server, &format!("/ask?127.0.0.1:{}", nobody().port())), "connect 111");
    });
}

/// What this machine calls itself has an address of this machine, or of a private network.
#[test]
fn a_name_does_not_lead_to_private_addresses() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().to_lowercase();
    let addresses = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 1));
    let Ok(address) = addresses.map(|mut all| all.next()) else { return };
    let Some(address) = address else { return };
    let is_private = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_private(),
        std::net::IpAddr::V6(_) => false,
    };
    if !is_private || name == "localhost" {
        eprintln!("SKIPPED: `{name}` is {address}");
        return;
    }
    on_each(&format!("\"{name}:1\""), "", |server| {
        assert_eq!(text(server, &format!("/resolve?{name}")), "code 3, addresses 0");
        let line = server.log.wait("a report", |line| line.contains("denied"));
        assert!(line.contains("not a public one"), "{line}");
    });
}

#[test]
fn a_connection_of_the_start_is_found_reset_in_each_request() {
    let peer = Peer::talking();
    let lines = format!("env = {{ BOOT = \"{}\" }}", peer.address);
    on_each(&rule(&peer), &lines, |server| {
        for _ in 0..3 {
            let told = text(server, &format!("/keep?{}", peer.address));
            assert!(["send 104", "send 32", "read 104"].contains(&told.as_str()), "{told}");
        }
        server.log.wait("what came at the start", |line| line.contains("at the start: back"));
        assert_eq!(text(server, &format!("/ask?{}", peer.address)), "back, then 0");
    });
}

#[test]
fn a_tenant_that_keeps_its_state_keeps_its_connections() {
    let peer = Peer::talking();
    on_each(&rule(&peer), "isolation = \"none\"", |server| {
        assert!(text(server, &format!("/keep?{}", peer.address)).starts_with("kept"));
        for _ in 0..3 {
            assert_eq!(text(server, "/keep?"), "back");
        }
    });
}

#[test]
fn nothing_is_left_for_the_next_request() {
    let peer = Peer::silent();
    on_each(&rule(&peer), "concurrency = 1", |server| {
        assert_eq!(text(server, "/left"), "1", "the request's own");
        assert!(text(server, &format!("/keep?{}", peer.address)).starts_with("kept"));
        // Closed at once, and not when the sandbox is wanted again.
        assert_eq!(peer.taken().read(&mut [0; 1]).expect("an end"), 0);
        assert_eq!(text(server, "/left"), "1");
        assert!(text(server, &format!("/keep?{}", peer.address)).starts_with("kept"));
        assert_eq!(peer.taken().read(&mut [0; 1]).expect("an end"), 0);
    });
}

#[test]
fn what_was_sent_before_the_answer_arrives() {
    let peer = Peer::silent();
    on_each(&rule(&peer), "", |server| {
        assert_eq!(text(server, &format!("/tell?{}", peer.address)), "told0");
        let mut said = String::new();
        peer.taken().read_to_string(&mut said).expect("text, and its end");
        assert_eq!(said, "told");
    });
}

#[test]
fn a_client_that_leaves_closes_the_connection() {
    let peer = Peer::silent();
    on_each(&rule(&peer), "", |server| {
        let mut client = server.connect();
        client.send(&Request::get("guest", &format!("/hold?{}", peer.address)).bytes());
        let mut taken = peer.taken();
        drop(client);
        assert_eq!(taken.read(&mut [0; 1]).expect("an end"), 0);
        assert_eq!(text(server, "/left"), "1");
    });
}

#[test]
fn who_waits_for_the_outside_has_a_deadline() {
    let peer = Peer::silent();
    let lines = "limits = { wall_time = \"300 ms\" }";
    on_each(&rule(&peer), lines, |server| {
        let response = server.get("guest", &format!("/hold?{}", peer.address));
        assert_eq!(response.status(), 504);
        assert_eq!(peer.taken().read(&mut [0; 1]).expect("an end"), 0);
        assert!(text(server, &format!("/limited?{}", peer.address)).contains("error 11"));
    });
}

#[test]
fn a_peer_that_reads_slowly_makes_a_program_wait() {
    let peer = Peer::silent();
    on_each(&rule(&peer), "", |server| {
        let mut client = server.connect();
        client.send(&Request::get("guest", &format!("/plenty?{}", peer.address)).bytes());
        let mut taken = peer.taken();
        assert!(client.wait(Duration::from_millis(200)).is_none(), "nobody has read");
        let mut bytes = Vec::new();
        taken.read_to_end(&mut bytes).expect("all of it, and the end");
        assert_eq!(bytes.len(), 20_000_000);
        assert_eq!(client.response("GET").text(), "sent 20000000");
    });
}

#[test]
fn connections_are_limited() {
    let (each, all) = (documented("connections"), documented("connections_total"));
    assert!(each.answer.ends_with("`EADDRNOTAVAIL`") && each.log == "–", "{each:?}");
    assert!(all.answer.ends_with("`EADDRNOTAVAIL`") && all.log.contains("denied"), "{all:?}");
    let peer = Peer::silent();
    let limits = |connections: u32, total: u32| {
        format!(
            "[tenants.guest.limits]\nconnections = {connections}\nconnections_total = {total}\n"
        )
    };
    let target = format!("/many?{}", peer.address);
    on_each(&rule(&peer), &limits(5, 100), |server| {
        for _ in 0..2 {
            assert_eq!(text(server, &target), "connect 99 after 5", "EADDRNOTAVAIL");
        }
    });
    on_each(&rule(&peer), &limits(100, 3), |server| {
        for _ in 0..2 {
            assert_eq!(text(server, &target), "connect 99 after 3");
        }
        server.log.wait("a report", |line| line.contains("`limits.connections_total`"));
    });
}
