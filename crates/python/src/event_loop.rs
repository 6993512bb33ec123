//! Asyncio's loop on a reactor thread.

use std::{
    future::pending,
    io,
    os::fd::{IntoRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pyo3::{intern, prelude::*, types::PyDict};
use rustix::event::epoll;
use tokio::{io::unix::AsyncFd, select, sync::Notify, task::spawn_local, time::sleep};

use crate::{failure, scheduler::Scheduler, watch::watch};

/// What is easier said in Python: the loop's class, lifespan, looking at applications.
const SOURCE: &std::ffi::CStr =
    match std::ffi::CStr::from_bytes_with_nul(concat!(include_str!("asyncio.py"), "\0").as_bytes())
    {
        Ok(source) => source,
        Err(_) => panic!("the source has no NUL in it"),
    };

/// The loop of the thread that serves, and what tasks are made with.
pub(crate) struct EventLoop {
    pub(crate) helpers: Py<PyModule>,
    pub(crate) python: Py<PyAny>,
    scheduler: Py<Scheduler>,
    woken: Arc<Notify>,
    task_type: Py<PyAny>,
    task_arguments: Py<PyDict>,
    /// Those that did not end in their first step.
    tasks: Py<PyAny>,
    /// The epoll instance of the loop's selector.
    descriptors: OwnedFd,
    is_driven: AtomicBool,
}

impl EventLoop {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Arc<Self>> {
        let helpers =
            PyModule::from_code(py, SOURCE, c"sandtide/asyncio.py", c"_sandtide_asyncio")?;
        let woken = Arc::new(Notify::new());
        let scheduler = Bound::new(py, Scheduler::new(py, woken.clone())?)?;
        let descriptors = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        // The loop closes its own.
        let fd = descriptors.try_clone()?.into_raw_fd();
        let python = helpers.getattr("Loop")?.call1((scheduler.getattr("wake")?, fd))?;
        scheduler.get().attach(py, &python)?;
        python.setattr("call_soon", scheduler.getattr("call_soon")?)?;
        let asyncio = py.import("asyncio")?;
        asyncio.call_method1("set_event_loop", (&python,))?;
        let task_arguments = PyDict::new(py);
        task_arguments.set_item("loop", &python)?;
        task_arguments.set_item("name", "request")?;
        Ok(Arc::new(Self {
            helpers: helpers.unbind(),
            python: python.unbind(),
            scheduler: scheduler.unbind(),
            woken,
            task_type: asyncio.getattr("Task")?.unbind(),
            task_arguments: task_arguments.unbind(),
            tasks: pyo3::types::PySet::empty(py)?.into_any().unbind(),
            descriptors,
            is_driven: AtomicBool::new(false),
        }))
    }

    /// Makes a task of a coroutine, and runs its first step. What the step raises is the task's.
    pub(crate) fn start<'py>(&self, coroutine: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = coroutine.py();
        let scheduler = self.scheduler.bind(py).get();
        scheduler.expect();
        let made = self.task_type.bind(py).call((coroutine,), Some(self.task_arguments.bind(py)));
        let step = scheduler.take();
        let task = made?;
        if let Some(step) = step {
            step.context.bind(py).call_method1(intern!(py, "run"), (step.callback,))?;
        }
        Ok(task)
    }

    /// Keeps a task until it has ended.
    pub(crate) fn keep(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.tasks.bind(task.py()).call_method1(intern!(task.py(), "add"), (task,)).map(drop)
    }

    /// Lets go of a task that has ended.
    pub(crate) fn release(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.tasks.bind(task.py()).call_method1(intern!(task.py(), "discard"), (task,)).map(drop)
    }

    /// A future of the loop.
    pub(crate) fn future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.python.bind(py).call_method0(intern!(py, "create_future"))
    }

    /// Runs a coroutine to its end, while no reactor drives the loop.
    pub(crate) fn run<'py>(&self, coroutine: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.python.bind(coroutine.py()).call_method1("run_until_complete", (coroutine,))
    }

    /// Has the reactor of this thread turn the loop from here on. To be called in its event loop.
    pub(crate) fn ensure_driven(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.is_driven.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let python = self.python.bind(py);
        python.call_method0("adopt")?;
        let fd = watch(self.descriptors.try_clone()?)?;
        spawn_local(drive(self.clone(), fd));
        Ok(())
    }

    /// Takes the loop back from a reactor that has ended.
    pub(crate) fn take_back(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_driven.swap(false, Ordering::Relaxed) {
            self.python.bind(py).call_method0("release")?;
        }
        Ok(())
    }
}

/// Turns the loop each time that there is something to run.
async fn drive(event_loop: Arc<EventLoop>, fd: AsyncFd<OwnedFd>) {
    let mut next = Some(Duration::ZERO);
    loop {
        let timer = async {
            match next {
                Some(time) => sleep(time).await,
                None => pending().await,
            }
        };
        let ready = select! {
            () = event_loop.woken.notified() => None,
            ready = fd.readable() => ready.ok(),
            () = timer => None,
        };
        let turned = Python::attach(|py| {
            let python = event_loop.python.bind(py);
            if let Some(mut ready) = ready
                && !python.call_method0(intern!(py, "look"))?.is_truthy()?
            {
                ready.clear_ready();
            }
            python.call_method0(intern!(py, "turn"))?.extract::<f64>()
        });
        next = match turned {
            Ok(time) => Duration::try_from_secs_f64(time).ok(),
            Err(error) => {
                Python::attach(|py| failure::log(py, "the event loop of asyncio failed", &error));
                Some(Duration::ZERO)
            }
        };
    }
}
