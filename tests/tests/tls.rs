//! TLS: which certificate is shown to whom, what is agreed on, who is let in, and that certificates are
//! exchanged without losing anybody.

use std::path::Path;

use sandtide_tests::{
    Curl, Request, Run, Server, Signal,
    binary::top,
    built, has_tools,
    tls::{Authority, Identity, s_client},
};
use tempfile::TempDir;

struct Tls {
    server: Server,
    authority: Authority,
    directory: TempDir,
}

impl Tls {
    /// A server with a certificate for each of these names, and these further lines in `[tls]`.
    fn start(names: &[&[&str]], lines: &str) -> Option<Self> {
        if !has_tools(&["curl", "openssl"]) {
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new(directory.path(), "authority");
        let identities: Vec<Identity> = names
            .iter()
            .enumerate()
            .map(|(number, names)| authority.issue(&format!("server-{number}"), names))
            .collect();
        let server = Server::of(&configuration(directory.path(), &identities, lines));
        Some(Self { server, authority, directory })
    }

    fn curl(&self, host: &str) -> Curl {
        Curl::new(&self.server.address().to_string(), &format!("https://{host}/"))
            .trusting(&self.authority.certificate)
    }

    fn shake(&self, arguments: &[&str]) -> Run {
        s_client(self.server.address(), arguments)
    }

    /// The common name of the certificate that is shown to a client that asks for this name.
    fn shown_to(&self, name: &str) -> String {
        let arguments =
            if name.is_empty() { vec!["-noservername"] } else { vec!["-servername", name] };
        let run = self.shake(&arguments);
        let line = run.stdout.lines().find_map(|line| line.strip_prefix("subject="));
        line.unwrap_or_else(|| panic!("{run:?}"))
            .replace("CN = ", "")
            .replace("CN=", "")
            .trim()
            .to_owned()
    }
}

fn configuration(directory: &Path, identities: &[Identity], lines: &str) -> String {
    let certificates: Vec<String> = identities.iter().map(Identity::toml).collect();
    format!(
        "[server]\nlisten = {{ address = \"127.0.0.1:0\", tls = true }}\nthreads = 1\n\
         [tls]\ncertificates = [{}]\n{}\n\
         [tenants.fixed]\ndefault = true\nrespond = {{ body = \"fixed\" }}\n",
        certificates.join(", "),
        lines.replace("{directory}", &directory.display().to_string())
    )
}

#[test]
fn each_name_has_its_certificate() {
    let names: [&[&str]; 3] = [&["one.test", "www.one.test"], &["two.test"], &["*.wild.test"]];
    let Some(tls) = Tls::start(&names, "") else { return };
    for (name, shown) in [
        ("one.test", "one.test"),
        ("ONE.test", "one.test"),
        ("www.one.test", "one.test"),
        ("two.test", "two.test"),
        ("a.wild.test", "*.wild.test"),
        // A wildcard stands for one label, and nobody's name gets the first certificate, as does none.
        ("a.b.wild.test", "one.test"),
        ("wild.test", "one.test"),
        ("nobody.test", "one.test"),
        ("", "one.test"),
    ] {
        assert_eq!(tls.shown_to(name), shown, "{name}");
    }
    for host in ["one.test", "www.one.test", "two.test", "a.wild.test"] {
        assert_eq!(tls.curl(host).get().text(), "fixed", "{host}");
    }
    let (code, said) = tls.curl("nobody.test").run().expect_err("a name that nobody vouches for");
    assert_eq!(code, 60, "{said}");
}

#[test]
fn protocols_are_agreed_on() {
    let Some(tls) = Tls::start(&[&["one.test"]], "") else { return };
    for (offered, agreed) in [
        ("h2,http/1.1", "h2"),
        ("http/1.1,h2", "h2"),
        ("h2", "h2"),
        ("http/1.1", "http/1.1"),
        ("http/1.0,http/1.1", "http/1.1"),
    ] {
        let run = tls.shake(&["-alpn", offered]);
        let expected = format!("ALPN protocol: {agreed}");
        assert!(run.stdout.contains(&expected), "{offered}: {}", run.stdout);
    }
    let none = tls.shake(&[]);
    assert!(none.stdout.contains("No ALPN negotiated"), "{}", none.stdout);
    let unknown = tls.shake(&["-alpn", "spdy/3"]);
    assert!(!unknown.stdout.contains("ALPN protocol: spdy"), "{}", unknown.stdout);
    assert_eq!(tls.curl("one.test").arg("--no-alpn").get().version, "1.1");
    assert_eq!(tls.curl("one.test").arg("--http1.1").get().version, "1.1");
    assert_eq!(tls.curl("one.test").get().version, "2");
}

#[test]
fn old_versions_are_refused() {
    let Some(tls) = Tls::start(&[&["one.test"]], "") else { return };
    for (version, name) in [("-tls1_3", "TLSv1.3"), ("-tls1_2", "TLSv1.2")] {
        let run = tls.shake(&[version]);
        assert!(run.stdout.contains(name), "{}", run.stdout);
        assert!(run.stdout.contains("BEGIN CERTIFICATE"), "{}", run.stdout);
    }
    for version in ["-tls1_1", "-tls1"] {
        let run = tls.shake(&[version, "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(!run.stdout.contains("BEGIN CERTIFICATE"), "{version}: {}", run.stdout);
    }
    assert_eq!(tls.curl("one.test").get().text(), "fixed");
}

/// What is spoken in clear where TLS is expected gets nothing, and hurts nobody.
#[test]
fn clear_text_is_no_handshake() {
    let Some(tls) = Tls::start(&[&["one.test"]], "") else { return };
    let mut client = tls.server.connect();
    client.send(&Request::get("one", "/").bytes());
    let rest = client.rest();
    assert!(!rest.starts_with(b"HTTP/"), "{rest:?}");
    assert_eq!(tls.curl("one.test").get().text(), "fixed");
}

#[test]
fn clients_without_a_certificate() {
    for (mode, without, with, with_others) in [
        ("off", true, true, true),
        ("optional", true, true, false),
        ("required", false, true, false),
    ] {
        let lines = match mode {
            "off" => String::new(),
            mode => {
                format!("client_auth = \"{mode}\"\nclient_ca = \"{{directory}}/authority.pem\"")
            }
        };
        let Some(tls) = Tls::start(&[&["one.test"]], &lines) else { return };
        let strangers = Authority::new(tls.directory.path(), "strangers");
        let known = tls.authority.issue_client("client", "client.test");
        let unknown = strangers.issue_client("stranger", "stranger.test");
        let ask = |identity: Option<&Identity>, version: &str| {
            let curl = tls.curl("one.test").arg(version);
            let curl = match identity {
                None => curl,
                Some(Identity { certificate, key }) => {
                    let path = |path: &Path| path.to_str().expect("text").to_owned();
                    curl.arg("--cert").arg(&path(certificate)).arg("--key").arg(&path(key))
                }
            };
            match curl.run() {
                Ok(got) => {
                    assert_eq!(got.text(), "fixed");
                    true
                }
                Err(_) => false,
            }
        };
        for version in ["--http1.1", "--http2"] {
            assert_eq!(ask(None, version), without, "{mode}, {version}, no certificate");
            assert_eq!(ask(Some(&known), version), with, "{mode}, {version}, a certificate");
            let name = "a stranger's certificate";
            assert_eq!(ask(Some(&unknown), version), with_others, "{mode}, {version}, {name}");
        }
    }
}

/// A guest gets the certificate of the handshake (RFC 9440), and nothing that a client made up.
#[test]
fn guests_get_the_certificate_of_their_client() {
    let Some(echo) = built(&top().join("examples/echo/echo.c")) else { return };
    for (mode, without) in [("optional", true), ("required", false)] {
        let lines = format!(
            "client_auth = \"{mode}\"\nclient_ca = \"{{directory}}/authority.pem\"\n\
             [tenants.echo]\nauthorities = \"echo.test\"\nprogram = {echo:?}\n"
        );
        let Some(tls) = Tls::start(&[&["one.test", "echo.test"]], &lines) else { return };
        let known = tls.authority.issue_client("client", "client.test");
        let path = |path: &Path| path.to_str().expect("text").to_owned();
        let claiming = |version: &str| {
            let curl = tls.curl("echo.test").arg(version);
            curl.header("Client-Cert: :Zm9yZ2Vk:").header("client-cert-chain: :Zm9yZ2Vk:")
        };
        // What PEM has between its lines is the same in Base64.
        let pem = std::fs::read_to_string(&known.certificate).expect("it was written");
        let own: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        for version in ["--http1.1", "--http2"] {
            let curl = claiming(version).arg("--cert").arg(&path(&known.certificate));
            let got = curl.arg("--key").arg(&path(&known.key)).get();
            let text = got.text();
            let lines = text.lines().filter(|line| line.starts_with("client-cert"));
            let expected = format!("client-cert: :{own}:");
            assert_eq!(lines.collect::<Vec<_>>(), [expected], "{mode}, {version}");
            match claiming(version).run() {
                Ok(got) if without => {
                    assert!(!got.text().contains("client-cert"), "{version}: {}", got.text());
                }
                Ok(got) => panic!("{mode}, {version}: let in without a certificate: {got:?}"),
                Err(error) => assert!(!without, "{mode}, {version}: {error:?}"),
            }
        }
    }
}

#[test]
fn certificates_are_exchanged_while_clients_stay() {
    let Some(tls) = Tls::start(&[&["one.test"]], "") else { return };
    let shown = |tls: &Tls| tls.shake(&["-showcerts"]).stdout;
    let serial = |text: &str| {
        let begin = text.find("-----BEGIN CERTIFICATE-----").expect("a certificate");
        let end = text.find("-----END CERTIFICATE-----").expect("a certificate");
        text[begin..end].to_owned()
    };
    let before = serial(&shown(&tls));
    // Its files change, and the server is told.
    tls.authority.issue("server-0", &["one.test"]);
    let mark = tls.server.log.mark();
    tls.server.signal(Signal::HUP);
    tls.server.log.wait_since(mark, "it has read its files again", |line| line.contains("reload"));
    let after = serial(&shown(&tls));
    assert_ne!(before, after, "the old certificate is still shown");
    assert_eq!(tls.curl("one.test").get().text(), "fixed");
    // One that does not fit its key is not taken, and the server says so.
    let other = tls.authority.issue("other", &["one.test"]);
    std::fs::copy(&other.key, tls.directory.path().join("server-0.key")).expect("ours");
    let mark = tls.server.log.mark();
    tls.server.signal(Signal::HUP);
    tls.server.log.wait_since(mark, "why it is not taken", |line| {
        line.contains("server-0") || line.contains("certificate") || line.contains("key")
    });
    assert_eq!(serial(&shown(&tls)), after);
    assert_eq!(tls.curl("one.test").get().text(), "fixed");
}
