//! The place of one exchange: a sandbox in name only.

use std::sync::Arc;

use pyo3::prelude::*;
use sandtide_engine::{
    EngineError, Fault, Mismatch, Next, Outcome, Progress, ResetError, Sandbox, Scrutiny, Turn,
    Usage,
};

use crate::{
    failure,
    wsgi::{answer::Answer, program::Application, start::Start, talk::Talk},
};

/// Where an application's exchange is, from its first turn to its end.
pub(crate) struct Place {
    application: Arc<Application>,
    talk: Option<Arc<Talk>>,
    /// The answer of an application that is asked on this thread.
    answer: Option<Answer>,
}

impl Place {
    pub(crate) fn new(application: Arc<Application>) -> Self {
        Self { application, talk: None, answer: None }
    }

    /// Calls the application, or has it called.
    fn begin(&mut self, py: Python<'_>, turn: &mut Turn<'_, '_>) -> PyResult<Arc<Talk>> {
        let application = self.application.clone();
        let talk = Arc::new(Talk::default());
        self.talk = Some(talk.clone());
        let is_here = talk.is_all_here(turn.exchange, turn.cx);
        let environ = application.environs.make(py, turn.exchange, &talk)?;
        if application.is_inline && is_here && application.pool.is_idle() {
            let start = Bound::new(py, Start::new(talk.clone(), false))?;
            match Answer::begin(application.callable.bind(py), environ, &start) {
                Ok(answer) => self.answer = Some(answer),
                Err(error) => fail(py, &talk, &error),
            }
            return Ok(talk);
        }
        let (environ, own) = (environ.unbind(), talk.clone());
        let pool = application.pool.clone();
        pool.add(Box::new(move |py| {
            let called = Bound::new(py, Start::new(own.clone(), true)).and_then(|start| {
                let environ = environ.into_bound(py);
                Answer::begin(application.callable.bind(py), environ, &start)
            });
            match called {
                Ok(answer) => {
                    let mut more = true;
                    while more {
                        more = take_step(py, &own, &answer);
                    }
                    answer.close(py);
                }
                Err(error) => fail(py, &own, &error),
            }
        }))?;
        Ok(talk)
    }

    /// Asks for pieces as long as there is room for them.
    fn go_on(&mut self, py: Python<'_>, talk: &Talk) {
        while let Some(answer) = self.answer.take() {
            if !talk.has_room() {
                self.answer = Some(answer);
                return;
            }
            if take_step(py, talk, &answer) {
                self.answer = Some(answer);
            } else {
                answer.close(py);
            }
        }
    }
}

/// One piece; whether there may be more.
fn take_step(py: Python<'_>, talk: &Talk, answer: &Answer) -> bool {
    match answer.step(py) {
        Ok(true) => true,
        Ok(false) => {
            talk.finish(None);
            false
        }
        Err(error) => {
            fail(py, talk, &error);
            false
        }
    }
}

fn fail(py: Python<'_>, talk: &Talk, error: &PyErr) {
    failure::log(py, "a WSGI application raised an exception", error);
    talk.finish(Some(failure::line(py, error)));
}

impl Sandbox for Place {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        Python::attach(|py| {
            let talk = match &self.talk {
                Some(talk) => talk.clone(),
                None => match self.begin(py, turn) {
                    Ok(talk) => talk,
                    Err(error) => {
                        failure::log(py, "a WSGI application could not be called", &error);
                        let fault = Fault::Exception(failure::line(py, &error));
                        return Progress::Ended(Outcome::Fault(fault));
                    }
                },
            };
            let outcome = loop {
                self.go_on(py, &talk);
                let outcome = talk.exchange(py, turn.exchange, turn.cx);
                // What was in the way may have gone.
                if outcome.is_some() || self.answer.is_none() || !talk.has_room() {
                    break outcome;
                }
            };
            match outcome {
                Some(outcome) => Progress::Ended(outcome),
                None if turn.now >= turn.deadline => {
                    let limit = turn.deadline.saturating_duration_since(turn.now);
                    Progress::Ended(Outcome::Fault(Fault::Deadline {
                        limit,
                        backtrace: Vec::new(),
                    }))
                }
                None => Progress::Waiting { until: None },
            }
        })
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        if let Some(talk) = self.talk.take() {
            talk.leave();
        }
        if let Some(answer) = self.answer.take() {
            Python::attach(|py| answer.close(py));
        }
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
