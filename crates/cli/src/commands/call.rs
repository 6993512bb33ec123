//! `sandtide call`: one exchange without a server.

use std::{
    io::{self, Read as _, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use sandtide_config::{Authority, Surroundings, Tenant, suggest};
use sandtide_control::{Content, load};
use sandtide_engine::{Exchange, ExchangeId, Outcome, Program, RequestBody, ResponseHead};
use sandtide_runtime::FixedResponse;

use crate::{
    engines, exchange,
    report::{self, GuestFault, Hinted},
    translate::{self, Mode},
};

/// Make one request to a tenant, without a server.
///
/// Loads the tenant's program, hands it the request, and writes the body of the response to
/// standard output. When the program fails, shows where, and exits with 1. The status of the
/// response makes no difference to the exit code.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  sandtide call hello GET /
  sandtide call -i echo POST /path?a=b -H 'content-type: text/plain' -d @letter.txt")]
pub struct Args {
    /// The tenant's name in the configuration
    tenant: String,
    /// The method, such as GET
    method: String,
    /// The path, and the query if there is one
    path: String,
    /// Add a header to the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The body of the request: a text, or `@` and a file; `@-` is standard input
    #[arg(short, long, value_name = "BODY")]
    data: Option<String>,
    /// Write the status and the headers before the body, those of interim responses as well
    #[arg(short, long)]
    include: bool,
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = "sandtide.toml")]
    config: PathBuf,
    /// Translate the program's code, or interpret it: auto, off [default: as configured]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    translate: Option<Mode>,
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write `name: value`")?;
    let name = name.trim().parse().map_err(|_| format!("`{name}` is not a header name"))?;
    let value = value.trim().parse().map_err(|_| format!("`{value}` is not a header value"))?;
    Ok((name, value))
}

/// Makes the request; 1 if the program failed.
pub fn call(args: &Args) -> anyhow::Result<ExitCode> {
    let engines = engines::all();
    let config =
        sandtide_config::load(&args.config, &Surroundings::of_process(&engines::names(&engines)))?;
    let engines = engines::configured(&config.server.translation)?;
    let names: Vec<_> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let Some(mut tenant) = config.tenants.into_iter().find(|tenant| tenant.name == args.tenant)
    else {
        let message = format!("no tenant `{}` in `{}`", args.tenant, args.config.display());
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        return Err(Hinted::new(message, suggest(&args.tenant, &names)).into());
    };
    translate::set(&mut tenant, args.translate);
    let request = request(args, &tenant)?;
    let loaded = load(tenant, &engines);
    let mut output = Output { include: args.include };
    let content =
        loaded.content.map_err(|error| report::cannot_load(&loaded.tenant.name, error))?;
    match content {
        Content::Program(program) => {
            let console = loaded.log.console();
            serve(&loaded.tenant, &*program, console, request, &mut output)?;
        }
        Content::Fixed(FixedResponse { status, headers, body }) => {
            output.head(&ResponseHead { status, headers })?;
            output.data(&body)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: &Args, tenant: &Tenant) -> anyhow::Result<Request<Bytes>> {
    let method = Method::from_bytes(args.method.as_bytes())
        .map_err(|_| Hinted::new(format!("`{}` is not a method", args.method), "such as GET"))?;
    let path = &args.path;
    let target = path.parse::<Uri>().ok().filter(|_| path.starts_with('/'));
    let target = target.ok_or_else(|| {
        Hinted::new(format!("`{path}` is not a path"), "it starts with `/`; write a space as `%20`")
    })?;
    let body = match args.data.as_deref() {
        None => None,
        Some("@-") => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            Some(Bytes::from(bytes))
        }
        Some(data) => match data.strip_prefix('@') {
            Some(file) => {
                let bytes = std::fs::read(file).with_context(|| format!("cannot read `{file}`"))?;
                Some(Bytes::from(bytes))
            }
            None => Some(Bytes::from(data.to_owned())),
        },
    };
    let mut request = Request::new(body.clone().unwrap_or_default());
    *request.method_mut() = method;
    *request.uri_mut() = target;
    let headers = request.headers_mut();
    for (name, value) in &args.headers {
        headers.append(name, value.clone());
    }
    if !headers.contains_key(header::HOST) {
        headers.insert(header::HOST, HeaderValue::from_str(&host(tenant))?);
    }
    // As a client would have sent it.
    if let Some(body) = body {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    Ok(request)
}

/// A name that the tenant answers to.
fn host(tenant: &Tenant) -> String {
    match tenant.authorities.first() {
        Some(Authority::Exact(name)) => name.clone(),
        Some(Authority::Below(name)) => format!("{}.{name}", tenant.name),
        None => "localhost".to_owned(),
    }
}

fn serve(
    tenant: &Tenant,
    program: &dyn Program,
    console: std::sync::Arc<dyn sandtide_engine::Console>,
    request: Request<Bytes>,
    output: &mut Output,
) -> anyhow::Result<()> {
    let (parts, body) = request.into_parts();
    let limits = &tenant.limits;
    if body.len() as u64 > limits.request_body {
        let message = format!("the body is over the limit of {} bytes", limits.request_body);
        return Err(Hinted::new(message, "raise the tenant's `limits.request_body`").into());
    }
    let body = if body.is_empty() { RequestBody::empty() } else { RequestBody::whole(body) };
    let mut exchange = Exchange::new(ExchangeId(1), parts, body, limits.response_body);
    let mut sandbox = program.spawn(console.clone())?;
    let outcome = exchange::serve(&mut *sandbox, &mut exchange, limits.wall_time, |exchange| {
        let response = &mut exchange.response;
        for head in response.take_interim() {
            output.head(&head)?;
        }
        if let Some(head) = response.take_head() {
            output.head(&head)?;
        }
        while let Some(data) = response.take_data() {
            output.data(&data)?;
        }
        if let Some(trailers) = response.take_trailers() {
            output.trailers(&trailers)?;
        }
        Ok(())
    });
    console.flush();
    match outcome? {
        Outcome::Done => Ok(()),
        Outcome::Fault(fault) => {
            let hint = fault.hint();
            Err(GuestFault { fault, usage: Some(sandbox.usage()), hint })
                .with_context(|| format!("tenant `{}` did not answer well", tenant.name))
        }
        Outcome::ClientGone => bail!("the engine took the request for abandoned"),
        Outcome::Engine(error) => Err(error.into()),
    }
}

/// Writes the response to standard output as it comes.
struct Output {
    include: bool,
}

impl Output {
    fn head(&mut self, head: &ResponseHead) -> io::Result<()> {
        if !self.include {
            return Ok(());
        }
        let mut text = Vec::new();
        write_status(&mut text, head.status)?;
        write_headers(&mut text, &head.headers)?;
        text.push(b'\n');
        self.data(&text)
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }

    fn trailers(&mut self, trailers: &HeaderMap) -> io::Result<()> {
        if !self.include {
            return Ok(());
        }
        let mut text = vec![b'\n'];
        write_headers(&mut text, trailers)?;
        self.data(&text)
    }
}

fn write_status(text: &mut Vec<u8>, status: StatusCode) -> io::Result<()> {
    let reason = status.canonical_reason().unwrap_or("");
    writeln!(text, "{}", format!("HTTP/1.1 {} {reason}", status.as_str()).trim_end())
}

fn write_headers(text: &mut Vec<u8>, headers: &HeaderMap) -> io::Result<()> {
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    Ok(())
}
