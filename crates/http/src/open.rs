//! A connection that speaks HTTP, as its exchanges know it.

use std::{cell::Cell, rc::Rc};

use crate::{connections::Entry, peer::Peer, wire::Wire};

/// What all exchanges of a connection share.
pub(crate) struct Open {
    pub(crate) wire: Rc<Wire>,
    #[allow(dead_code, reason = "for policies that ask who the client is")]
    pub(crate) peer: Peer,
    /// Whether a request was answered before all of it had been read.
    has_unread: Cell<bool>,
}

impl Open {
    pub(crate) fn new(wire: Rc<Wire>, peer: Peer) -> Rc<Self> {
        Rc::new(Self { wire, peer, has_unread: Cell::new(false) })
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.wire.entry
    }

    /// The body of a request will not be read to its end.
    pub(crate) fn leave_unread(&self) {
        self.has_unread.set(true);
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.has_unread.get()
    }
}
