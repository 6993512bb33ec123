//! A serving whose connection knows its deadline.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use sandtide_engine::{ExchangeId, Frame};
use sandtide_runtime::{Broken, Record, Reply, Serving};

use crate::wire::Wire;

/// While a client does not read, hyper polls no response. So that a sandbox does not wait for
/// such a client forever, the connection is told until when it may hold the sandbox.
pub(crate) struct Watched {
    serving: Box<Serving>,
    wire: Rc<Wire>,
}

impl Watched {
    pub(crate) fn new(serving: Box<Serving>, wire: Rc<Wire>) -> Self {
        let watched = Self { serving, wire };
        watched.tell();
        watched
    }

    pub(crate) fn id(&self) -> ExchangeId {
        self.serving.id()
    }

    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = self.serving.poll_head(cx);
        self.tell();
        reply
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame, Broken>>> {
        let frame = self.serving.poll_frame(cx);
        self.tell();
        frame
    }

    /// Ends the exchange if it has not ended. Its record, once, if records are wanted.
    pub(crate) fn leave(&mut self) -> Option<Box<Record>> {
        self.serving.leave()
    }

    fn tell(&self) {
        self.wire.set_deadline((!self.serving.is_over()).then(|| self.serving.deadline()));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.wire.set_deadline(None);
    }
}
