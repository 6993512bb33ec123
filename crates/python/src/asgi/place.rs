//! The place of one exchange: a sandbox in name only.

use std::sync::Arc;

use pyo3::prelude::*;
use sandtide_engine::{
    EngineError, Fault, Mismatch, Next, Outcome, Progress, ResetError, Sandbox, Scrutiny, Turn,
    Usage,
};

use crate::{
    asgi::{cycle::Cycle, program::Application},
    failure,
};

/// Where an application's exchange is, from its first turn to its end.
pub(crate) struct Place {
    application: Arc<Application>,
    cycle: Option<Py<Cycle>>,
    /// Whether the exchange came to an end by itself.
    has_ended: bool,
    is_late: bool,
}

impl Place {
    pub(crate) fn new(application: Arc<Application>) -> Self {
        Self { application, cycle: None, has_ended: false, is_late: false }
    }

    fn start<'py>(
        &mut self,
        py: Python<'py>,
        turn: &mut Turn<'_, '_>,
    ) -> PyResult<Bound<'py, Cycle>> {
        let application = &self.application;
        application.event_loop.ensure_driven(py)?;
        let has_body = turn.exchange.body.known_length() != Some(0);
        let cycle = Bound::new(py, Cycle::new(application.event_loop.clone(), !has_body))?;
        self.cycle = Some(cycle.clone().unbind());
        if has_body {
            cycle.get().look(turn.exchange, turn.cx);
        }
        let scope = application.scopes.make(py, turn.exchange)?;
        Cycle::start(&cycle, application.callable.bind(py), scope)?;
        Ok(cycle)
    }
}

impl Sandbox for Place {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        Python::attach(|py| {
            let cycle = match &self.cycle {
                Some(cycle) => cycle.bind(py).clone(),
                None => match self.start(py, turn) {
                    Ok(cycle) => cycle,
                    Err(error) => {
                        failure::log(py, "an ASGI application could not be called", &error);
                        self.has_ended = true;
                        let fault = Fault::Exception(failure::line(py, &error));
                        return Progress::Ended(Outcome::Fault(fault));
                    }
                },
            };
            let outcome = cycle.get().exchange(py, turn.exchange, turn.cx);
            match outcome {
                Some(outcome) => {
                    self.has_ended = matches!(outcome, Outcome::Done);
                    Progress::Ended(outcome)
                }
                None if turn.now >= turn.deadline => {
                    self.is_late = true;
                    let limit = turn.deadline.saturating_duration_since(turn.now);
                    let backtrace = Vec::new();
                    Progress::Ended(Outcome::Fault(Fault::Deadline { limit, backtrace }))
                }
                None => Progress::Waiting { until: None },
            }
        })
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        if let Some(cycle) = self.cycle.take() {
            Python::attach(|py| cycle.get().end(py, !self.has_ended, self.is_late));
        }
        (self.has_ended, self.is_late) = (false, false);
        Ok(())
    }

    fn keep(&mut self, _: Next) -> Result<(), ResetError> {
        Err(ResetError(EngineError::Invariant("an application keeps its state by itself")))
    }

    /// There is no snapshot to be like.
    fn verify(&mut self, _: Scrutiny) -> Result<(), Mismatch> {
        Ok(())
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn resident_bytes(&self) -> u64 {
        0
    }
}
