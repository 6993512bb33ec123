//! Programs of each SDK save their state and take it over, in the engine that serves them. What a
//! reload makes of that is in tests/tests/state.rs.
#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use sandtide_build::{BuildError, BuildOptions};
use sandtide_engine::{
    Console, Engine as _, Events, Exchange, ExchangeId, Limits, Next, Outcome, Program,
    ProgramSource, Progress, RequestBody, Sandbox, Slice, Stream, Translate, Turn, Warmup,
};
use sandtide_riscv::RiscvEngine;

struct Quiet;

impl Console for Quiet {
    fn write(&self, _: Stream, _: &[u8]) {}
}

/// The program from a source of the checkout; `None`, and a note, if this machine has no compiler.
fn load(source: &str) -> Option<Arc<dyn Program>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        output: Some(scratch.path().join("program.elf")),
        project: Some(top.clone()),
        ..BuildOptions::default()
    };
    match sandtide_build::build(&top.join(source), &options, &mut |_| ()) {
        Ok(built) => {
            let image = std::fs::read(built.program).unwrap();
            let source = ProgramSource {
                name: source.to_owned(),
                image: image.into(),
                args: vec![source.to_owned()],
                env: Vec::new(),
                reseed: false,
                files: Vec::new(),
                network: None,
                path: "/program".to_owned(),
                directory: "/".to_owned(),
                translate: Translate::default(),
                warmup: Warmup::default(),
            };
            Some(RiscvEngine::new().load(&source, &Limits::default(), Arc::new(Quiet)).unwrap())
        }
        Err(error @ (BuildError::NoCompiler { .. } | BuildError::NoPythran { .. })) => {
            assert!(std::env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(), "{error}");
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A sandbox that is kept.
struct Guest(Box<dyn Sandbox>);

impl Guest {
    fn new(program: &dyn Program) -> Self {
        Self(program.spawn(Arc::new(Quiet)).unwrap())
    }

    /// Status and body of the answer.
    fn serve(&mut self, mut exchange: Exchange) -> (u16, Bytes) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut turn = Turn {
                cx: &mut Context::from_waker(Waker::noop()),
                exchange: &mut exchange,
                now: Instant::now(),
                slice: Slice(Duration::from_millis(100)),
                deadline,
                interrupt: &|| false,
            };
            match self.0.run(&mut turn) {
                Progress::Ended(Outcome::Done) => break,
                Progress::Sliced => {}
                other => panic!("{other:?}"),
            }
        }
        self.0.keep(Next::Anyone).unwrap();
        let head = exchange.response.take_head().unwrap();
        (head.status.as_u16(), exchange.response.take_data().unwrap_or_default())
    }

    fn get(&mut self, target: &str) -> String {
        let (parts, ()) = Request::get(target).body(()).unwrap().into_parts();
        let exchange = Exchange::new(ExchangeId(1), parts, RequestBody::empty(), 1 << 20);
        let (status, body) = self.serve(exchange);
        assert_eq!(status, 200);
        String::from_utf8(body.to_vec()).unwrap()
    }

    fn save(&mut self) -> (u16, Bytes) {
        self.serve(Exchange::save(ExchangeId(2), 1 << 20))
    }

    fn restore(&mut self, state: &Bytes) -> u16 {
        self.serve(Exchange::restore(ExchangeId(3), state.clone(), 1 << 20)).0
    }
}

const BOTH: Events = Events { save: true, restore: true };

#[test]
fn a_program_in_c_goes_on_in_another_sandbox() {
    let Some(program) = load("examples/counter/counter.c") else { return };
    assert_eq!(program.events(), BOTH);
    let mut old = Guest::new(&*program);
    assert_eq!([old.get("/"), old.get("/")], ["1\n", "2\n"]);
    let (status, state) = old.save();
    assert_eq!((status, &*state), (200, &b"2\n"[..]));
    // Saving changes nothing: the old one can go on if the new one cannot begin.
    assert_eq!(old.get("/"), "3\n");
    let mut new = Guest::new(&*program);
    assert_eq!(new.restore(&state), 200);
    assert_eq!(new.get("/"), "3\n");
    assert_eq!(new.restore(&Bytes::from_static(b"x")), 500);
    // More than the buffer for requests holds.
    let long = Bytes::from([vec![b'0'; 100_000], b"41".to_vec()].concat());
    assert_eq!(new.restore(&long), 200);
    assert_eq!(new.get("/"), "42\n");
}

#[test]
fn a_program_in_cpp_goes_on_in_another_sandbox() {
    let Some(program) = load("tests/guests/suite_state.cpp") else { return };
    assert_eq!(program.events(), BOTH);
    let mut old = Guest::new(&*program);
    assert_eq!(old.get("/"), "? fresh");
    old.get("/set?kept");
    let (status, state) = old.save();
    assert_eq!(status, 200);
    let mut new = Guest::new(&*program);
    assert_eq!(new.restore(&state), 200);
    assert_eq!(new.get("/"), "? kept");
    // An exception is a refusal, and the program goes on.
    new.get("/set?save-throw");
    assert_eq!(new.save(), (500, Bytes::new()));
    assert_eq!(new.restore(&Bytes::from_static(b"restore-throw")), 500);
    assert_eq!(new.get("/set?on"), "? on");
    // A large state, and an empty one.
    new.get("/set?big-900000");
    let (status, state) = new.save();
    assert_eq!((status, state.len()), (200, 900_000));
    assert_eq!(old.restore(&state), 200);
    assert_eq!(old.get("/"), "? big-900000");
    assert_eq!(old.restore(&Bytes::new()), 200);
    assert_eq!(old.get("/"), "? ");
}

#[test]
fn a_program_in_python_goes_on_in_another_sandbox() {
    let Some(program) = load("tests/guests/suite_state.py") else { return };
    assert_eq!(program.events(), BOTH);
    let mut old = Guest::new(&*program);
    assert_eq!([old.get("/"), old.get("/")], ["1", "2"]);
    let (status, state) = old.save();
    assert_eq!((status, &*state), (200, &b"2"[..]));
    let mut new = Guest::new(&*program);
    assert_eq!(new.restore(&state), 200);
    assert_eq!(new.get("/"), "3");
    assert_eq!(new.restore(&Bytes::from_static(b"x")), 500);
    assert_eq!(new.get("/"), "4");
}

#[test]
fn a_program_without_handlers_has_no_events() {
    let Some(program) = load("examples/hello/hello.c") else { return };
    assert_eq!(program.events(), Events::default());
}
