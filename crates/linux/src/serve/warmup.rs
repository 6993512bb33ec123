//! Requests that a program answers before its snapshot, so that what it does only once, or only
//! after a while, is done: caches, lazy imports, code that a JIT compiles.

use std::{
    task::Context,
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, header};
use sandtide_engine::{
    Console, Exchange, ExchangeId, Fault, Next, Outcome, Progress, RequestBody, Slice, Turn, Warmup,
};

use super::{
    Delivery, Machine, Ready, Served, Unready,
    wait::{wait, waker},
};

/// Has a program that waits for a request answer this one.
pub(super) fn answer<M: Machine>(
    machine: &mut M,
    ready: &Ready,
    (warmup, target): (&Warmup, &str),
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<(), Unready<M::End>> {
    let mut exchange = exchange(warmup, target);
    let mut delivery = Delivery::new(ready);
    let waker = waker();
    loop {
        let mut turn = Turn {
            cx: &mut Context::from_waker(&waker),
            exchange: &mut exchange,
            now: Instant::now(),
            slice: Slice(Duration::from_millis(10)),
            deadline: M::deadline(bounds),
            interrupt: &|| false,
        };
        let progress = match delivery.run(machine, bounds, console, &mut turn)? {
            Served::Progress(progress) => progress,
            Served::Over(end) => return Err(Unready::Over(end)),
        };
        let taken = exchange.response.take_data();
        match progress {
            Progress::Ended(Outcome::Done) => break,
            Progress::Ended(Outcome::Fault(fault)) => return Err(Unready::Fault(fault)),
            Progress::Ended(Outcome::Engine(error)) => return Err(Unready::Engine(error)),
            // There is none.
            Progress::Ended(Outcome::ClientGone) => break,
            Progress::Waiting { until } if taken.is_none() => wait::<M>(until, bounds),
            Progress::Waiting { .. } | Progress::Sliced => M::renew(bounds),
        }
    }
    delivery.keep(machine, Next::Anyone);
    match exchange.response.status() {
        Some(status) if status.is_server_error() => Err(Unready::Fault(Fault::Protocol(format!(
            "the warm-up request `GET {target}` was answered with status {}",
            status.as_u16()
        )))),
        _ => Ok(()),
    }
}

fn exchange(warmup: &Warmup, target: &str) -> Exchange {
    let mut request = Request::new(());
    // Whoever sets them has checked them.
    *request.uri_mut() = target.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(&warmup.host) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static("sandtide-warmup"));
    let (parts, ()) = request.into_parts();
    Exchange::new(ExchangeId(0), parts, RequestBody::empty(), u64::MAX)
}
