//! `sandtide serve`: tenants over HTTP.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use sandtide_config::{Config, Listen, ListenAddress, Serves, Tenant};
use sandtide_engine::{Engine, Program};
use sandtide_http::{Options, Server};
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
    let addresses = server.listen.iter().map(tcp_address).collect::<anyhow::Result<Vec<_>>>()?;
    let loaded = loading::load_all(tenants, &engines);
    let failures: Vec<_> =
        loaded.iter().filter_map(|loaded| loaded.answer.as_ref().err()).collect();
    report::print_errors(&failures);
    if failures.len() == loaded.len() {
        return Ok(ExitCode::FAILURE);
    }

    let options = host_options(&server, args.threads);
    let host = Server::bind(&addresses, options)?;
    loaded.iter().for_each(|loaded| eprintln!("{}", describe(loaded, host.addresses())));
    let programs: Vec<_> = loaded.iter().filter_map(program).collect();
    let served = loaded.into_iter().map(|loaded| loaded.into_runtime().map(Arc::new));
    let table = Table::build(served.collect::<anyhow::Result<Vec<_>>>()?)?;
    let runtime = Runtime::new(table, runtime_options(&server));
    let stop = signals::stop()?;
    let addresses = host.addresses().iter().map(|address| format!("http://{address}"));
    eprintln!("ready: {}", addresses.collect::<Vec<_>>().join(" "));
    host.run(runtime, stop)?;
    programs
        .iter()
        .filter_map(|(tenant, program)| loading::unknown_calls(tenant, &**program))
        .for_each(|note| eprintln!("{note}"));
    Ok(ExitCode::SUCCESS)
}

/// The address of a listener, which is all that the host knows of one.
fn tcp_address(listen: &Listen) -> anyhow::Result<SocketAddr> {
    match listen {
        Listen { address: ListenAddress::Tcp(address), tls: false, proxy_protocol: false } => {
            Ok(*address)
        }
        Listen { address, .. } => {
            let what = "the server speaks plain HTTP over TCP only";
            let hint = "listen on an IP address and a port, without `tls` and `proxy_protocol`";
            Err(Hinted::new(format!("cannot listen on `{address}`: {what}"), hint).into())
        }
    }
}

fn program(loaded: &Loaded) -> Option<(String, Arc<dyn Program>)> {
    match &loaded.answer {
        Ok(Content::Program(program)) => Some((loaded.tenant.name.clone(), program.clone())),
        _ => None,
    }
}

fn host_options(server: &sandtide_config::Server, threads: Option<NonZeroUsize>) -> Options {
    let default = Options::default();
    let threads = threads.or(server.threads).map_or(default.threads, NonZeroUsize::get);
    Options { threads, drain: server.drain, ..default }
}

fn runtime_options(server: &sandtide_config::Server) -> runtime::Options {
    runtime::Options { slice: server.slice, ..Default::default() }
}

/// Where a tenant answers, and how long its program took to load.
fn describe(loaded: &Loaded, addresses: &[SocketAddr]) -> String {
    let tenant = &loaded.tenant;
    let state = match (&loaded.answer, &tenant.serves) {
        (Err(_), _) => "answers 503: its program could not be loaded".to_owned(),
        (Ok(_), Serves::Program(_)) => format!("loaded in {}", report::milliseconds(loaded.time)),
        (Ok(_), Serves::Respond(_)) => "constant".to_owned(),
    };
    format!("tenant {}: {} ({state})", tenant.name, urls(tenant, addresses).join(" "))
}

fn urls(tenant: &Tenant, addresses: &[SocketAddr]) -> Vec<String> {
    let Some(address) = addresses.first() else { return Vec::new() };
    let port = if address.port() == 80 { String::new() } else { format!(":{}", address.port()) };
    let named = tenant.authorities.iter().map(|name| format!("http://{name}{port}{}", tenant.path));
    let default = tenant.default.then(|| format!("http://{address}{}", tenant.path));
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
        return Ok(sandtide_config::load(file, &engines::names(engines))?);
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
