//! An exchange as its connection sees it.

use std::{cell::Cell, rc::Rc};

use sandtide_runtime::Record;

use crate::{access_log::Line, connections::Entry, open::Open, patience::Patience};

/// One exchange on a connection, until its response has been handed over. As long as there is one,
/// the connection is not idle.
pub(crate) struct Flight {
    open: Rc<Open>,
    /// That of an HTTP/2 stream.
    stream: Option<Rc<Patience>>,
    /// Whether the response was handed over, or broke off on our side.
    has_landed: Cell<bool>,
    /// What will be said of it.
    line: Option<Rc<Line>>,
}

impl Flight {
    /// An exchange of an HTTP/1 connection, or of an HTTP/2 stream.
    pub(crate) fn new(open: Rc<Open>, stream: Option<Rc<Patience>>) -> Self {
        open.entry().begin_exchange();
        Self { open, stream, has_landed: Cell::new(false), line: None }
    }

    /// The connection it came by.
    pub(crate) fn open(&self) -> &Rc<Open> {
        &self.open
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    fn entry(&self) -> &Entry {
        self.open.entry()
    }

    /// What its client is told about time.
    pub(crate) fn patience(&self) -> &Patience {
        self.stream.as_deref().unwrap_or(&self.entry().patience)
    }

    /// Has a line written when the flight is over.
    pub(crate) fn set_line(&mut self, line: Line) {
        self.line = Some(Rc::new(line));
    }

    pub(crate) fn line(&self) -> Option<&Rc<Line>> {
        self.line.as_ref()
    }

    /// The exchange is over; its response may still have to go out.
    pub(crate) fn set_record(&self, record: Option<Box<Record>>) {
        if let Some(line) = &self.line {
            line.set(record);
        }
    }

    /// So many bytes of body were handed to the connection.
    pub(crate) fn add_sent(&self, bytes: usize) {
        if let Some(line) = &self.line {
            line.add_sent(bytes);
        }
    }

    /// The response needs the client no longer.
    pub(crate) fn land(&self) {
        self.has_landed.set(true);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.patience().set_sandbox(None);
        self.entry().end_exchange();
        if self.is_stream() {
            self.open.count_stream(self.has_landed.get());
        }
    }
}
