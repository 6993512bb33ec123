//! An exchange as its connection sees it.

use std::rc::Rc;

use crate::{connections::Entry, open::Open, patience::Patience};

/// One exchange on a connection, until its response has been handed over. As long as there is one,
/// the connection is not idle.
pub(crate) struct Flight {
    open: Rc<Open>,
    /// That of an HTTP/2 stream.
    stream: Option<Rc<Patience>>,
}

impl Flight {
    /// An exchange of an HTTP/1 connection.
    pub(crate) fn new(open: Rc<Open>) -> Self {
        open.entry().begin_exchange();
        Self { open, stream: None }
    }

    /// The connection it came by.
    pub(crate) fn open(&self) -> &Rc<Open> {
        &self.open
    }

    fn entry(&self) -> &Entry {
        self.open.entry()
    }

    /// What its client is told about time.
    pub(crate) fn patience(&self) -> &Patience {
        self.stream.as_deref().unwrap_or(&self.entry().patience)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.patience().set_sandbox(None);
        self.entry().end_exchange();
    }
}
