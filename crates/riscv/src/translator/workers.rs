//! The threads that translate while programs run already.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Beside a thread that wants the same core, a worker gets a quarter of it: little enough to leave
/// requests alone, and enough to end on a busy server, which gains most from it.
const NICENESS: i32 = 5;

/// Cranelift recurses, not deeply.
const STACK: usize = 8 << 20;

/// Something to do in the background.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Threads that come when there is something to do, and go when there is nothing.
pub(super) struct Workers {
    most: usize,
    longest: usize,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    threads: usize,
}

/// A job was not taken: too many wait already, or there is no thread.
#[derive(Debug)]
pub(super) enum Refused {
    Full,
    NoThread(io::Error),
}

impl Workers {
    /// At most so many threads, and so many jobs that wait.
    pub(super) fn new(most: usize, longest: usize) -> Self {
        Self { most, longest, line: Mutex::default() }
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Has a job done some time.
    pub(super) fn push(self: &Arc<Self>, job: Job) -> Result<(), Refused> {
        let mut line = self.line();
        if line.jobs.len() >= self.longest {
            return Err(Refused::Full);
        }
        if line.threads < self.most {
            let this = self.clone();
            let builder = thread::Builder::new().name("translator".to_owned()).stack_size(STACK);
            match builder.spawn(move || this.work()) {
                Ok(_) => line.threads += 1,
                Err(error) if line.threads == 0 => return Err(Refused::NoThread(error)),
                // Another does it.
                Err(_) => {}
            }
        }
        line.jobs.push_back(job);
        Ok(())
    }

    fn work(&self) {
        // On Linux it is this thread's alone (setpriority(2)). Without, it works all the same.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            let job = {
                let mut line = self.line();
                let Some(job) = line.jobs.pop_front() else {
                    line.threads -= 1;
                    return;
                };
                job
            };
            job();
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_the_rest_is_done_in_order() {
        let workers = Arc::new(Workers::new(1, 2));
        let (begun, has_begun) = channel();
        let (go, may_go) = channel::<()>();
        let (done, is_done) = channel();
        workers
            .push(Box::new(move || {
                begun.send(()).unwrap();
                may_go.recv().unwrap();
            }))
            .unwrap();
        has_begun.recv().unwrap();
        for number in 0..2 {
            let done = done.clone();
            workers.push(Box::new(move || done.send(number).unwrap())).unwrap();
        }
        assert!(matches!(workers.push(Box::new(|| ())), Err(Refused::Full)));
        go.send(()).unwrap();
        assert_eq!((is_done.recv().unwrap(), is_done.recv().unwrap()), (0, 1));
        // A thread that has gone is replaced.
        loop {
            if workers.line().threads == 0 {
                break;
            }
            thread::yield_now();
        }
        workers.push(Box::new(move || done.send(2).unwrap())).unwrap();
        assert_eq!(is_done.recv().unwrap(), 2);
    }
}
