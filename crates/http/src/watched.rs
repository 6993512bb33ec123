//! A serving whose client is told until when it may take its time.

use std::{
    ops::{Deref, DerefMut},
    rc::Rc,
    task::{Context, Poll},
};

use sandtide_engine::{ExchangeId, Frame};
use sandtide_runtime::{Broken, Record, Reply, Serving};

use crate::{access_log::Line, flight::Flight, interim};

/// While a client does not read, hyper polls no response. So that a sandbox does not wait for
/// such a client forever, its connection or stream knows until when it may hold the sandbox.
pub(crate) struct Watched {
    serving: Leaving,
    flight: Flight,
    /// Whether the client can get interim responses.
    informs: bool,
}

impl Watched {
    /// `informs`: whether the client can get interim responses.
    pub(crate) fn new(serving: Box<Serving>, flight: Flight, informs: bool) -> Self {
        let serving = Leaving { serving, line: flight.line().cloned() };
        let watched = Self { serving, flight, informs };
        watched.tell(false);
        watched
    }

    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    pub(crate) fn id(&self) -> ExchangeId {
        self.serving.id()
    }

    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = self.serving.poll_head(cx);
        for head in self.serving.take_interim() {
            if self.informs {
                self.flight.open().wire.inform(&interim::encode(head));
            }
        }
        self.tell(reply.is_ready());
        reply
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame, Broken>>> {
        let frame = self.serving.poll_frame(cx);
        self.tell(frame.is_ready());
        frame
    }

    /// The client has as much of the body as was announced.
    pub(crate) fn answered(&mut self) {
        self.serving.answered();
        self.flight.land();
    }

    /// The response begins.
    pub(crate) fn begin_response(&self) {
        self.flight.patience().begin_streaming(self.serving.response_time());
    }

    /// Ends the exchange if it has not ended. Its record, once, if records are wanted.
    pub(crate) fn leave(&mut self) -> Option<Box<Record>> {
        self.serving.leave()
    }

    /// The exchange goes on without its guest.
    pub(crate) fn into_flight(self) -> Flight {
        self.flight.patience().set_sandbox(None);
        self.flight
    }

    fn tell(&self, is_handed: bool) {
        let patience = self.flight.patience();
        patience.set_sandbox((!self.serving.is_over()).then(|| self.serving.deadline()));
        patience.set_handed(is_handed);
    }
}

/// A serving that leaves its record behind, however it ends.
struct Leaving {
    serving: Box<Serving>,
    line: Option<Rc<Line>>,
}

impl Deref for Leaving {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}

impl DerefMut for Leaving {
    fn deref_mut(&mut self) -> &mut Serving {
        &mut self.serving
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.set(self.serving.leave());
        }
    }
}
