//! The admin listener: how the server is, for operators and their tools.
//!
//! It has a thread and an event loop of its own, so that it answers when the reactors have no time.
//! Whoever reaches it learns the tenants' names and what they do: it belongs on an address that
//! strangers cannot reach.

mod health;
mod metrics;
mod process;
mod series;
mod tenants;

use std::{
    convert::Infallible,
    fmt, io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::{encoding::text, registry::Registry};
use sandtide_runtime::{Answer, Runtime, SlotState, Table};
use tokio::{net::TcpListener, sync::Semaphore};

pub use health::Readiness;

use metrics::{Page, Server};

use crate::tally::Tally;
use process::Process;
use series::Series;

/// Connections at a time. More of them wait.
const CONNECTIONS: usize = 64;

/// How long a client may take for the head of a request, or stay silent.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before accepting again when that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Where the admin listener gets to know what it shows.
pub struct Sources {
    /// The tenants and their counters.
    pub runtime: Arc<Runtime>,
    /// Whether requests are welcome.
    pub readiness: Box<dyn Fn() -> Readiness + Send + Sync>,
    /// What becomes of programs and configurations.
    pub tally: Arc<Tally>,
    /// Lines of the access log that were written, and that were dropped.
    pub access_log: Box<dyn Fn() -> (u64, u64) + Send + Sync>,
    /// Tenants that have series of their own in `/metrics`.
    pub max_tenants: usize,
}

/// A listener that is not served yet.
#[derive(Debug)]
pub struct Admin {
    listener: StdListener,
    address: SocketAddr,
}

/// What all connections share.
struct Shared {
    sources: Sources,
    series: Mutex<Series>,
}

impl Admin {
    /// Listens. Connections wait until [`Self::serve`].
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves from a thread of its own, until the process ends.
    ///
    /// # Errors
    /// If the thread or its event loop cannot be made.
    pub fn serve(self, sources: Sources) -> io::Result<()> {
        let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = event_loop.enter();
            TcpListener::from_std(self.listener)?
        };
        let series = Mutex::new(Series::new(sources.max_tenants));
        let shared = Arc::new(Shared { sources, series });
        thread::Builder::new()
            .name("admin".into())
            .spawn(move || event_loop.block_on(accept(listener, shared)))?;
        Ok(())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Nobody closes it.
        let permit = room.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let response = shared.answer(request.method(), request.uri().path());
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let mut http = http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
                    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                        tracing::debug!(%error, "an admin connection ended early");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::error!(%error, "cannot accept admin connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Shared {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response =
                page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".into());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let runtime = &self.sources.runtime;
        match path {
            "/metrics" => page(StatusCode::OK, OPEN_METRICS, self.metrics()),
            "/tenants" => page(StatusCode::OK, JSON, tenants::tenants(runtime)),
            "/healthz" => {
                let (status, text) = health::healthz(runtime);
                page(status, TEXT, text)
            }
            "/readyz" => {
                let (status, text) = health::readyz((self.sources.readiness)());
                page(status, TEXT, text)
            }
            _ => {
                let text = "there are /metrics, /healthz, /readyz and /tenants\n";
                page(StatusCode::NOT_FOUND, TEXT, text.into())
            }
        }
    }

    fn metrics(&self) -> String {
        let runtime = &self.sources.runtime;
        runtime.forget_tenants();
        let shown = {
            let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.update(&runtime.tenant_totals(), runtime.other_totals())
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Page { shown, server: self.server() }));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut text, &registry);
        text
    }

    fn server(&self) -> Server {
        let runtime = &self.sources.runtime;
        let table = runtime.table();
        let states = table.tenants().iter().map(|tenant| match &tenant.answer {
            Answer::Fixed(_) => None,
            Answer::Program(slot) => Some(slot.status().state),
        });
        let states: Vec<Option<SlotState>> = states.collect();
        let all = [SlotState::Empty, SlotState::Loading, SlotState::Loaded, SlotState::Failed];
        let of = |state| states.iter().filter(|other| **other == state).count();
        let mut tenants = vec![("fixed", of(None))];
        tenants.extend(all.map(|state| (state.as_str(), of(Some(state)))));
        let silences = runtime.silences().into_iter();
        let silences = silences.map(|(index, silence)| (index, silence.as_secs_f64())).collect();
        let (access_log_lines, access_log_lines_dropped) = (self.sources.access_log)();
        let process = Process::read();
        let tally = self.sources.tally.clone();
        Server {
            process,
            tally,
            translated_bytes: translated_bytes(&table),
            tenants,
            silences,
            access_log_lines,
            access_log_lines_dropped,
        }
    }
}

/// Of the versions that serve.
fn translated_bytes(table: &Table) -> u64 {
    let versions = table.tenants().iter().filter_map(|tenant| match &tenant.answer {
        Answer::Fixed(_) => None,
        Answer::Program(slot) => slot.version(),
    });
    versions.filter_map(|version| version.program().translation()).map(|of| of.bytes).sum()
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("max_tenants", &self.max_tenants).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
