//! TLS, PROXY protocol and Unix sockets under scripted guests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
#[path = "../../runtime/tests/fake/mod.rs"]
mod fake;

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use client::{TestServer, get, serve_on};
use fake::{Act, Gate, answer, trap};
use rcgen::{CertificateParams, CertifiedKey, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use sandtide_http::{
    Address, BindError, CertificateFiles, Certificates, ClientAuth, Listen, Options, Server, Tls,
    TlsError,
};

fn tls_listen() -> Listen {
    let address = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
    Listen { tls: true, ..address.into() }
}

/// A certificate for these names that vouches for itself, in files.
fn certificate(directory: &Path, file: &str, names: &[&str]) -> CertificateFiles {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let params = CertificateParams::new(names).unwrap();
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let made = CertifiedKey { cert, signing_key: key };
    let path = |ending| directory.join(format!("{file}.{ending}"));
    fs::write(path("pem"), made.cert.pem()).unwrap();
    fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    CertificateFiles { certificate: path("pem"), key: path("key") }
}

fn load(certificates: &[&CertificateFiles], client_auth: ClientAuth) -> Arc<Certificates> {
    let certificates = certificates.iter().map(|&files| files.clone()).collect();
    Certificates::load(Tls { certificates, client_auth }).unwrap()
}

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Shakes hands as one that trusts these, and may show one.
fn connect(
    server: &TestServer,
    name: &str,
    trusted: &[&CertificateFiles],
    shown: Option<&CertificateFiles>,
    protocols: &[&[u8]],
) -> Result<Client, std::io::Error> {
    let mut roots = RootCertStore::empty();
    for files in trusted {
        roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some(files) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&files.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&files.key).unwrap(),
            )
            .unwrap(),
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(session, server.connect().stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Sends a request and reads until the connection ends.
fn ask(client: &mut Client, path: &str) -> (String, Option<ErrorKind>) {
    let request = get(path).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut received = Vec::new();
    let error = client.read_to_end(&mut received).err().map(|error| error.kind());
    (String::from_utf8(received).unwrap(), error)
}

#[test]
fn the_name_chooses_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let first = certificate(directory.path(), "first", &["first.test"]);
    let second = certificate(directory.path(), "second", &["second.test", "*.second.test"]);
    let certificates = load(&[&first, &second], ClientAuth::Off);
    let server = serve_on(tls_listen(), Some(certificates), [("/", answer("hi"))], |_, _| {});
    let connects = |name, trusted| connect(&server, name, &[trusted], None, &[]).is_ok();
    for (name, of_first, of_second) in [
        ("first.test", true, false),
        ("second.test", false, true),
        ("A.Second.Test", false, true),
        // A wildcard is one label, and others get the default.
        ("a.b.second.test", false, false),
    ] {
        assert_eq!(connects(name, &first), of_first, "{name}");
        assert_eq!(connects(name, &second), of_second, "{name}");
    }
    let mut client = connect(&server, "first.test", &[&first], None, &[]).unwrap();
    let (response, error) = ask(&mut client, "/");
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("hi"), "{response}");
    assert_eq!(error, None, "a clean end is said to be one");
    let http2 = connect(&server, "first.test", &[&first], None, &[b"h2", b"http/1.1"]).unwrap();
    assert_eq!(http2.conn.alpn_protocol(), Some(&b"h2"[..]));
}

#[test]
fn a_response_that_breaks_off_has_no_clean_end() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate(directory.path(), "a", &["a.test"]);
    let broken =
        vec![Act::Begin(200, vec![]), Act::Write("part".into()), Act::Slice, Act::Fault(trap)];
    let certificates = load(&[&files], ClientAuth::Off);
    let server = serve_on(tls_listen(), Some(certificates), [("/", broken)], |_, _| {});
    let mut client = connect(&server, "a.test", &[&files], None, &[]).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\nhost: shop.test\r\n\r\n").unwrap();
    let error = client.read_to_end(&mut Vec::new()).unwrap_err().kind();
    assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{error}");
}

#[test]
fn large_bodies_arrive_whole_through_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate(directory.path(), "a", &["a.test"]);
    let body: bytes::Bytes = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
    let whole = vec![
        Act::Begin(200, vec![("content-length", "5000000")]),
        Act::Write(body.clone()),
        Act::Finish(vec![]),
    ];
    let certificates = load(&[&files], ClientAuth::Off);
    let server = serve_on(tls_listen(), Some(certificates), [("/", whole)], |_, _| {});
    let mut client = connect(&server, "a.test", &[&files], None, &[]).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\nhost: shop.test\r\n\r\n").unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert!(received.ends_with(&body));
}

#[test]
fn clients_show_what_the_authority_vouches_for() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate(directory.path(), "a", &["a.test"]);
    let own = certificate(directory.path(), "own", &["client"]);
    let foreign = certificate(directory.path(), "foreign", &["client"]);
    for is_required in [false, true] {
        let ca = own.certificate.clone();
        let auth = if is_required { ClientAuth::Required(ca) } else { ClientAuth::Optional(ca) };
        let certificates = load(&[&files], auth);
        let server = serve_on(tls_listen(), Some(certificates), [("/", answer("x"))], |_, _| {});
        for (shown, is_served) in
            [(None, !is_required), (Some(&own), true), (Some(&foreign), false)]
        {
            // In TLS 1.3 the client learns of it when it reads.
            let served =
                connect(&server, "a.test", &[&files], shown, &[]).is_ok_and(|mut client| {
                    let request = get("/").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
                    let sent = client.write_all(request.as_bytes());
                    let mut received = Vec::new();
                    sent.and_then(|()| client.read_to_end(&mut received)).is_ok()
                        && received.starts_with(b"HTTP/1.1 200")
                });
            assert_eq!(served, is_served, "required: {is_required}, shown: {shown:?}");
        }
    }
}

#[test]
fn a_reload_takes_what_is_right_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let old = certificate(directory.path(), "a", &["a.test"]);
    let kept = directory.path().join("kept.pem");
    fs::copy(&old.certificate, &kept).unwrap();
    let trusted = CertificateFiles { certificate: kept, key: old.key.clone() };
    let certificates = load(&[&old], ClientAuth::Off);
    let scripts = [("/", answer("x"))];
    let server = serve_on(tls_listen(), Some(certificates.clone()), scripts, |_, _| {});
    let connects = |trusted| connect(&server, "a.test", &[trusted], None, &[]).is_ok();
    assert!(!certificates.reload().unwrap(), "nothing has changed");
    fs::write(&old.certificate, "nonsense").unwrap();
    assert!(matches!(certificates.reload().unwrap_err(), TlsError::NoCertificate(_)));
    assert!(connects(&trusted), "the old one serves");
    let new = certificate(directory.path(), "a", &["a.test"]);
    assert!(certificates.reload().unwrap());
    assert!(connects(&new) && !connects(&trusted));
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let good = certificate(directory.path(), "good", &["a.test"]);
    let other = certificate(directory.path(), "other", &["a.test"]);
    let nameless = certificate(directory.path(), "nameless", &[]);
    let encrypted = directory.path().join("encrypted.key");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(&encrypted, text).unwrap();
    let load = |certificate: &Path, key: &Path| {
        let files = CertificateFiles { certificate: certificate.into(), key: key.into() };
        let tls = Tls { certificates: vec![files], client_auth: ClientAuth::Off };
        let error = Certificates::load(tls).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        error
    };
    let missing = directory.path().join("missing");
    assert!(matches!(load(&missing, &good.key), TlsError::Read { .. }));
    assert!(matches!(load(&good.certificate, &missing), TlsError::Read { .. }));
    assert!(matches!(load(&good.key, &good.key), TlsError::NoCertificate(_)));
    assert!(matches!(load(&good.certificate, &good.certificate), TlsError::NoKey(_)));
    assert!(matches!(load(&good.certificate, &encrypted), TlsError::EncryptedKey(_)));
    assert!(matches!(load(&good.certificate, &other.key), TlsError::Mismatch { .. }));
    assert!(matches!(load(&nameless.certificate, &nameless.key), TlsError::NoNames(_)));
    let nothing = Tls { certificates: vec![], client_auth: ClientAuth::Off };
    assert!(matches!(Certificates::load(nothing).unwrap_err(), TlsError::Nothing));
    let plain = Server::bind(&[tls_listen()], None, Options::default()).unwrap_err();
    assert!(matches!(plain, BindError::NoCertificate(_)));
}

#[test]
fn handshakes_and_headers_that_do_not_come_are_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate(directory.path(), "a", &["a.test"]);
    let soon = |options: &mut Options| options.head_timeout = Duration::from_millis(50);
    let certificates = load(&[&files], ClientAuth::Off);
    let scripts = || [("/", answer("x"))];
    let tls = serve_on(tls_listen(), Some(certificates), scripts(), |_, options| soon(options));
    let listen = Listen { tls: false, proxy_protocol: true, ..tls_listen() };
    let proxied = serve_on(listen, None, scripts(), |_, options| soon(options));
    for (server, begin) in [(&tls, &b"\x16\x03\x01"[..]), (&proxied, b"\r\n\r\n\0\r\nQ")] {
        for begin in [&b""[..], begin] {
            let mut client = server.connect();
            client.send(begin);
            assert!(matches!(client.end(), Ok(()) | Err(ErrorKind::ConnectionReset)));
        }
    }
}

#[test]
fn who_speaks_for_others_has_to_say_so() {
    let listen = Listen { tls: false, proxy_protocol: true, ..tls_listen() };
    let server = serve_on(listen, None, [("/", answer("x"))], |_, _| {});
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\x01\x0a\0\0\x02\x30\x39\x01\xbb";
    for header in [&header[..], b"PROXY TCP4 10.0.0.1 10.0.0.2 12345 443\r\n"] {
        let mut client = server.connect();
        // In two pieces, and together with the request.
        client.send(&header[..7]);
        client.send([&header[7..], get("/").as_bytes()].concat());
        assert_eq!(client.response().text(), "x");
        client.send(get("/"));
        assert_eq!(client.response().text(), "x");
    }
    for begin in ["GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n", "\r\n\r\n\0\r\nQUIT\n\x3f\x11\0\x0c"]
    {
        let mut client = server.connect();
        client.send(begin);
        assert!(matches!(client.end(), Ok(()) | Err(ErrorKind::ConnectionReset)));
    }
    assert_eq!(server.stop().exchanges, 4);
}

#[test]
fn a_unix_socket_serves_until_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listen = Listen { address: Address::Unix(path.clone()), tls: false, proxy_protocol: false };
    let server = serve_on(listen.clone(), None, [("/", answer("x"))], |_, options| {
        options.threads = 2;
    });
    for _ in 0..4 {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\nhost: shop.test\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.0 200") && response.ends_with('x'), "{response}");
    }
    let error = Server::bind(&[listen], None, Options::default()).unwrap_err();
    assert!(matches!(error, BindError::InUse(Address::Unix(_))), "{error}");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_shutdown_does_not_wait_for_who_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificate(directory.path(), "a", &["a.test"]);
    let certificates = load(&[&files], ClientAuth::Off);
    let gate = Gate::new();
    let script = [vec![Act::Wait(gate.clone())], answer("x")].concat();
    let mut server = serve_on(tls_listen(), Some(certificates), [("/", script)], |_, options| {
        options.drain = Duration::from_secs(60);
    });
    let mut idle = connect(&server, "a.test", &[&files], None, &[b"h2"]).unwrap();
    let mut silent = server.connect();
    server.begin_stop();
    assert!(matches!(silent.end(), Ok(()) | Err(ErrorKind::ConnectionReset)));
    let _ = idle.read_to_end(&mut Vec::new());
    gate.open();
    server.stop();
}
