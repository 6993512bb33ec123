//! Is a program fit to serve? It is tried before it meets its first client.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use sandtide_config::{Authority, Tenant};
use sandtide_engine::Program;
use sandtide_runtime::{Attended, AttendedError, TenantLog};

/// Why a program is not fit to serve.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// No sandbox could be made of it.
    #[error("cannot make a sandbox")]
    Spawn(#[source] AttendedError),
    /// It did not answer.
    #[error("the program failed to answer the warm-up request `GET {target}`")]
    Failed {
        /// What it was asked for.
        target: String,
        /// Why.
        source: AttendedError,
    },
    /// It answered that something is wrong with it.
    #[error("the program answered the warm-up request `GET {target}` with status {}", status.as_u16())]
    Status {
        /// What it was asked for.
        target: String,
        /// What it said: 500 or more.
        status: StatusCode,
    },
}

/// Makes a sandbox of the program, and has it answer the tenant's `warmup` requests.
pub(crate) fn warm(
    program: &dyn Program,
    tenant: &Tenant,
    log: &Arc<TenantLog>,
) -> Result<(), WarmError> {
    let mut sandbox = Attended::spawn(program, &tenant.limits, log).map_err(WarmError::Spawn)?;
    for target in &tenant.warmup.paths {
        let failed = |source| WarmError::Failed { target: target.clone(), source };
        let (answered, next) = sandbox.request(request(target, tenant)).map_err(failed)?;
        let status = answered.head.status;
        if status.is_server_error() {
            return Err(WarmError::Status { target: target.clone(), status });
        }
        sandbox = next;
    }
    Ok(())
}

/// Whom the requests that no client makes are addressed to.
pub(crate) fn host(tenant: &Tenant) -> String {
    match tenant.authorities.first() {
        Some(Authority::Exact(name)) => name.clone(),
        Some(Authority::Below(name)) => format!("warmup.{name}"),
        None => "localhost".to_owned(),
    }
}

fn request(target: &str, tenant: &Tenant) -> Request<Bytes> {
    let host = host(tenant);
    let mut request = Request::new(Bytes::new());
    // The configuration has checked both.
    *request.uri_mut() = target.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(&host) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static("sandtide-warmup"));
    request
}
