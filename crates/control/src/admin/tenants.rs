//! `/tenants`: what each tenant is, and what it has come to.

use std::{collections::HashMap, sync::Arc};

use sandtide_engine::{CacheUse, Isolation, Translation};
use sandtide_runtime::{Answer, FAULT_KINDS, Refused, Runtime, Tenant, Totals};
use serde_json::{Map, Value, json};

/// A JSON array, in the order of the configuration.
pub(super) fn tenants(runtime: &Runtime) -> String {
    let totals: HashMap<Arc<str>, Totals> = runtime.tenant_totals().into_iter().collect();
    let table = runtime.table();
    let tenants = table.tenants().iter().map(|tenant| {
        let totals = totals.get(&tenant.name).copied().unwrap_or_default();
        describe(tenant, &totals)
    });
    let mut text = Value::Array(tenants.collect()).to_string();
    text.push('\n');
    text
}

fn describe(tenant: &Tenant, totals: &Totals) -> Value {
    let mut object = Map::new();
    let mut set = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    set("name", (*tenant.name).into());
    match &tenant.answer {
        Answer::Fixed(_) => set("state", "fixed".into()),
        Answer::Program(slot) => {
            let status = slot.status();
            set("state", status.state.as_str().into());
            if let Some(version) = status.version {
                set("version", version.number().into());
                set("program", version.id().to_string().into());
                if let Some(translation) = version.program().translation() {
                    set("translation", translated(&translation));
                }
            }
            if let Some(failure) = status.failure {
                set("failure", (*failure).into());
            }
            set("isolation", word(tenant.isolation).into());
        }
    }
    set("counters", counters(totals));
    Value::Object(object)
}

fn word(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Request => "request",
        Isolation::Connection => "connection",
        Isolation::None => "none",
    }
}

fn translated(translation: &Translation) -> Value {
    let shortfall = translation.shortfall.as_ref();
    json!({
        "state": translation.state.as_str(),
        "functions": translation.functions,
        "left": translation.left,
        "bytes": translation.bytes,
        "seconds": translation.time.as_secs_f64(),
        "from_cache": translation.cache == CacheUse::Hit,
        "limit": shortfall.map(|shortfall| shortfall.reason.as_str()),
    })
}

fn counters(totals: &Totals) -> Value {
    let by = |names: Vec<&'static str>, counts: &[u64]| -> Value {
        let some = names.into_iter().zip(counts).filter(|(_, count)| **count > 0);
        Value::Object(some.map(|(name, count)| (name.to_owned(), (*count).into())).collect())
    };
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    json!({
        "requests": totals.requests(),
        "exchanges": totals.exchanges,
        "fixed": totals.fixed,
        "statuses": by(vec!["2xx", "3xx", "4xx", "5xx"], &totals.statuses),
        "faults": by(FAULT_KINDS.to_vec(), &totals.faults),
        "refused": by(Refused::ALL.map(Refused::name).to_vec(), &totals.refused),
        "clients_gone": totals.clients_gone,
        "engine_failures": totals.engine_failures,
        "instructions": totals.instructions,
        "pages_written": totals.pages_written,
        "cpu_seconds": seconds(totals.cpu_ns),
        "queue_seconds": seconds(totals.queue_ns),
        "run_seconds": seconds(totals.run_ns),
        "request_body_bytes": totals.bytes_in,
        "response_body_bytes": totals.bytes_out,
        "sandboxes_idle": totals.idle,
        "sandboxes_held": totals.held,
        "sandboxes_resident_bytes": totals.resident_bytes,
        "exchanges_running": totals.busy,
        "exchanges_waiting": totals.waiting,
    })
}
