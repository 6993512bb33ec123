//! WSGI applications in process: docs/python.md. Each path of `tests/apps/wsgi_sink.py` is one thing to see.

use std::thread;

use serde_json::Value;

use sandtide_tests::{Request, Server};

/// On the reactor's thread, and on threads of a pool.
fn both() -> [Server; 2] {
    [&[][..], &["--app-threads", "2"]]
        .map(|arguments| Server::application("wsgi_sink:app", arguments))
}

#[test]
fn an_application_is_told_what_was_asked() {
    for server in both() {
        let target = "/environ/a%20b%C3%A4?x=1";
        let request =
            Request::new("POST", "shop", target).header("X-Twice", "1").header("X-Twice", "2");
        let request = request.header("Content-Type", "text/x").header("X_Twice", "3").body("body");
        let text = server.ask(&request);
        let environ: Value = serde_json::from_str(text.text()).expect("JSON");
        assert_eq!(environ["REQUEST_METHOD"], "POST");
        assert_eq!(environ["SCRIPT_NAME"], "");
        assert_eq!(environ["PATH_INFO"], "/environ/a b\u{c3}\u{a4}");
        assert_eq!(environ["QUERY_STRING"], "x=1");
        assert_eq!(environ["CONTENT_TYPE"], "text/x");
        assert_eq!(environ["CONTENT_LENGTH"], "4");
        assert_eq!(environ["HTTP_X_TWICE"], "1,2");
        assert_eq!(environ["REMOTE_ADDR"], "127.0.0.1");
        assert_eq!(environ["SERVER_PORT"], server.address().port().to_string());
        assert_eq!(environ["SERVER_PROTOCOL"], "HTTP/1.1");
        assert_eq!(environ["wsgi.url_scheme"], "http");
    }
}

#[test]
fn answers_are_what_the_application_says() {
    for server in both() {
        let mut client = server.connect();
        let hello = client.ask(&Request::get("x", "/hello"));
        assert_eq!((hello.status(), hello.text()), (200, "Hello, World!\n"));
        assert_eq!(client.ask(&Request::get("x", "/nowhere")).status(), 404);
        assert_eq!(client.ask(&Request::get("x", "/write")).text(), "written, returned");
        let replaced = client.ask(&Request::get("x", "/replace"));
        assert_eq!((replaced.status(), replaced.text()), (503, "replaced"));
        assert_eq!(replaced.header("x-first"), None);
        let twice = client.ask(&Request::get("x", "/twice"));
        assert_eq!(twice.text(), "the response has a head already");
        assert_eq!(client.ask(&Request::get("x", "/close")).text(), "body");
        server.log.wait("the iterable is closed", |line| line == "closed");
        assert_eq!(client.ask(&Request::get("x", "/large")).body.len(), 512 << 16);
    }
}

#[test]
fn bodies_are_files() {
    let body: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    for server in both() {
        let mut client = server.connect();
        for length in [0, 1, 65_536, 70_000, body.len()] {
            let post = Request::new("POST", "x", "/echo").body(&body[..length]);
            assert_eq!(client.ask(&post).body, &body[..length], "{length}");
        }
        let lines = client.ask(&Request::new("POST", "x", "/lines").body("one\ntwo\nthree"));
        assert_eq!(lines.text(), r"[b'one\n', b'two\n', b'three', b'', b'']");
        // A piece is answered before the next is sent.
        client.send(b"POST /pieces HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nab");
        client.try_head("POST").expect("a head");
        assert_eq!(client.try_piece().expect("a piece"), b"ab");
        client.send(b"cd\nef\n");
        assert_eq!(client.body_bytes(3), b"cd\n");
        client.send(b"gh\n");
        assert_eq!(client.body_bytes(6), b"ef\ngh\n");
    }
}

#[test]
fn exceptions_are_answered_and_shown() {
    for server in both() {
        let mut client = server.connect();
        assert_eq!(client.ask(&Request::get("x", "/raise")).status(), 500);
        server.log.wait("the traceback", |line| line == "ValueError: on purpose");
        assert_eq!(client.ask(&Request::get("x", "/never")).status(), 500);
        client.send(b"POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n");
        client.try_head("POST").expect("a head");
        assert_eq!(client.try_piece().expect("a piece"), b"begun");
        client.send(b"x");
        assert!(client.try_piece().is_err());
        assert_eq!(server.get("x", "/hello").status(), 200);
    }
}

#[test]
fn one_thread_is_the_main_one_and_two_answer_at_a_time() {
    let [one, two] = both();
    assert_eq!(one.get("x", "/thread").text(), "True");
    assert_eq!(two.get("x", "/thread").text(), "False");
    thread::scope(|scope| {
        let met = [(); 2].map(|()| scope.spawn(|| two.get("x", "/meet").text().to_owned()));
        for thread in met {
            assert_eq!(thread.join().expect("an answer"), "met");
        }
    });
}
