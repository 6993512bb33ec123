//! `connect`: to the guest itself, or to the outside as far as the host allows.

use sandtide_engine::NetworkError;

use super::address::read_address;
use crate::{
    Errno, Host,
    files::flags,
    kernel::{Args, CallResult, DONE, Kernel, fail},
    objects::{Address, Family, State},
    outside::errno,
    readiness::Source,
};

/// The shortest IPv6 address, without its scope.
const SHORTEST_V6: u32 = 24;

pub(crate) fn connect(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let index = kernel.endpoint_of(args[0])?;
    if kernel.objects.endpoints.get(index)?.datagram().is_some() {
        return super::datagram::connect(kernel, host, index, args);
    }
    let address = read_address(host.memory, args[1], args[2])?;
    let waits = kernel.files.get(args[0])?.flags & flags::NONBLOCK == 0;
    let socket = kernel.objects.endpoints.get(index)?;
    match &socket.state {
        State::Fresh => {}
        State::Connecting(_) if waits => return kernel.wait_for_link(index),
        State::Connecting(_) => return fail(Errno::ALREADY),
        State::Connected(connection) if connection.is_news => {
            if let Some(connection) = kernel.objects.endpoints.change(index)?.connection_mut() {
                connection.is_news = false;
            }
            return DONE;
        }
        _ => return fail(Errno::ISCONN),
    }
    if let Some(errno) = kernel.take_error(index)? {
        return fail(errno);
    }
    let family = kernel.objects.endpoints.get(index)?.family;
    if family != address.family() {
        let is_short = family == Family::V6 && (args[2] as u32) < SHORTEST_V6;
        return fail(if is_short { Errno::INVAL } else { Errno::AFNOSUPPORT });
    }
    let address = address.or_loopback();
    match kernel.own_listener(&address) {
        Some(listener) => kernel.connect_own(index, listener, address),
        None => kernel.connect_outside(index, address, waits),
    }
}

impl Kernel {
    fn connect_outside(&mut self, index: usize, address: Address, waits: bool) -> CallResult {
        let Some(to) = address.outside() else { return fail(self.unix_failure(&address)) };
        let begun = match &self.fixed.network {
            None => Err(NetworkError::Denied),
            Some(_) if self.outside.links() >= self.fixed.limits.connections as usize => {
                Err(NetworkError::TooMany)
            }
            Some(network) => network.connect(to),
        };
        let link = begun.map_err(|error| {
            self.outside.traffic.denied += u64::from(error == NetworkError::Denied);
            errno(error, Some(to))
        })?;
        let local = self.free_port(&address.own_towards())?;
        let id = self.outside.add(index, link);
        let socket = self.objects.endpoints.change(index)?;
        socket.state = State::Connecting(id);
        socket.local.get_or_insert(local);
        socket.remote = Some(address);
        // The host looks at it at once.
        self.output = true;
        if waits { self.wait_for_link(index) } else { fail(Errno::INPROGRESS) }
    }

    /// Waits until there is a connection or none.
    fn wait_for_link(&mut self, index: usize) -> CallResult {
        let limit = self.objects.endpoints.get(index)?.send_limit();
        Ok(self.wait_at_most(Source::Endpoint(index), limit).ok_or(Errno::INPROGRESS)?)
    }
}
