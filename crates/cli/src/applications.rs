//! Applications in process: the options of `serve` for them, and the processes they run in.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::ExitCode,
    sync::Arc,
    thread,
};

use sandtide_config::units;
use sandtide_engine::{ApplicationSource, Interface, Lifespan, Target};
use sandtide_http::{Certificates, Listen, Options, Server};

use crate::{
    interpreter,
    signals::Signals,
    supervisor::{Event, Rules, Supervisor},
    worker::Worker,
};

/// How an application is served.
#[derive(clap::Args)]
#[command(next_help_heading = "Options for Python applications")]
#[group(id = "applications")]
pub struct Args {
    /// How the application is called: auto, asgi, wsgi [default: found out]
    #[arg(long, value_name = "INTERFACE", value_parser = interface)]
    interface: Option<Interface>,
    /// Whether an ASGI application is told when the server starts and stops: auto, on, off [default:
    /// auto, which does without if the application cannot be told]
    #[arg(long, value_name = "MODE", value_parser = lifespan)]
    lifespan: Option<Lifespan>,
    /// Requests that a WSGI application answers at a time in each process. With 1, it runs on the
    /// thread that speaks HTTP [default: 1]
    #[arg(long, value_name = "N")]
    app_threads: Option<NonZeroU32>,
    /// The path that the application is mounted at [default: /]
    #[arg(long, value_name = "PATH", value_parser = mount)]
    root_path: Option<String>,
    /// Worker processes [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Replace a worker that holds so much memory: `512 MiB`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_rss: Option<u64>,
    /// Replace a worker that has answered so many requests
    #[arg(long, value_name = "N")]
    pub max_requests: Option<u64>,
    /// Replace the workers when a `.py` file below the current directory changes
    #[arg(long)]
    reload: bool,
    /// This process is a worker.
    #[arg(long, hide = true)]
    worker: bool,
}

impl Args {
    /// What is to be imported.
    pub fn source(&self, target: Target) -> ApplicationSource {
        ApplicationSource {
            target,
            interface: self.interface.unwrap_or_default(),
            lifespan: self.lifespan.unwrap_or_default(),
            threads: self.app_threads.map_or(1, NonZeroU32::get),
            root_path: self.root_path.clone().unwrap_or_default(),
        }
    }

    /// Serves in interpreters: this process becomes the only one, or supervises several.
    pub fn start(
        &self,
        python: Option<&Path>,
        listens: &[Listen],
        certificates: Option<Arc<Certificates>>,
        options: Options,
        signals: Signals,
    ) -> anyhow::Result<ExitCode> {
        let workers = self.workers.map_or(1, NonZeroUsize::get);
        let rules = Rules { workers, max_rss: self.max_rss, reload: self.reload };
        let is_plain = workers == 1 && self.max_rss.or(self.max_requests).is_none() && !self.reload;
        if is_plain {
            return Err(interpreter::become_one(python));
        }
        let module = interpreter::module()?;
        let server = Server::bind(listens, certificates, Options { threads: workers, ..options })?;
        let supervisor = Supervisor::new(&server, rules, || {
            let mut command = interpreter::command(python, &module);
            // What a terminal sends to its foreground is for the supervisor, which tells them.
            command.arg("--worker").process_group(0);
            command
        });
        let (renew, stop) = (supervisor.events(), supervisor.events());
        let stopped = signals.serve(move || drop(renew.send(Event::Renew)))?;
        let event_loop = tokio::runtime::Builder::new_current_thread().build()?;
        thread::Builder::new().name("stop".to_owned()).spawn(move || {
            event_loop.block_on(stopped);
            // Nobody listens if the supervisor has ended by itself.
            let _ = stop.send(Event::Stop);
        })?;
        let code = supervisor.run(|| {
            let addresses = server.listens().iter().map(ToString::to_string);
            eprintln!("ready: {}", addresses.collect::<Vec<_>>().join(" "));
        })?;
        Ok(code)
    }

    /// What a worker gets from its supervisor; `None` in a process that has none.
    pub fn inherit(&self) -> anyhow::Result<Option<(Worker, Vec<OwnedFd>)>> {
        Ok(self.worker.then(Worker::inherit).transpose()?)
    }
}

fn interface(text: &str) -> Result<Interface, String> {
    match text {
        "auto" => Ok(Interface::Auto),
        "asgi" => Ok(Interface::Asgi),
        "wsgi" => Ok(Interface::Wsgi),
        _ => Err("it is `auto`, `asgi` or `wsgi`".to_owned()),
    }
}

fn lifespan(text: &str) -> Result<Lifespan, String> {
    match text {
        "auto" => Ok(Lifespan::Auto),
        "on" => Ok(Lifespan::On),
        "off" => Ok(Lifespan::Off),
        _ => Err("it is `auto`, `on` or `off`".to_owned()),
    }
}

/// A path to mount at, without a slash at the end.
fn mount(text: &str) -> Result<String, String> {
    let path = text.strip_suffix('/').unwrap_or(text);
    if path.is_empty() || path.starts_with('/') {
        Ok(path.to_owned())
    } else {
        Err(format!("it starts with `/`: write `/{path}`"))
    }
}

fn size(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|error| error.to_string())
}
