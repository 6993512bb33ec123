//! How a line looks.

use std::{io::Write as _, net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, Uri, Version, header};
use sandtide_runtime::Record;

use super::{
    calendar::Second,
    escape::{common as escaped, json as string},
};
use crate::inbound::Origin;

/// An exchange that is over, and when.
pub(super) struct Done<'a> {
    pub(super) record: &'a Record,
    pub(super) origin: &'a Origin,
    /// The client as [`address`] writes it.
    pub(super) client: &'a [u8],
    /// When it began.
    pub(super) second: &'a Second,
    pub(super) microseconds: u32,
    /// From then until the response had gone.
    pub(super) took: Duration,
    /// Bytes of body that were handed to the connection.
    pub(super) sent: u64,
}

/// What stands for the status of an exchange whose client left before there was one.
const CLIENT_GONE: u16 = 499;

impl Done<'_> {
    fn status(&self) -> u16 {
        self.record.status.map_or(CLIENT_GONE, |status| status.as_u16())
    }

    fn header(&self, name: HeaderName) -> Option<&[u8]> {
        self.record.request.headers.get(name).map(http::HeaderValue::as_bytes)
    }
}

/// The combined log format:
/// `client - - [time] "request line" status bytes "referrer" "user agent"`.
pub(super) fn common(line: &mut Vec<u8>, done: &Done<'_>) {
    let request = &done.record.request;
    line.extend_from_slice(done.client);
    line.extend_from_slice(b" - - [");
    line.extend_from_slice(done.second.common.as_bytes());
    line.extend_from_slice(b" +0000] \"");
    escaped(line, request.method.as_str().as_bytes());
    line.push(b' ');
    escaped(line, target(&request.uri).as_bytes());
    line.push(b' ');
    line.extend_from_slice(protocol(request.version).as_bytes());
    line.extend_from_slice(b"\" ");
    number(line, u64::from(done.status()));
    line.push(b' ');
    match done.sent {
        0 => line.push(b'-'),
        sent => number(line, sent),
    }
    for name in [header::REFERER, header::USER_AGENT] {
        line.extend_from_slice(b" \"");
        escaped(line, done.header(name).unwrap_or(b"-"));
        line.push(b'"');
    }
    line.push(b'\n');
}

/// One object. Members without a value are left out.
pub(super) fn json(line: &mut Vec<u8>, done: &Done<'_>) {
    let Record { request, ending, spent, .. } = done.record;
    line.extend_from_slice(b"{\"time\":\"");
    line.extend_from_slice(done.second.iso.as_bytes());
    line.push(b'.');
    // The one in front keeps the zeros.
    let digits = &mut itoa::Buffer::new();
    line.extend_from_slice(&digits.format(1_000_000 + done.microseconds).as_bytes()[1..]);
    line.extend_from_slice(b"Z\",\"client\":\"");
    line.extend_from_slice(done.client);
    line.extend_from_slice(b"\",\"method\":\"");
    // A token (RFC 9110 §9.1): nothing to escape.
    line.extend_from_slice(request.method.as_str().as_bytes());
    line.extend_from_slice(b"\",\"host\":\"");
    string(line, host(&request.uri, &request.headers));
    line.extend_from_slice(b"\",\"path\":\"");
    string(line, target(&request.uri).as_bytes());
    line.extend_from_slice(b"\",\"protocol\":\"");
    line.extend_from_slice(protocol(request.version).as_bytes());
    line.extend_from_slice(b"\",\"status\":");
    number(line, u64::from(done.status()));
    line.extend_from_slice(b",\"bytes\":");
    number(line, done.sent);
    line.extend_from_slice(b",\"duration_us\":");
    microseconds(line, done.took);
    line.extend_from_slice(b",\"queue_us\":");
    microseconds(line, spent.queued);
    line.extend_from_slice(b",\"cpu_us\":");
    microseconds(line, spent.cpu);
    line.extend_from_slice(b",\"instructions\":");
    number(line, spent.usage.instructions);
    if let Some(tenant) = &done.record.tenant {
        line.extend_from_slice(b",\"tenant\":\"");
        string(line, tenant.as_bytes());
        line.push(b'"');
    }
    line.extend_from_slice(b",\"request_id\":\"");
    hexadecimal(line, done.record.id.0);
    line.push(b'"');
    if let Some(trace) = &done.origin.trace {
        line.extend_from_slice(b",\"trace_id\":\"");
        hexadecimal(line, (trace.trace.0 >> 64) as u64);
        hexadecimal(line, trace.trace.0 as u64);
        line.extend_from_slice(b"\",\"span_id\":\"");
        hexadecimal(line, trace.span.0);
        line.push(b'"');
    }
    if let Some(agent) = done.header(header::USER_AGENT) {
        line.extend_from_slice(b",\"user_agent\":\"");
        string(line, agent);
        line.push(b'"');
    }
    line.extend_from_slice(b",\"ending\":\"");
    line.extend_from_slice(ending.name().as_bytes());
    if let Some(why) = ending.detail() {
        line.extend_from_slice(b"\",\"why\":\"");
        line.extend_from_slice(why.as_bytes());
    }
    line.extend_from_slice(b"\"}\n");
}

fn number(line: &mut Vec<u8>, number: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn microseconds(line: &mut Vec<u8>, time: Duration) {
    number(line, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

/// All 16 digits of a number.
fn hexadecimal(line: &mut Vec<u8>, number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 16];
    for (two, byte) in text.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        two[0] = DIGITS[usize::from(byte >> 4)];
        two[1] = DIGITS[usize::from(byte & 15)];
    }
    line.extend_from_slice(&text);
}

/// Appends an address.
pub(super) fn address(line: &mut Vec<u8>, address: Option<IpAddr>) {
    match address {
        None => line.push(b'-'),
        Some(IpAddr::V4(address)) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    line.push(b'.');
                }
                number(line, u64::from(octet));
            }
        }
        // Writing to a Vec cannot fail.
        Some(IpAddr::V6(address)) => drop(write!(line, "{address}")),
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_11 => "HTTP/1.1",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/?",
    }
}

/// Path and query.
fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("*", |target| target.as_str())
}

fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> &'a [u8] {
    match uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => headers.get(header::HOST).map_or(b"", |host| host.as_bytes()),
    }
}
