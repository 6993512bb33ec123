//! What operators see of a server: its access log and its admin listener.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use sandtide_config::{self as config, Config};
use sandtide_control::{Admin, Readiness, Sources, Tally};
use sandtide_http::{
    AccessLog, AccessLogFile, AccessLogFormat, AccessLogOptions, Draining, ForwardedHeaders,
    ForwardedPolicy, TracePolicy,
};
use sandtide_runtime::Runtime;

use crate::report::Hinted;

/// The parts that are open before anything is served.
pub struct Observers {
    pub access_log: Option<AccessLog>,
    admin: Option<(Admin, usize)>,
    has_started: Arc<AtomicBool>,
}

impl Observers {
    /// Opens the access log and listens for operators.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let access_log = config.access_log.as_ref().map(open_log).transpose()?;
        let admin = config.admin.as_ref().map(listen).transpose()?;
        Ok(Self { access_log, admin, has_started: Arc::default() })
    }

    /// Serves operators. Returns where.
    pub fn serve(
        &mut self,
        runtime: &Arc<Runtime>,
        tally: &Arc<Tally>,
        draining: Draining,
    ) -> anyhow::Result<Option<String>> {
        let Some((admin, max_tenants)) = self.admin.take() else { return Ok(None) };
        let address = format!("http://{}", admin.address());
        let (has_started, access_log) = (self.has_started.clone(), self.access_log.clone());
        admin.serve(Sources {
            runtime: runtime.clone(),
            readiness: Box::new(move || {
                match (draining.is_draining(), has_started.load(Relaxed)) {
                    (true, _) => Readiness::Draining,
                    (false, true) => Readiness::Ready,
                    (false, false) => Readiness::Starting,
                }
            }),
            tally: tally.clone(),
            access_log: Box::new(move || {
                access_log.as_ref().map_or((0, 0), |log| (log.written(), log.dropped()))
            }),
            max_tenants,
        })?;
        Ok(Some(address))
    }

    /// Requests are welcome from here on.
    pub fn started(&self) {
        self.has_started.store(true, Relaxed);
    }
}

fn open_log(log: &config::AccessLog) -> anyhow::Result<AccessLog> {
    let file = match &log.file {
        config::AccessLogFile::Stdout => AccessLogFile::Stdout,
        config::AccessLogFile::Path(path) => AccessLogFile::Path(path.clone()),
    };
    let format = match log.format {
        config::AccessLogFormat::Common => AccessLogFormat::Common,
        config::AccessLogFormat::Json => AccessLogFormat::Json,
    };
    let name = match &file {
        AccessLogFile::Stdout => "standard output".to_owned(),
        AccessLogFile::Path(path) => format!("`{}`", path.display()),
    };
    AccessLog::open(&AccessLogOptions { file, format }).map_err(|error| {
        let message = format!("cannot open the access log {name}: {error}");
        let hint = "its directory must exist, and the server must be allowed to write there";
        Hinted::new(message, hint).into()
    })
}

fn listen(admin: &config::Admin) -> anyhow::Result<(Admin, usize)> {
    let bound = Admin::bind(admin.listen).map_err(|error: io::Error| {
        let message = format!("cannot listen on `{}` for operators: {error}", admin.listen);
        Hinted::new(message, "set another `admin.listen`")
    })?;
    Ok((bound, admin.max_tenants as usize))
}

/// The policy for `Forwarded` and `X-Forwarded-*`, as the host has it.
pub fn forwarded(policy: &config::Forwarded) -> Arc<ForwardedPolicy> {
    let headers = match policy.headers {
        config::ForwardedHeaders::XForwarded => ForwardedHeaders::XForwarded,
        config::ForwardedHeaders::Forwarded => ForwardedHeaders::Forwarded,
        config::ForwardedHeaders::Both => ForwardedHeaders::Both,
        config::ForwardedHeaders::None => ForwardedHeaders::None,
    };
    Arc::new(ForwardedPolicy { trust: policy.trust.clone(), headers })
}

/// The policy for trace contexts, as the host has it.
pub fn trace(trace: config::Trace) -> TracePolicy {
    match trace {
        config::Trace::Off => TracePolicy::Off,
        config::Trace::Propagate => TracePolicy::Propagate,
        config::Trace::Always => TracePolicy::Always,
    }
}
