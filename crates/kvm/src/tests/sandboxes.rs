//! Sandboxes: every exchange starts from the snapshot.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use sandtide_engine::{
    Exchange, ExchangeId, Fault, Limits, Next, Outcome, Progress, RequestBody, Sandbox, Scrutiny,
    Slice, Turn,
};

use super::guests::{Quiet, guest, has_kvm, load};

// Answers with what it finds in a register, a vector, memory, another register, on the stack, and in
// a fresh mapping. Then changes all of them.
guest!(pub(super) counts:
    "mov rbx, 0x31",
    "movq xmm7, rbx",
    "mov qword ptr [0x500000], 0x31",
    "mov rbp, 0x31",
    "push 0x31",
    "2: mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall", // next request
    "mov [0x501000], bl",
    "movq rax, xmm7", "mov [0x501001], al",
    "mov al, [0x500000]", "mov [0x501002], al",
    "mov [0x501003], bpl",
    "mov al, [rsp]", "mov [0x501004], al",
    // A page at the place where one was mapped by the request before.
    "xor edi, edi", "mov esi, 0x1000", "mov edx, 3", "mov r10d, 0x22", "mov r8, -1",
    "xor r9d, r9d", "mov eax, 9", "syscall",
    "mov r12, rax",
    "mov al, [r12]", "add al, 0x31", "mov [0x501005], al",
    "mov byte ptr [r12], 1",
    "mov byte ptr [0x501006], 0x0a",
    "add rbx, 1", "movq xmm7, rbx", "add byte ptr [0x500000], 1", "inc rbp",
    "inc byte ptr [rsp]",
    // respond { status, header_count, headers, body, body_length, trailers, trailer_count }
    "mov dword ptr [0x502000], 200",
    "mov dword ptr [0x502004], 0",
    "mov qword ptr [0x502008], 0",
    "mov qword ptr [0x502010], 0x501000",
    "mov qword ptr [0x502018], 7",
    "mov qword ptr [0x502020], 0",
    "mov qword ptr [0x502028], 0",
    "mov edi, 0x502000", "mov eax, 0x535402", "syscall",
    "jmp 2b");

fn exchange() -> Exchange {
    let (parts, ()) = http::Request::get("/").body(()).unwrap().into_parts();
    Exchange::new(ExchangeId(1), parts, RequestBody::empty(), 1 << 20)
}

/// Runs an exchange to its end; its body, and how many turns it took.
pub(super) fn serve(sandbox: &mut dyn Sandbox, time: Duration) -> (Result<String, Outcome>, usize) {
    let (end, turns) = serve_some(sandbox, time);
    assert!(!matches!(end, Err(Outcome::ClientGone)), "waits for nothing");
    (end, turns)
}

/// The same; the client leaves a guest that waits for something.
pub(super) fn serve_some(
    sandbox: &mut dyn Sandbox,
    time: Duration,
) -> (Result<String, Outcome>, usize) {
    let mut exchange = exchange();
    let deadline = Instant::now() + time;
    for turns in 1.. {
        let mut turn = Turn {
            cx: &mut Context::from_waker(Waker::noop()),
            exchange: &mut exchange,
            now: Instant::now(),
            slice: Slice(Duration::from_millis(5)),
            deadline,
            interrupt: &|| false,
        };
        match sandbox.run(&mut turn) {
            Progress::Ended(Outcome::Done) => {
                let body = exchange.response.take_data().unwrap_or_default();
                return (Ok(String::from_utf8_lossy(&body).into_owned()), turns);
            }
            Progress::Ended(outcome) => return (Err(outcome), turns),
            Progress::Sliced => {}
            Progress::Waiting { .. } => return (Err(Outcome::ClientGone), turns),
        }
    }
    unreachable!()
}

/// Resets a sandbox, and makes sure that it is what the snapshot is.
pub(super) fn renew(sandbox: &mut dyn Sandbox) {
    sandbox.reset().unwrap();
    sandbox.verify(Scrutiny::Everything).unwrap();
}

pub(super) const TIME: Duration = Duration::from_secs(10);

#[test]
fn every_exchange_starts_from_the_snapshot() {
    if !has_kvm() {
        return;
    }
    let program = load(counts(), &Limits::default()).unwrap();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    for _ in 0..1100 {
        // Past a time when memory is given back.
        assert_eq!(serve(&mut *sandbox, TIME).0.unwrap(), "111111\n");
        assert!(sandbox.usage().pages_written > 0);
        sandbox.reset().unwrap();
        sandbox.verify(Scrutiny::Sample).unwrap();
    }
    renew(&mut *sandbox);
    let mut other = program.spawn(Arc::new(Quiet)).unwrap();
    assert_eq!(serve(&mut *other, TIME).0.unwrap(), "111111\n");
}

#[test]
fn a_sandbox_that_is_kept_goes_on_where_it_was() {
    if !has_kvm() {
        return;
    }
    let program = load(counts(), &Limits::default()).unwrap();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    for expected in ["111111\n", "222221\n", "333331\n"] {
        assert_eq!(serve(&mut *sandbox, TIME).0.unwrap(), expected);
        sandbox.keep(Next::Anyone).unwrap();
    }
    renew(&mut *sandbox);
    assert_eq!(serve(&mut *sandbox, TIME).0.unwrap(), "111111\n");
}

guest!(spins_on_request:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "mov rbx, [0x500000]",
    "2: inc rbx", "mov [0x500000], rbx", "jmp 2b");

// Two threads that leave the processor to each other.
guest!(yields_on_request:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "mov edi, 0x50f00", "mov esi, 0x504000", "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d",
    "mov eax, 56", "syscall", // clone
    "2: mov eax, 24", "syscall", "jmp 2b");

guest!(calls_on_request:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "2: mov eax, 0x535400", "syscall", "jmp 2b");

#[test]
fn a_spinning_exchange_is_sliced_and_ended_and_reset() {
    if !has_kvm() {
        return;
    }
    for spins in [spins_on_request(), yields_on_request(), calls_on_request()] {
        let program = load(spins, &Limits::default()).unwrap();
        let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
        for _ in 0..3 {
            let (end, turns) = serve(&mut *sandbox, Duration::from_millis(150));
            assert!(matches!(end, Err(Outcome::Fault(Fault::Deadline { .. }))), "{end:?}");
            assert!(turns > 2, "{turns} turns");
            renew(&mut *sandbox);
        }
    }
}

guest!(calls_at_boot: "2: mov eax, 0x535400", "syscall", "jmp 2b");

#[test]
fn a_boot_that_makes_guest_calls_for_ever_is_ended() {
    if has_kvm() {
        let limits = Limits { boot_time: Duration::from_millis(50), ..Limits::default() };
        let error = load(calls_at_boot(), &limits).map(drop).unwrap_err();
        assert!(error.to_string().contains("50ms"), "{error}");
    }
}

guest!(fills_on_request:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "xor edi, edi", "mov esi, 0x40000000", "mov edx, 3", "mov r10d, 0x4022", "mov r8, -1",
    "xor r9d, r9d", "mov eax, 9", "syscall",
    "2: mov byte ptr [rax], 1", "add rax, 4096", "jmp 2b");

#[test]
fn memory_that_an_exchange_has_filled_is_given_back() {
    if !has_kvm() {
        return;
    }
    let limits = Limits { memory: 24 << 20, ..Limits::default() };
    let program = load(fills_on_request(), &limits).unwrap();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    for _ in 0..3 {
        let (end, _) = serve(&mut *sandbox, TIME);
        assert!(matches!(end, Err(Outcome::Fault(Fault::Memory { .. }))), "{end:?}");
        assert!(sandbox.resident_bytes() > 16 << 20);
        renew(&mut *sandbox);
        assert!(sandbox.resident_bytes() < 1 << 20);
    }
}

// A byte in each 8 MiB of 56 GiB.
guest!(sprawls_on_request:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "movabs rdi, 0x100000000", "movabs rsi, 0xe00000000", "mov edx, 3", "mov r10d, 0x4032",
    "mov r8, -1", "xor r9d, r9d", "mov eax, 9", "syscall",
    "2: mov byte ptr [rax], 1", "add rax, 0x800000", "jmp 2b");

#[test]
fn a_guest_that_writes_here_and_there_meets_its_limit() {
    if !has_kvm() {
        return;
    }
    // In software emulation it takes its time, and clocks are far ahead.
    let limits = Limits { memory: 6 << 20, ..Limits::default() };
    let program = load(sprawls_on_request(), &limits).unwrap();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    for _ in 0..2 {
        let (end, _) = serve(&mut *sandbox, 60 * TIME);
        assert!(matches!(end, Err(Outcome::Fault(Fault::Memory { .. }))), "{end:?}");
        sandbox.reset().unwrap();
        assert!(sandbox.resident_bytes() < 1 << 20);
    }
}

#[test]
fn a_guest_that_writes_at_full_speed_stops_at_its_limit() {
    if !has_kvm() {
        return;
    }
    // Less than a ring has room for is the least that can be said of small limits.
    for (limit, over) in [(24 << 20, 256 << 10), (2 << 20, 4 << 20)] {
        let limits = Limits { memory: limit, ..Limits::default() };
        let program = load(fills_on_request(), &limits).unwrap();
        let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
        for _ in 0..2 {
            let (end, _) = serve(&mut *sandbox, 60 * TIME);
            assert!(matches!(end, Err(Outcome::Fault(Fault::Memory { .. }))), "{end:?}");
            let held = sandbox.resident_bytes();
            assert!((limit / 2..limit + over).contains(&held), "{held} bytes of {limit}");
            sandbox.reset().unwrap();
        }
    }
}

guest!(exits_at_boot: "mov edi, 3", "mov eax, 231", "syscall");

#[test]
fn a_program_that_never_waits_is_not_loaded() {
    if has_kvm() {
        let error = load(exits_at_boot(), &Limits::default()).map(drop).unwrap_err();
        assert!(error.to_string().contains("before it asked for its first request"), "{error}");
    }
}

/// `cargo test --release -p sandtide-kvm --lib -- --ignored --nocapture cost_of_an_exchange`
#[test]
#[ignore = "measures"]
fn cost_of_an_exchange() {
    if !has_kvm() {
        return;
    }
    let program = load(counts(), &Limits::default()).unwrap();
    let start = Instant::now();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    let spawned = start.elapsed();
    let (mut served, mut reset) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        let start = Instant::now();
        serve(&mut *sandbox, TIME).0.unwrap();
        served.push(start.elapsed());
        let start = Instant::now();
        sandbox.reset().unwrap();
        reset.push(start.elapsed());
    }
    served.sort_unstable();
    reset.sort_unstable();
    let calls = "two guest calls and mmap";
    eprintln!(
        "spawn {spawned:?}; median of an exchange ({calls}) {:?}, of a reset {:?}, {} pages",
        served[1000],
        reset[1000],
        sandbox.usage().pages_written
    );
}
