//! What the connections of one reactor are served with.

use std::{rc::Rc, sync::Arc};

use hyper::server::conn::{http1, http2};
use sandtide_runtime::Reactor;

use crate::{
    access_log::Log,
    connections::Connections,
    doorbell::Doorbell,
    options::Options,
    streams::{self, Streams},
    tls::Certificates,
};

/// Hyper's default, for which it needs no allocation.
const HYPER_HEADERS: usize = 100;

/// The host, on one thread.
pub(crate) struct Host {
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) doorbell: Rc<Doorbell>,
    pub(crate) http1: http1::Builder,
    pub(crate) http2: http2::Builder<Streams>,
    pub(crate) streams: Streams,
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) options: Options,
    /// This thread's part of the access log.
    pub(crate) log: Option<Rc<Log>>,
}

impl Host {
    pub(crate) fn new(
        reactor: Rc<Reactor>,
        doorbell: Rc<Doorbell>,
        certificates: Option<Arc<Certificates>>,
        options: Options,
        log: Option<Log>,
        reactors: usize,
    ) -> Rc<Self> {
        let share = options.max_connections.div_ceil(reactors).max(1);
        let connections = Rc::new(Connections::new(&options, share));
        let streams = Streams::default();
        Rc::new(Self {
            reactor,
            connections,
            doorbell,
            http1: http1(&options),
            http2: streams::http2(&options, streams.clone()),
            streams,
            certificates,
            options,
            log: log.map(Rc::new),
        })
    }
}

fn http1(options: &Options) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.max_header_size(options.max_head);
    if options.max_headers != HYPER_HEADERS {
        http.max_headers(options.max_headers);
    }
    http
}
