//! What the log says about an exchange. The client gets the correlation id and nothing of this.

use std::time::Duration;

use sandtide_engine::{EngineError, Exchange, ExchangeId, Fault, Mismatch, Usage};

use crate::{console::printable, log::EXCHANGE_TARGET, tenant::Tenant, trace::TraceContext};

/// What is shown of a text that a client or a guest made: enough to know it by, and no more. A flood of
/// such texts must not fill a disk faster than the number of reports allows.
fn shown(text: &[u8], most: usize) -> String {
    match text.get(..most) {
        Some(part) if part.len() < text.len() => {
            format!("{}… ({} bytes)", printable(part), text.len())
        }
        _ => printable(text),
    }
}

const METHOD: usize = 32;
const PATH: usize = 256;
const WHAT: usize = 512;
/// Of names that the program's own file has.
const BACKTRACE: usize = 8 << 10;

/// A guest ended badly.
#[cold]
pub(crate) fn fault(
    tenant: &Tenant,
    exchange: &Exchange,
    fault: &Fault,
    usage: &Usage,
    elapsed: Duration,
) {
    let Some(suppressed) = tenant.log.admits_report() else { return };
    let trace = TraceContext::of(&exchange.request.headers);
    let backtrace: Vec<_> = fault.backtrace().iter().map(ToString::to_string).collect();
    tracing::warn!(
        target: EXCHANGE_TARGET,
        tenant = %tenant.name,
        request = %exchange.id,
        fault = fault.kind(),
        pc = backtrace.first().map(|place| shown(place.as_bytes(), PATH)),
        backtrace = shown(backtrace.join(" < ").as_bytes(), BACKTRACE),
        method = %shown(exchange.request.method.as_str().as_bytes(), METHOD),
        path = shown(exchange.request.uri.path().as_bytes(), PATH),
        instructions = usage.instructions,
        pages_written = usage.pages_written,
        calls = usage.calls,
        exits = usage.exits,
        elapsed_us = elapsed.as_micros() as u64,
        trace_id = trace.map(|trace| display(trace.trace)),
        span_id = trace.map(|trace| display(trace.span)),
        suppressed,
        "{}",
        shown(fault.to_string().as_bytes(), WHAT),
    );
}

/// We failed.
#[cold]
pub(crate) fn failure(tenant: &Tenant, exchange: &Exchange, error: &EngineError) {
    let Some(suppressed) = tenant.log.admits_report() else { return };
    let trace = TraceContext::of(&exchange.request.headers);
    tracing::error!(
        target: EXCHANGE_TARGET,
        tenant = %tenant.name,
        request = %exchange.id,
        error = error as &dyn std::error::Error,
        trace_id = trace.map(|trace| display(trace.trace)),
        span_id = trace.map(|trace| display(trace.span)),
        suppressed,
        "the engine failed",
    );
}

/// A request was turned away before it reached a sandbox.
#[cold]
pub(crate) fn refused(tenant: &Tenant, id: sandtide_engine::ExchangeId, reason: &str) {
    let Some(suppressed) = tenant.log.admits_report() else { return };
    tracing::warn!(
        target: EXCHANGE_TARGET,
        tenant = %tenant.name,
        request = %id,
        reason,
        suppressed,
        "refused",
    );
}

/// The sandbox of a tenant that keeps state lost it.
#[cold]
pub(crate) fn state_lost(tenant: &Tenant, exchange: &Exchange, why: &str) {
    let Some(suppressed) = tenant.log.admits_report() else { return };
    tracing::warn!(
        target: EXCHANGE_TARGET,
        tenant = %tenant.name,
        request = %exchange.id,
        why,
        suppressed,
        "the tenant's state is lost",
    );
}

/// A sandbox was destroyed because it could not be put back to its snapshot.
#[cold]
pub(crate) fn reset_failed(
    tenant: &Tenant,
    exchange: Option<ExchangeId>,
    error: &dyn std::error::Error,
) {
    let Some(suppressed) = tenant.log.admits_report() else { return };
    tracing::error!(
        target: EXCHANGE_TARGET,
        tenant = %tenant.name,
        request = exchange.map(display),
        error = error.source().unwrap_or(error).to_string(),
        suppressed,
        "a sandbox could not be reset and was destroyed",
    );
}

/// A sandbox was destroyed because it was not what its snapshot is, though its reset succeeded: a
/// request may have left something to the next one.
#[cold]
pub(crate) fn reset_mismatch(tenant: &Tenant, exchange: Option<ExchangeId>, mismatch: &Mismatch) {
    let Some(suppressed) = tenant.log.admits_report() else { return };
    let source = std::error::Error::source(mismatch).map(ToString::to_string);
    tracing::error!(
        target: EXCHANGE_TARGET,
        tenant = %tenant.name,
        request = exchange.map(display),
        differs = %mismatch,
        error = source,
        suppressed,
        "a sandbox was not reset to its snapshot and was destroyed",
    );
}
