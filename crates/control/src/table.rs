//! From a tenant of the configuration to one of the runtime.

use std::sync::Arc;

use bytes::Bytes;
use sandtide_config::{Authority, Respond, Tenant};
use sandtide_engine::Program;
use sandtide_runtime::{
    self as runtime, Admission, Answer, FixedResponse, LogPolicy, Rate, Route, RouteError,
    TenantLog,
};

/// What a tenant has to answer with.
pub enum Content {
    /// A program.
    Program(Arc<dyn Program>),
    /// A constant.
    Fixed(FixedResponse),
}

/// The tenant as the runtime serves it.
pub(crate) fn runtime_tenant(
    tenant: &Tenant,
    answer: Answer,
    log: Arc<TenantLog>,
) -> Result<runtime::Tenant, RouteError> {
    let mut served = runtime::Tenant::new(tenant.name.as_str(), routes(tenant)?, answer);
    served.limits = tenant.limits.clone();
    served.admission = Admission {
        concurrency: tenant.concurrency,
        queue: tenant.queue,
        queue_time: tenant.queue_time,
        weight: tenant.weight,
        rate: tenant.rate.map(|rate| Rate {
            per_second: rate.requests_per_second.get(),
            burst: rate.burst.get(),
        }),
        ..Admission::default()
    };
    served.isolation = tenant.isolation;
    served.log = log;
    Ok(served)
}

/// Where the output of its guests goes.
pub(crate) fn tenant_log(tenant: &Tenant) -> Arc<TenantLog> {
    let policy = LogPolicy {
        lines_per_second: tenant.log.lines,
        bytes_per_second: tenant.log.bytes,
        ..LogPolicy::default()
    };
    Arc::new(TenantLog::new(tenant.name.as_str(), policy))
}

pub(crate) fn constant(respond: &Respond) -> FixedResponse {
    FixedResponse {
        status: respond.status,
        headers: respond.headers.clone(),
        body: Bytes::from(respond.body.clone()),
    }
}

fn routes(tenant: &Tenant) -> Result<Vec<Route>, RouteError> {
    let names = tenant.authorities.iter().map(Authority::to_string);
    let names = names.chain(tenant.default.then(|| "*".to_owned()));
    names.map(|name| Route::new(&name, &tenant.path)).collect()
}
