//! All threads together.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use sandtide_runtime::{Runtime, Totals};
use tokio::{sync::watch, time::sleep};

use crate::{
    access_log::AccessLog,
    listen::{Address, BindError, Bound, Listen, bind, inherit},
    options::Options,
    reactor::{self, Plan},
    tls::Certificates,
    unix::SocketFile,
};

/// The stack of a reactor's thread, in bytes, as large as that of a main thread: calls of guests may
/// be calls of the host. Only what is used takes memory.
const REACTOR_STACK: usize = 8 << 20;

/// A server that listens, and serves once it is run.
#[derive(Debug)]
pub struct Server {
    options: Options,
    listens: Vec<Listen>,
    /// For each thread, one socket for each listener.
    sockets: Vec<Vec<Bound>>,
    files: Vec<SocketFile>,
    certificates: Option<Arc<Certificates>>,
    draining: Draining,
    access_log: Option<AccessLog>,
}

/// Whether the server has been told to stop: what a readiness probe wants to know.
#[derive(Debug, Clone, Default)]
pub struct Draining(Arc<AtomicBool>);

impl Draining {
    /// From when the shutdown was asked for.
    pub fn is_draining(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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
    /// Listens. Connections wait until [`Self::run`]. Where TLS is spoken, clients get these
    /// certificates, which may be reloaded while the server runs.
    pub fn bind(
        listens: &[Listen],
        certificates: Option<Arc<Certificates>>,
        options: Options,
    ) -> Result<Self, BindError> {
        let threads = options.threads.max(1);
        let mut sockets: Vec<Vec<Bound>> = (0..threads).map(|_| Vec::new()).collect();
        let (mut bound, mut files) = (Vec::new(), Vec::new());
        for listen in listens {
            if listen.tls && certificates.is_none() {
                return Err(BindError::NoCertificate(listen.address.clone()));
            }
            let (all, file) = bind(listen, threads)?;
            bound.extend(all.first().map(|socket| Listen::clone(&socket.listen)));
            files.extend(file);
            for (own, socket) in sockets.iter_mut().zip(all) {
                own.push(socket);
            }
        }
        Ok(Self {
            options,
            listens: bound,
            sockets,
            files,
            certificates,
            draining: Draining::default(),
            access_log: None,
        })
    }

    /// A server of one thread that listens on sockets of another process: one for each of these.
    pub fn inherit(
        listens: &[Listen],
        sockets: Vec<OwnedFd>,
        certificates: Option<Arc<Certificates>>,
        options: Options,
    ) -> Self {
        let sockets: Vec<_> =
            listens.iter().zip(sockets).map(|(listen, fd)| inherit(listen, fd)).collect();
        Self {
            options,
            listens: sockets.iter().map(|socket| Listen::clone(&socket.listen)).collect(),
            sockets: vec![sockets],
            files: Vec::new(),
            certificates,
            draining: Draining::default(),
            access_log: None,
        }
    }

    /// The sockets of one of its threads, for [`Self::inherit`] in another process. Connections
    /// wait in them as long as this server is there.
    pub fn descriptors(&self, thread: usize) -> Vec<BorrowedFd<'_>> {
        self.sockets.get(thread).into_iter().flatten().map(Bound::descriptor).collect()
    }

    /// Writes a line for each exchange, if the runtime makes records
    /// ([`sandtide_runtime::Options::records`]).
    #[must_use]
    pub fn with_access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Where it listens: what was asked for, with the ports that were found for port 0.
    pub fn listens(&self) -> &[Listen] {
        &self.listens
    }

    /// The IP addresses among them.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |listen: &Listen| match listen.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => None,
        };
        self.listens.iter().filter_map(address).collect()
    }

    /// Tells whether it was told to stop.
    pub fn draining(&self) -> Draining {
        self.draining.clone()
    }

    /// Serves until `shutdown` is ready, and for the drain delay; then no connection is accepted
    /// any more, idle ones are closed, exchanges may end within the drain time, and the rest is cut
    /// off. Blocks the thread. Returns what was counted.
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
        let reactors = self.sockets.len();
        let mut threads = Vec::new();
        for (index, sockets) in self.sockets.into_iter().enumerate() {
            let plan = Plan {
                index,
                reactors,
                sockets,
                runtime: runtime.clone(),
                certificates: self.certificates.clone(),
                options: self.options.clone(),
                access_log: self.access_log.clone(),
                shutdown: stopped.clone(),
            };
            let ended = ended.clone();
            let builder = thread::Builder::new().name(format!("reactor-{index}"));
            let thread = builder.stack_size(REACTOR_STACK).spawn(move || {
                // Dropped when the thread ends, by a panic as well.
                let _ended = OnDrop(ended);
                reactor::run(plan)
            })?;
            threads.push(thread);
        }
        let delayed = delayed(shutdown, self.draining, self.options.drain_delay);
        event_loop.block_on(async {
            tokio::select! {
                () = delayed => {}
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
        report(&totals, self.files, self.access_log);
        Ok(totals)
    }

    /// As [`Self::run`], on the calling thread, which is the only reactor: for programs that belong
    /// to a thread. A server that was bound with more threads leaves the connections of the others
    /// unanswered.
    pub fn run_here(
        mut self,
        runtime: &Arc<Runtime>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Totals, ServeError> {
        let (stop, stopped) = watch::channel(false);
        let plan = Plan {
            index: 0,
            reactors: 1,
            sockets: self.sockets.swap_remove(0),
            runtime: runtime.clone(),
            certificates: self.certificates,
            options: self.options.clone(),
            access_log: self.access_log.clone(),
            shutdown: stopped,
        };
        let stopping = async {
            delayed(shutdown, self.draining, self.options.drain_delay).await;
            // Fails only if the reactor has ended, which is what it asks for.
            let _ = stop.send(true);
        };
        let totals = reactor::run_beside(plan, stopping)?;
        report(&totals, self.files, self.access_log);
        Ok(totals)
    }
}

/// Ready when the server is to stop accepting.
async fn delayed(shutdown: impl Future<Output = ()>, draining: Draining, delay: Duration) {
    shutdown.await;
    draining.0.store(true, Ordering::Relaxed);
    sleep(delay).await;
}

/// Ends what stands around the reactors, and says what they have done.
fn report(totals: &Totals, files: Vec<SocketFile>, access_log: Option<AccessLog>) {
    drop(files);
    if let Some(log) = access_log {
        log.close();
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
}

/// Says that a thread has ended.
struct OnDrop(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        // Nobody listens once the shutdown has begun.
        let _ = self.0.send(());
    }
}
