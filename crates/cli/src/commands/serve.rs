//! `sandtide serve`: tenants over HTTP.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use sandtide_config::{Config, Listen, ListenAddress, Serves, Surroundings, Tenant};
use sandtide_engine::{Engine, Program};
use sandtide_http::{Address, Options, Server};
use sandtide_runtime::{self as runtime, Runtime, Table};

use crate::{
    choose, engines,
    loading::{self, Content, Loaded},
    report::{self, Hinted},
    signals,
};

/// The configuration that is served when none is named.
const DEFAULT_CONFIG: &str = "sandtide.toml";

/// Serve tenants over HTTP.
///
/// Loads the programs of all tenants, prints where each of them answers, and serves until SIGINT
/// or SIGTERM, which let the exchanges end that have begun. A tenant whose program cannot be loaded
/// answers 503; the others are not affected.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  sandtide serve                     serves ./sandtide.toml
  sandtide serve hello.elf           serves one program, without a configuration
  sandtide serve --listen 0.0.0.0:80 /etc/sandtide.toml")]
pub struct Args {
    /// A configuration, or a program to serve alone [default: sandtide.toml]
    file: Option<PathBuf>,
    /// Listen on this address instead of the configured ones; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Vec<ListenAddress>,
    /// Reactor threads [default: as configured, or one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

fn parse_address(text: &str) -> Result<ListenAddress, String> {
    ListenAddress::parse(text).map_err(|error| format!("{error}: {}", error.hint))
}

/// Serves; 1 if no tenant's program can be loaded.
pub fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    let engines = engines::all();
    let Config { mut server, tenants, .. } = read(args.file.as_deref(), &engines)?;
    if !args.listen.is_empty() {
        server.listen = args.listen.iter().cloned().map(Listen::from).collect();
    }
    let listens = server.listen.iter().map(host_listen).collect::<anyhow::Result<Vec<_>>>()?;
    let loaded = loading::load_all(tenants, &engines);
    let failures: Vec<_> =
        loaded.iter().filter_map(|loaded| loaded.answer.as_ref().err()).collect();
    report::print_errors(&failures);
    if failures.len() == loaded.len() {
        return Ok(ExitCode::FAILURE);
    }

    let options = host_options(&server, args.threads);
    let host = Server::bind(&listens, options)?;
    loaded.iter().for_each(|loaded| eprintln!("{}", describe(loaded, host.listens())));
    let programs: Vec<_> = loaded.iter().filter_map(program).collect();
    let served = loaded.into_iter().map(|loaded| loaded.into_runtime().map(Arc::new));
    let table = Table::build(served.collect::<anyhow::Result<Vec<_>>>()?)?;
    let runtime = Runtime::new(table, runtime_options(&server));
    let stop = signals::stop()?;
    let addresses = host.listens().iter().map(ToString::to_string);
    eprintln!("ready: {}", addresses.collect::<Vec<_>>().join(" "));
    host.run(runtime, stop)?;
    programs
        .iter()
        .filter_map(|(tenant, program)| loading::unknown_calls(tenant, &**program))
        .for_each(|note| eprintln!("{note}"));
    Ok(ExitCode::SUCCESS)
}

/// A listener as the host has it.
fn host_listen(listen: &Listen) -> anyhow::Result<sandtide_http::Listen> {
    let Listen { address, tls, proxy_protocol } = listen;
    if *tls || *proxy_protocol {
        let message = format!("cannot listen on `{address}`: the server speaks plain HTTP only");
        let hint = "listen without `tls` and `proxy_protocol`";
        return Err(Hinted::new(message, hint).into());
    }
    let address = match address {
        ListenAddress::Tcp(address) => Address::Tcp(*address),
        ListenAddress::Unix(path) => Address::Unix(path.clone()),
    };
    Ok(sandtide_http::Listen { address, tls: *tls, proxy_protocol: *proxy_protocol })
}

fn program(loaded: &Loaded) -> Option<(String, Arc<dyn Program>)> {
    match &loaded.answer {
        Ok(Content::Program(program)) => Some((loaded.tenant.name.clone(), program.clone())),
        _ => None,
    }
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
    }
}

fn runtime_options(server: &sandtide_config::Server) -> runtime::Options {
    runtime::Options { slice: server.slice, ..Default::default() }
}

/// Where a tenant answers, and how long its program took to load.
fn describe(loaded: &Loaded, listens: &[sandtide_http::Listen]) -> String {
    let tenant = &loaded.tenant;
    let state = match (&loaded.answer, &tenant.serves) {
        (Err(_), _) => "answers 503: its program could not be loaded".to_owned(),
        (Ok(_), Serves::Program(_)) => format!("loaded in {}", report::milliseconds(loaded.time)),
        (Ok(_), Serves::Respond(_)) => "constant".to_owned(),
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

/// The configuration in a file, or of a program alone.
fn read(file: Option<&Path>, engines: &[Arc<dyn Engine>]) -> anyhow::Result<Config> {
    let Some(file) = file else {
        if !Path::new(DEFAULT_CONFIG).exists() {
            let hint = "name one, or a program: `sandtide serve FILE`";
            return Err(Hinted::new(format!("no file `{DEFAULT_CONFIG}` here"), hint).into());
        }
        return read(Some(Path::new(DEFAULT_CONFIG)), engines);
    };
    if file.extension().is_some_and(|extension| extension == "toml") {
        return Ok(sandtide_config::load(
            file,
            &Surroundings::of_process(&engines::names(engines)),
        )?);
    }
    let image = choose::read(file)?;
    if !choose::is_elf(&image) && !choose::is_source(file) {
        let message = format!("`{}` is neither a configuration nor a program", file.display());
        let hint = "a configuration's name ends in `.toml`; a program is a static RISC-V Linux ELF";
        return Err(Hinted::new(message, hint).into());
    }
    choose::engine(engines, None, file, &image)?;
    Ok(Config::of_program(file.to_owned()))
}
