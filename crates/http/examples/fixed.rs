//! Serves one response on one thread, for measuring what host and runtime cost by themselves:
//! `cargo run --release -p sandtide-http --example fixed -- 127.0.0.1:8081`, then
//! `wrk -t1 -c64 http://127.0.0.1:8081/`. With `empty` as a second argument the response comes
//! from a sandbox without a guest, which adds what the runtime spends on a sandbox.

use std::{env, error::Error, future::pending, net::SocketAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use sandtide_engine::{
    Console, Mismatch, Next, Outcome, Program, ProgramId, Progress, ResetError, Sandbox, Scrutiny,
    SpawnError, Turn, Usage,
};
use sandtide_http::{Options, Server};
use sandtide_runtime::{Answer, FixedResponse, Route, Runtime, Slot, Table, Tenant};

/// A program without a guest.
struct Empty;

impl Program for Empty {
    fn id(&self) -> ProgramId {
        ProgramId([0; 32])
    }

    fn spawn(&self, _: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        Ok(Box::new(Self))
    }
}

impl Sandbox for Empty {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        // As many as those of guests have room for.
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let response = &mut turn.exchange.response;
        let answered = response
            .begin(200, headers)
            .and_then(|()| response.write(b"Hello, World!"))
            .and_then(|()| response.finish(None));
        Progress::Ended(match answered {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Fault(sandtide_engine::Fault::Response(error)),
        })
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        Ok(())
    }

    fn verify(&mut self, _: Scrutiny) -> Result<(), Mismatch> {
        Ok(())
    }

    fn keep(&mut self, _: Next) -> Result<(), ResetError> {
        Ok(())
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn resident_bytes(&self) -> u64 {
        0
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let answer = match args.next().as_deref() {
        Some("empty") => Answer::Program(Slot::loaded(Arc::new(Empty))),
        _ => Answer::Fixed(FixedResponse::text("Hello, World!")),
    };
    let tenant = Tenant::new("fixed", vec![Route::everything()], answer);
    let runtime = Runtime::new(Table::build([Arc::new(tenant)])?, Default::default());
    let server = Server::bind(
        &[address.parse::<SocketAddr>()?.into()],
        None,
        Options { threads: 1, ..Options::default() },
    )?;
    println!("listening on {}", server.addresses()[0]);
    server.run(runtime, pending())?;
    Ok(())
}
