//! `sandtide serve`: tenants over HTTP.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use sandtide_config::{
    Config, Listen, ListenAddress, Load, Serves, Surroundings, Tenant, is_env_name,
};
use sandtide_control::{
    Control, Prepared, Ready, Reread, Settings, choose, libraries, unknown_calls,
};
use sandtide_engine::{EgressRule, Engine, FileGrant, InProcess, Limits, Requests, Target};
use sandtide_http::{Address, Options, Server};
use sandtide_runtime::{self as runtime, Answer, Runtime};
use sandtide_snapshot::{SnapshotFile, is_snapshot};

use crate::{
    applications, certificates, engines,
    observe::{self, Observers},
    python::Python,
    report::{self, Hinted},
    signals::Signals,
    translate::{self, Mode},
    verification::{self, Which},
};

/// The configuration that is served when none is named.
const DEFAULT_CONFIG: &str = "sandtide.toml";

/// How many requests an application answers before its snapshot is taken, if nothing else is said:
/// frameworks put off much until the first ones.
const APPLICATION_WARMUP: Requests = Requests::Exactly(10);

/// Serve tenants over HTTP.
///
/// Prints where each tenant answers, and serves until SIGINT or SIGTERM, which let the exchanges
/// end that have begun. Programs are loaded on first use, or before anything is served with
/// `load = "start"`. A tenant whose program cannot be loaded answers 503; the others are not
/// affected.
///
/// When the configuration, a program or a certificate changes, or on SIGHUP, what has changed is
/// loaded beside what serves and takes over. What is wrong changes nothing, and the log says why.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  sandtide serve                     serves ./sandtide.toml
  sandtide serve hello.elf           serves one program, without a configuration
  sandtide serve shop.snapshot       serves a program from its snapshot on disk, without a boot
  sandtide serve app:app             serves an ASGI or WSGI application, in this process
  sandtide serve --workers 4 app:app
  sandtide serve -- node server.js   serves an ordinary HTTP server, each request from its snapshot
  sandtide serve --isolate app:app   serves `app` of app.py: FastAPI, Flask, Django, any ASGI or WSGI
  sandtide serve --listen 0.0.0.0:80 /etc/sandtide.toml")]
pub struct Args {
    /// A configuration, or a program or a snapshot to serve alone [default: sandtide.toml], or an
    /// application in Python, MODULE[:NAME] or FILE.py[:NAME]
    #[arg(conflicts_with = "command")]
    file: Option<PathBuf>,
    /// Serve an ASGI or WSGI application in Python, MODULE[:NAME] or FILE.py[:NAME], in sandboxes. It
    /// may read the current directory and what is installed for its Python
    #[arg(long, requires = "file")]
    isolate: bool,
    /// The Python that runs the application [default: that of the virtual environment, which is active
    /// or lies in `.venv`, or `python3`]
    #[arg(long, value_name = "PATH", requires = "file")]
    python: Option<PathBuf>,
    /// Set an environment variable of the application, or of the program behind `--`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env)]
    env: Vec<(String, String)>,
    /// Listen on this address instead of the configured ones; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Vec<ListenAddress>,
    /// Reactor threads [default: as configured, or one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Translate the programs' code, or interpret it: auto, off [default: as configured]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    translate: Option<Mode>,
    /// Compare sandboxes with their snapshot after a reset: never, sampled, always [default: as
    /// configured]
    #[arg(long, value_name = "WHICH", hide_possible_values = true)]
    verify_resets: Option<Which>,
    /// Have the application, or the program behind `--`, answer so many requests for `/` before its
    /// snapshot is taken, or with `auto` as many as make it faster [default: 10 for an application,
    /// else 0]
    #[arg(long, value_name = "N", value_parser = parse_warmup)]
    warmup: Option<Requests>,
    /// Let the program connect to HOST at PORT, such as `db.internal:5432`, `*.example.com:443` or
    /// `10.0.0.0/8:6379`; may be repeated. Only with a program, as a configuration says it by itself
    #[arg(long, value_name = "HOST:PORT", value_parser = super::run::parse_egress)]
    egress: Vec<EgressRule>,
    /// A program to serve alone, with its arguments. It may use a good part of this machine, and if
    /// it is linked dynamically, read the machine's libraries and the current directory, where it
    /// starts
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<String>,
    #[command(flatten)]
    application: applications::Args,
}

fn parse_address(text: &str) -> Result<ListenAddress, String> {
    ListenAddress::parse(text).map_err(|error| format!("{error}: {}", error.hint))
}

pub fn parse_env(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_env_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Serves; 1 if no tenant can be served.
pub fn serve(args: &Args, in_process: Option<&dyn InProcess>) -> anyhow::Result<ExitCode> {
    // Whoever changes the configuration need not know whether it has been read already.
    let signals = Signals::register()?;
    let engines = engines::all();
    let reread = source(args, &engines)?;
    let config = reread()?;
    let has_applications =
        config.tenants.iter().any(|tenant| matches!(tenant.serves, Serves::Application(_)));
    let engines = engines::of_server(&config.server)?;
    let server = config.server.clone();
    let listens: Vec<_> = server.listen.iter().map(host_listen).collect();
    let certificates = config.tls.as_ref().map(certificates::load).transpose()?;
    if has_applications && in_process.is_none() {
        let options = host_options(&server, args.threads);
        let python = args.python.as_deref();
        return args.application.start(python, &listens, certificates, options, signals);
    }
    let inherited = args.application.inherit()?;
    let mut observers = Observers::open(&config)?;
    let options = runtime_options(&server, args, observers.access_log.is_some());
    let (control, prepared) = Control::prepare(config, engines, in_process, options)?;
    let mut failures = Vec::new();
    let mut tenants = Vec::new();
    for Prepared { tenant, state } in prepared {
        let state = state.map_err(|error| {
            failures.push(report::cannot_load(&tenant.name, error));
        });
        tenants.push((tenant, state.ok()));
    }
    report::print_errors(&failures);
    if failures.len() == tenants.len() {
        return Ok(ExitCode::FAILURE);
    }

    let mut options = host_options(&server, args.threads);
    if has_applications {
        options.threads = 1;
    }
    let (worker, mut host) = match inherited {
        Some((worker, sockets)) => {
            (Some(worker), Server::inherit(&listens, sockets, certificates.clone(), options))
        }
        None => (None, Server::bind(&listens, certificates.clone(), options)?),
    };
    if let Some(log) = &observers.access_log {
        host = host.with_access_log(log.clone());
    }
    let speaks = worker.is_none();
    tenants.iter().filter(|_| speaks).for_each(|(tenant, state)| {
        eprintln!("{}", describe(tenant, *state, host.listens()));
    });
    let (runtime, tally) = (control.runtime().clone(), control.tally().clone());
    let hooks = certificates.map(certificates::hook).into_iter().collect();
    let handle = control.start(Settings { reread, hooks, trim: sandtide_memory::trim_heap })?;
    let access_log = observers.access_log.clone();
    let stop = signals.serve(move || {
        handle.hangup();
        if let Some(log) = &access_log {
            log.reopen();
        }
    })?;
    if let Some(address) = observers.serve(&runtime, &tally, host.draining())? {
        eprintln!("admin: {address}");
    }
    match worker {
        Some(worker) => worker.serve(runtime.clone(), args.application.max_requests)?,
        None => {
            let addresses = host.listens().iter().map(ToString::to_string);
            eprintln!("ready: {}", addresses.collect::<Vec<_>>().join(" "));
        }
    }
    observers.started();
    if has_applications {
        host.run_here(&runtime, stop)?;
    } else {
        host.run(runtime.clone(), stop)?;
    }
    print_notes(&runtime);
    Ok(ExitCode::SUCCESS)
}

/// Says what guests have asked for in vain.
fn print_notes(runtime: &Runtime) {
    for tenant in runtime.table().tenants() {
        if let Answer::Program(slot) = &tenant.answer
            && let Some(version) = slot.version()
            && let Some(note) = unknown_calls(&tenant.name, &**version.program())
        {
            eprintln!("{note}");
        }
    }
}

/// A listener as the host has it.
fn host_listen(listen: &Listen) -> sandtide_http::Listen {
    let Listen { address, tls, proxy_protocol } = listen;
    let address = match address {
        ListenAddress::Tcp(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    };
    sandtide_http::Listen { address, tls: *tls, proxy_protocol: *proxy_protocol }
}

fn host_options(server: &sandtide_config::Server, threads: Option<NonZeroUsize>) -> Options {
    let threads = threads.or(server.threads);
    Options {
        threads: threads.map_or_else(|| Options::default().threads, NonZeroUsize::get),
        max_connections: server.max_connections as usize,
        max_streams: server.max_streams,
        max_head: server.max_head as usize,
        max_headers: server.max_headers as usize,
        head_timeout: server.head_timeout,
        idle_timeout: server.idle_timeout,
        body_timeout: server.body_timeout,
        drain: server.drain,
        drain_delay: server.drain_delay,
        forwarded: observe::forwarded(&server.forwarded),
        trace: observe::trace(server.trace),
    }
}

fn runtime_options(
    server: &sandtide_config::Server,
    args: &Args,
    records: bool,
) -> runtime::Options {
    let verify_resets = verification::which(args.verify_resets, server.verify_resets);
    runtime::Options { slice: server.slice, records, verify_resets }
}

/// Where a tenant answers, and what became of its program.
fn describe(tenant: &Tenant, state: Option<Ready>, listens: &[sandtide_http::Listen]) -> String {
    let state = match state {
        None => "answers 503: its program could not be loaded".to_owned(),
        Some(Ready::Loaded(time, warmed)) => {
            let warmed = warmed.map(|warmed| format!("; warm-up: {warmed}")).unwrap_or_default();
            format!("loaded in {}{warmed}", report::milliseconds(time))
        }
        Some(Ready::Restored(time)) => format!("restored in {}", report::milliseconds(time)),
        Some(Ready::OnFirstUse) => "loads on first use".to_owned(),
        Some(Ready::Constant) => "constant".to_owned(),
    };
    format!("tenant {}: {} ({state})", tenant.name, urls(tenant, listens).join(" "))
}

/// Where a tenant answers, by the first listener with a port.
fn urls(tenant: &Tenant, listens: &[sandtide_http::Listen]) -> Vec<String> {
    let with_port = |listen: &sandtide_http::Listen| match listen.address {
        Address::Tcp(address) => Some((address, listen.tls)),
        Address::Unix(_) => None,
    };
    let path = &tenant.path;
    let Some((address, tls)) = listens.iter().find_map(with_port) else {
        let named = tenant.authorities.iter().map(|name| format!("{name}{path}"));
        return named.chain(tenant.default.then(|| format!("*{path}"))).collect();
    };
    let (scheme, usual) = if tls { ("https", 443) } else { ("http", 80) };
    let port = if address.port() == usual { String::new() } else { format!(":{}", address.port()) };
    let named = tenant.authorities.iter().map(|name| format!("{scheme}://{name}{port}{path}"));
    let default = tenant.default.then(|| format!("{scheme}://{address}{path}"));
    named.chain(default).collect()
}

/// Where the configuration comes from, each time that it is read: a file, or a program alone.
fn source(args: &Args, engines: &[Arc<dyn Engine>]) -> anyhow::Result<Reread> {
    if args.isolate {
        return isolated(args);
    }
    check_own(args)?;
    let file = match (&args.file, args.command.first()) {
        (_, Some(name)) => choose::find(name),
        (Some(file), None) => file.clone(),
        (None, None) if Path::new(DEFAULT_CONFIG).exists() => PathBuf::from(DEFAULT_CONFIG),
        (None, None) => {
            let hint = "name one, or a program: `sandtide serve FILE`";
            return Err(Hinted::new(format!("no file `{DEFAULT_CONFIG}` here"), hint).into());
        }
    };
    let here = adapt(args);
    if args.command.is_empty() && file.extension().is_some_and(|extension| extension == "toml") {
        if !args.egress.is_empty() {
            let hint = "write `egress = [...]` into the tenant's table";
            return Err(Hinted::new("`--egress` is for a program alone", hint).into());
        }
        let engines = engines::names(engines);
        return Ok(Box::new(move || {
            Ok(here(sandtide_config::load(&file, &Surroundings::of_process(&engines))?))
        }));
    }
    if args.command.is_empty()
        && let Some(target) = target(&file)
    {
        let source = args.application.source(target);
        return Ok(Box::new(move || {
            let mut config = Config::of_application(source.clone());
            config.tenants.iter_mut().for_each(trust);
            Ok(here(config))
        }));
    }
    let image = choose::read(&file)?;
    if is_snapshot(&image) && args.command.is_empty() {
        let first = SnapshotFile::open(&file)?.about().recipe.limits.clone();
        return Ok(Box::new(move || {
            let now = SnapshotFile::open(&file).map(|file| file.about().recipe.limits.clone());
            let mut config = Config::of_program(file.clone());
            for tenant in &mut config.tenants {
                tenant.load = Load::Start;
                // What cannot be read is told of when it is loaded.
                tenant.limits = now.as_ref().unwrap_or(&first).clone();
            }
            Ok(here(config))
        }));
    }
    if !choose::is_elf(&image) && !choose::is_source(&file) {
        let message = format!("`{}` is neither a configuration nor a program", file.display());
        let hint = "a configuration's name ends in `.toml`; a program is an ELF file for Linux; \
                    a script is served by naming its interpreter, as in `serve -- node server.js`";
        return Err(Hinted::new(message, hint).into());
    }
    let is_dynamic = choose::engine(engines, None, &file, &image)?.is_dynamic(&image);
    let (command, requests) = (args.command.clone(), args.warmup.unwrap_or_default());
    let env = args.env.clone();
    Ok(Box::new(move || {
        let mut config = Config::of_program(file.clone());
        for tenant in &mut config.tenants {
            if !command.is_empty() {
                *tenant = of_command(file.clone(), &command, is_dynamic, requests, &env);
            }
            tenant.load = Load::Start;
        }
        Ok(here(config))
    }))
}

/// What the command line changes in a configuration.
fn adapt(args: &Args) -> impl Fn(Config) -> Config + Send + Sync + 'static {
    let listen: Vec<_> = args.listen.iter().cloned().map(Listen::from).collect();
    let (mode, egress) = (args.translate, args.egress.clone());
    move |mut config: Config| {
        config.tenants.iter_mut().for_each(|tenant| translate::set(tenant, mode));
        for tenant in &mut config.tenants {
            if let Serves::Program(program) = &mut tenant.serves {
                program.egress.extend(egress.iter().cloned());
            }
        }
        if !listen.is_empty() {
            config.server.listen.clone_from(&listen);
        }
        config
    }
}

/// Options for a program of the user's own mean nothing for others.
fn check_own(args: &Args) -> anyhow::Result<()> {
    for (option, is_given) in [("--warmup", args.warmup.is_some()), ("--env", !args.env.is_empty())]
    {
        if is_given && args.command.is_empty() {
            let what = format!("`{option}` is for the program behind `--`, or for `--isolate`");
            return Err(Hinted::new(what, "set it in the configuration of a tenant").into());
        }
    }
    Ok(())
}

/// An application in Python alone.
fn isolated(args: &Args) -> anyhow::Result<Reread> {
    let application = args.file.as_ref().and_then(|file| file.to_str()).unwrap_or_default();
    let application = application.to_owned();
    let python = Python::find(args.python.as_deref())?;
    let Some(directory) = libraries::here() else {
        let what = "an application may read the current directory, which is a home";
        return Err(Hinted::new(what, "change to the application's own directory").into());
    };
    let requests = args.warmup.unwrap_or(APPLICATION_WARMUP);
    let settings = [("PYTHONDONTWRITEBYTECODE", "1"), ("PYTHONUTF8", "1")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = [&settings[..], &args.env].concat();
    let here = adapt(args);
    Ok(Box::new(move || {
        let mut config = Config::of_program(python.program.clone());
        for tenant in &mut config.tenants {
            tenant.name = tenant_name(&application);
            tenant.load = Load::Start;
            tenant.warmup.requests = requests;
            generous(tenant, &python.arguments(&application), Some(directory.clone()), &env);
            if let Serves::Program(program) = &mut tenant.serves {
                program.files.extend(python.files().filter(|file| file.guest != directory.guest));
            }
        }
        Ok(here(config))
    }))
}

/// How many requests a program answers before its snapshot is taken.
pub fn parse_warmup(text: &str) -> Result<Requests, String> {
    match text {
        "auto" => Ok(Requests::UntilSteady),
        _ => {
            text.parse().map(Requests::Exactly).map_err(|_| "write a number, or `auto`".to_owned())
        }
    }
}

/// The name of an application's module, as tenants are named.
fn tenant_name(application: &str) -> String {
    let module = application.split(':').next().unwrap_or_default();
    let module = module.strip_suffix(".py").unwrap_or(module);
    let last = module.rsplit(['/', '.']).next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = last.chars().map(plain).take(63).collect();
    let name = name.trim_start_matches('-');
    if name.is_empty() { "application".to_owned() } else { name.to_owned() }
}

/// The tenant of a command: everything goes to the program in a file.
pub fn of_command(
    file: PathBuf,
    command: &[String],
    is_dynamic: bool,
    requests: Requests,
    env: &[(String, String)],
) -> Tenant {
    let mut tenant = Tenant::of_program(file);
    let here = libraries::here().filter(|_| is_dynamic);
    generous(&mut tenant, &command[1..], here, env);
    tenant.warmup.requests = requests;
    tenant
}

/// The application that an argument names: `module:attribute`, or a module that is here.
fn target(argument: &Path) -> Option<Target> {
    let text = argument.to_str()?;
    let target = Target::parse(text).filter(|_| !argument.exists())?;
    let path = target.module.replace('.', "/");
    let is_here = || {
        Path::new(&path).join("__init__.py").exists() || Path::new(&format!("{path}.py")).exists()
    };
    (target.attribute.is_some() || is_here()).then_some(target)
}

/// Lets an application have what other servers of such applications let it have.
fn trust(tenant: &mut Tenant) {
    let hour = Duration::from_secs(3600);
    tenant.concurrency = 10_000;
    tenant.limits = Limits {
        wall_time: hour,
        response_time: hour,
        request_body: 1 << 40,
        response_body: 1 << 40,
        ..tenant.limits.clone()
    };
}

/// Lets a tenant have what its user's own program, on the user's own machine, may need.
fn generous(
    tenant: &mut Tenant,
    arguments: &[String],
    here: Option<FileGrant>,
    env: &[(String, String)],
) {
    let minute = Duration::from_secs(60);
    tenant.limits = Limits {
        memory: 2 << 30,
        threads: 256,
        connections: 256,
        descriptors: 1024,
        boot_time: minute,
        boot_instructions: u64::MAX,
        wall_time: minute,
        scratch: 256 << 20,
        ..tenant.limits.clone()
    };
    let Serves::Program(program) = &mut tenant.serves else { return };
    program.args = arguments.to_vec();
    program.env = env.to_vec();
    if let Some(here) = here {
        program.directory.clone_from(&here.guest);
        program.files.push(here);
    }
}
