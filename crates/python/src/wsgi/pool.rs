//! The threads that blocking applications are called on.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use pyo3::Python;

/// What a thread does.
type Job = Box<dyn FnOnce(Python<'_>) + Send>;

/// At most so many threads, started when they are needed for the first time.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    limit: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    /// Jobs that are being done.
    busy: usize,
    is_closed: bool,
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { shared: Arc::default(), limit: limit.max(1), threads: Mutex::default() })
    }

    /// Whether no job is being done or waits.
    pub(crate) fn is_idle(&self) -> bool {
        let line = self.shared.line();
        line.jobs.is_empty() && line.busy == 0
    }

    /// Has a job done, behind those that wait already. `Err` if there is no thread to do it.
    pub(crate) fn add(&self, job: Job) -> std::io::Result<()> {
        let mut line = self.shared.line();
        line.jobs.push_back(job);
        if line.jobs.len() > line.idle {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            if threads.len() < self.limit {
                let shared = self.shared.clone();
                let name = format!("wsgi-{}", threads.len());
                match thread::Builder::new().name(name).spawn(move || work(&shared)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) if threads.is_empty() => {
                        line.jobs.pop_back();
                        return Err(error);
                    }
                    // Those that there are will come to it.
                    Err(_) => {}
                }
            }
        }
        drop(line);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Ends the threads when the jobs are done that are here.
    pub(crate) fn close(&self) {
        self.shared.line().is_closed = true;
        self.shared.changed.notify_all();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn work(shared: &Shared) {
    loop {
        let job = {
            let mut line = shared.line();
            loop {
                if let Some(job) = line.jobs.pop_front() {
                    line.busy += 1;
                    break job;
                }
                if line.is_closed {
                    return;
                }
                line.idle += 1;
                line = shared.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
                line.idle -= 1;
            }
        };
        Python::attach(job);
        shared.line().busy -= 1;
    }
}
