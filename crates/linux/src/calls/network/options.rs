//! Endpoint options: what programs set is kept and told again. Time-outs are obeyed, and who shares a
//! port may; nothing else changes anything, as there is no network below.

use std::time::Duration;

use crate::{
    Errno, GuestMemory, Host, guest,
    kernel::{Args, CallResult, DONE, Kernel, UID, fail},
    objects::{Endpoint, Family, Setting, State},
};

const SOCKET: u32 = 1;
const IP: u32 = 0;
const TCP: u32 = 6;
const UDP: u32 = 17;
const IPV6: u32 = 41;

/// `SO_*`.
const TYPE: u32 = 3;
const ERROR: u32 = 4;
const SEND_BUFFER: u32 = 7;
const RECEIVE_BUFFER: u32 = 8;
const LINGER: u32 = 13;
const SHARE_PORT: u32 = 15;
const PEER_CREDENTIALS: u32 = 17;
/// `SO_RCVTIMEO`, `SO_SNDTIMEO`: a `struct timeval`.
const RECEIVE_LIMIT: u32 = 20;
const SEND_LIMIT: u32 = 21;
/// The same, under the numbers for 64-bit times.
const LIMITS_64: [(u32, u32); 2] = [(66, RECEIVE_LIMIT), (67, SEND_LIMIT)];
const IS_LISTENER: u32 = 30;
const PROTOCOL: u32 = 38;
const DOMAIN: u32 = 39;

/// `TCP_CONGESTION`: a name.
const CONGESTION: u32 = 13;

/// Options that can be set, of each level.
const SETTABLE: [(u32, &[u32]); 4] = [
    // Addresses, buffers, keep-alive, out-of-band data, priority, linger, credentials, low-water
    // marks, time-outs, time stamps, mark, processor, busy polling, time-outs again.
    (SOCKET, &[2, 6, 7, 8, 9, 10, 12, 13, 15, 16, 18, 19, 20, 21, 29, 36, 46, 49, 66, 67]),
    // Type of service, time to live, header options, errors, path discovery.
    (IP, &[1, 2, 8, 10, 11, 13]),
    // Delay, segments, cork, keep-alive, retries, linger, deferred accept, window, quick
    // acknowledgement, congestion, time-out, fast open, low-water mark.
    (TCP, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 18, 23, 25]),
    // Hops, errors, IPv6 only, packet information, class.
    (IPV6, &[16, 23, 25, 26, 49, 51, 67]),
];

impl Endpoint {
    /// The number that an option was set to; 0 if it was not.
    fn setting(&self, level: u32, name: u32) -> u32 {
        let found = self.settings.iter().find(|set| (set.level, set.name) == (level, name));
        let number = found.and_then(|set| set.value.first_chunk().copied());
        number.map_or(0, u32::from_le_bytes)
    }

    /// How long a call that receives, or accepts, waits at most.
    pub(super) fn receive_limit(&self) -> Option<Duration> {
        self.limit(RECEIVE_LIMIT)
    }

    /// How long a call that sends, or connects, waits at most.
    pub(super) fn send_limit(&self) -> Option<Duration> {
        self.limit(SEND_LIMIT)
    }

    fn limit(&self, name: u32) -> Option<Duration> {
        let set = self.settings.iter().find(|set| (set.level, set.name) == (SOCKET, name))?;
        duration(&set.value).ok().filter(|limit| !limit.is_zero())
    }

    /// Whether others may listen on its port.
    pub(super) fn shares_port(&self) -> bool {
        self.setting(SOCKET, SHARE_PORT) != 0
    }
}

/// The time-out in a `struct timeval`. Zero is for none, and what is negative for the shortest.
fn duration(value: &[u8; 16]) -> Result<Duration, Errno> {
    let (words, _) = value.as_chunks::<8>();
    let [seconds, microseconds] = [words[0], words[1]].map(i64::from_le_bytes);
    if !(0..1_000_000).contains(&microseconds) {
        return Err(Errno::DOM);
    }
    Ok(match u64::try_from(seconds) {
        Ok(seconds) => Duration::new(seconds, microseconds as u32 * 1000),
        Err(_) => Duration::from_nanos(1),
    })
}

/// An option's name under its first number.
fn known_as(level: u32, name: u32) -> u32 {
    let other = LIMITS_64.iter().find(|(other, _)| level == SOCKET && *other == name);
    other.map_or(name, |(_, name)| *name)
}

pub(super) fn setsockopt(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, level, name, address, length, _] = args;
    let (level, name, length) = (level as u32, name as u32, length as u32);
    let name = known_as(level, name);
    let index = kernel.endpoint_of(fd)?;
    let is_known = SETTABLE.iter().any(|(of, names)| *of == level && names.contains(&name));
    if !is_known || level == IPV6 && kernel.objects.endpoints.get(index)?.family != Family::V6 {
        return fail(Errno::NOPROTOOPT);
    }
    let mut value = [0; 16];
    let kept = (length as usize).min(value.len());
    if length < 4 && (level, name) != (TCP, CONGESTION) {
        return fail(Errno::INVAL);
    }
    value[..kept].copy_from_slice(host.memory.view(address, kept as u64)?);
    if level == SOCKET && matches!(name, RECEIVE_LIMIT | SEND_LIMIT) {
        if kept < value.len() {
            return fail(Errno::INVAL);
        }
        duration(&value)?;
    }
    let socket = kernel.objects.endpoints.change(index)?;
    socket.settings.retain(|set| (set.level, set.name) != (level, name));
    socket.settings.push(Setting { level, name, value, length: kept });
    DONE
}

pub(super) fn getsockopt(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, level, name, address, length, _] = args;
    let (level, name) = (level as u32, known_as(level as u32, name as u32));
    let index = kernel.endpoint_of(fd)?;
    if (level, name) == (SOCKET, ERROR) {
        let number = kernel.take_error(index)?.map_or(0, Errno::raw_os_error);
        return tell(host.memory, address, length, &number.to_le_bytes());
    }
    let socket = kernel.objects.endpoints.get(index)?;
    if let Some(set) = socket.settings.iter().find(|set| (set.level, set.name) == (level, name)) {
        return tell(host.memory, address, length, &set.value[..set.length]);
    }
    let number = match (level, name) {
        (SOCKET, TYPE) => 1 + u32::from(socket.datagram().is_some()),
        (SOCKET, SEND_BUFFER | RECEIVE_BUFFER) => 212_992,
        (SOCKET, IS_LISTENER) => u32::from(matches!(socket.state, State::Listening(_))),
        (SOCKET, PROTOCOL) => match (socket.family, socket.datagram()) {
            (Family::Unix, _) => 0,
            (_, Some(_)) => UDP,
            _ => TCP,
        },
        (SOCKET, DOMAIN) => u32::from(socket.family.number()),
        (SOCKET, PEER_CREDENTIALS) if socket.family == Family::Unix => {
            let credentials: Vec<u8> = [kernel.pid.known(), UID, UID]
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect();
            return tell(host.memory, address, length, &credentials);
        }
        (SOCKET, LINGER) => return tell(host.memory, address, length, &[0; 8]),
        (SOCKET, RECEIVE_LIMIT | SEND_LIMIT) => {
            return tell(host.memory, address, length, &[0; 16]);
        }
        _ if SETTABLE.iter().any(|(of, names)| *of == level && names.contains(&name)) => 0,
        _ => return fail(Errno::NOPROTOOPT),
    };
    tell(host.memory, address, length, &number.to_le_bytes())
}

/// Writes a value, cut to the length at `length`, and how long it became there.
fn tell(memory: &mut dyn GuestMemory, address: u64, length: u64, value: &[u8]) -> CallResult {
    let room = guest::read_u32(memory, length)?;
    if room > i32::MAX as u32 {
        return fail(Errno::INVAL);
    }
    let cut = value.len().min(room as usize);
    guest::write(memory, address, &value[..cut])?;
    guest::write_u32(memory, length, cut as u32)?;
    DONE
}
