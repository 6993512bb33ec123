//! A connection that speaks HTTP, as its exchanges know it.

use std::{cell::Cell, rc::Rc};

use sandtide_engine::Connection;
use sandtide_runtime::Client;

use crate::{
    connections::{Entry, Order},
    forwarded::Forwarder,
    options::Options,
    peer::Peer,
    wire::Wire,
};

/// What all exchanges of a connection share.
pub(crate) struct Open {
    pub(crate) wire: Rc<Wire>,
    pub(crate) peer: Peer,
    /// What of it every exchange knows.
    pub(crate) connection: Rc<Connection>,
    pub(crate) forwarder: Forwarder,
    /// The sandboxes that it holds.
    pub(crate) client: Client,
    /// Whether a request was answered before all of it had been read.
    has_unread: Cell<bool>,
    /// HTTP/2 streams that the client has given up, less those that it has not.
    given_up: Cell<u32>,
}

/// So many more streams a client may give up than it takes the responses of. Each of them has cost
/// us what an answered one costs (CVE-2023-44487).
const MAX_GIVEN_UP: u32 = 200;

impl Open {
    pub(crate) fn new(wire: Rc<Wire>, peer: Peer, options: &Options) -> Rc<Self> {
        let client = peer.client.map(|address| address.ip());
        let forwarder = Forwarder::new(&options.forwarded, client, peer.is_tls);
        let connection = Connection { client: peer.client, local: peer.local, is_tls: peer.is_tls };
        Rc::new(Self {
            wire,
            connection: Rc::new(connection),
            peer,
            forwarder,
            client: Client::new(),
            has_unread: Cell::new(false),
            given_up: Cell::new(0),
        })
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.wire.entry
    }

    /// The body of a request will not be read to its end.
    pub(crate) fn leave_unread(&self) {
        self.has_unread.set(true);
    }

    /// A stream has ended.
    pub(crate) fn count_stream(&self, has_landed: bool) {
        let given_up = self.given_up.get();
        if has_landed {
            self.given_up.set(given_up.saturating_sub(1));
        } else if given_up == MAX_GIVEN_UP {
            self.entry().tell(Order::Cut);
        } else {
            self.given_up.set(given_up + 1);
        }
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread.get()
    }
}
