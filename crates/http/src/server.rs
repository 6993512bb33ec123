//! All threads together.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioTimer;
use sandtide_runtime::{Runtime, Totals};
use tokio::sync::watch;

use crate::{
    listen::{BindError, listen},
    reactor::{self, Plan},
};

/// How the host serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Reactor threads; at least one.
    pub threads: usize,
    /// How long exchanges may go on after the shutdown began.
    pub drain: Duration,
    /// The most bytes of a request's line and headers; what is over it gets a 431.
    pub max_head: usize,
    /// How long a client may take for its request's line and headers, and between requests.
    /// `None` for as long as it likes.
    pub head_timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(1, Into::into),
            drain: Duration::from_secs(10),
            max_head: 64 << 10,
            head_timeout: None,
        }
    }
}

impl Options {
    pub(crate) fn http1(&self) -> Builder {
        let mut http = Builder::new();
        http.max_header_size(self.max_head);
        if let Some(time) = self.head_timeout {
            http.timer(TokioTimer::new()).header_read_timeout(time);
        }
        http
    }
}

/// A server that listens, and serves once it is run.
#[derive(Debug)]
pub struct Server {
    options: Options,
    addresses: Vec<SocketAddr>,
    /// For each thread, one listener for each address.
    listeners: Vec<Vec<TcpListener>>,
}

/// The server had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A thread could not be started, or its event loop failed.
    #[error("the event loop of a reactor failed")]
    Reactor(#[from] io::Error),
    /// A thread panicked outside of any sandbox. The panic's text went to standard error.
    #[error("a reactor thread panicked")]
    Panic,
}

impl Server {
    /// Listens on the addresses. Connections wait until [`Self::run`].
    pub fn bind(addresses: &[SocketAddr], options: Options) -> Result<Self, BindError> {
        let threads = options.threads.max(1);
        let mut listeners: Vec<Vec<TcpListener>> = (0..threads).map(|_| Vec::new()).collect();
        let mut bound = Vec::new();
        for &address in addresses {
            let sockets = listen(address, threads)?;
            let local = sockets.first().and_then(|socket| socket.local_addr().ok());
            bound.push(local.unwrap_or(address));
            for (own, socket) in listeners.iter_mut().zip(sockets) {
                own.push(socket);
            }
        }
        Ok(Self { options, addresses: bound, listeners })
    }

    /// Where it listens: the addresses given, with the ports that were found for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `shutdown` is ready: then no connection is accepted any more, exchanges may
    /// end within the drain time, and the rest is cut off. Blocks the thread. Returns what was
    /// counted.
    ///
    /// `shutdown` is polled in an event loop of its own, with I/O and timers.
    pub fn run(
        self,
        runtime: Arc<Runtime>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Totals, ServeError> {
        let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let (ended, mut any_ended) = tokio::sync::mpsc::unbounded_channel();
        let reactors = self.listeners.len();
        let mut threads = Vec::new();
        for (index, listeners) in self.listeners.into_iter().enumerate() {
            let plan = Plan {
                index,
                reactors,
                listeners,
                runtime: runtime.clone(),
                options: self.options.clone(),
                shutdown: stopped.clone(),
            };
            let ended = ended.clone();
            let thread =
                thread::Builder::new().name(format!("reactor-{index}")).spawn(move || {
                    // Dropped when the thread ends, by a panic as well.
                    let _ended = OnDrop(ended);
                    reactor::run(plan)
                })?;
            threads.push(thread);
        }
        event_loop.block_on(async {
            tokio::select! {
                () = shutdown => {}
                _ = any_ended.recv() => {}
            }
        });
        // Fails only if all threads have ended, which is what it asks for.
        let _ = stop.send(true);
        let mut totals = Totals::default();
        for thread in threads {
            let own = thread.join().map_err(|_| ServeError::Panic)??;
            totals = totals.plus(&own);
        }
        tracing::info!(
            exchanges = totals.exchanges,
            fixed = totals.fixed,
            refused = totals.all_refused(),
            faults = totals.all_faults(),
            engine_failures = totals.engine_failures,
            failed_resets = totals.failed_resets,
            instructions = totals.instructions,
            "shut down",
        );
        Ok(totals)
    }
}

/// Says that a thread has ended.
struct OnDrop(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        // Nobody listens once the shutdown has begun.
        let _ = self.0.send(());
    }
}
