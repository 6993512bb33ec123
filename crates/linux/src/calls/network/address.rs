//! Endpoint addresses in guest memory (`struct sockaddr` and its kin).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{
    Errno, GuestMemory, guest,
    kernel::Stop,
    objects::{Address, Endpoint, Family},
};

/// The longest address: `struct sockaddr_storage`.
const LONGEST: u64 = 128;

/// The longest address of a Unix socket, with its family.
const LONGEST_UNIX: usize = 110;

/// The addresses that a guest has, of networks that are nobody's (RFC 1918, RFC 4193).
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// The port from which a client seems to come.
const CLIENT_PORT: u16 = 40_000;

/// Reads an address that a guest gives.
pub(super) fn read_address(
    memory: &dyn GuestMemory,
    address: u64,
    length: u64,
) -> Result<Address, Stop> {
    let length = length & 0xffff_ffff;
    if !(2..=LONGEST).contains(&length) {
        return Err(Errno::INVAL.into());
    }
    let bytes = memory.view(address, length)?;
    let family = Family::from_number(u16::from_le_bytes([bytes[0], bytes[1]]));
    let inet = bytes.first_chunk::<8>();
    let inet6 = bytes.first_chunk::<24>();
    Ok(match (family, inet, inet6) {
        (Some(Family::V4), Some([_, _, high, low, ip @ ..]), _) => {
            Address::V4(Ipv4Addr::from(*ip), u16::from_be_bytes([*high, *low]))
        }
        (Some(Family::V6), _, Some([_, _, high, low, _, _, _, _, ip @ ..])) => {
            Address::V6(Ipv6Addr::from(*ip), u16::from_be_bytes([*high, *low]))
        }
        (Some(Family::Unix), ..) if bytes.len() <= LONGEST_UNIX => {
            let name = &bytes[2..];
            let end = match name.first() {
                // The abstract names may have any bytes.
                Some(0) => name.len(),
                _ => name.iter().position(|byte| *byte == 0).unwrap_or(name.len()),
            };
            Address::Unix(name[..end].to_vec())
        }
        (None, ..) => return Err(Errno::AFNOSUPPORT.into()),
        _ => return Err(Errno::INVAL.into()),
    })
}

/// Writes an address, cut to the length at `length`, and its own length there. Nowhere, if
/// `address` is 0.
pub(super) fn write_address(
    memory: &mut dyn GuestMemory,
    address: u64,
    length: u64,
    what: &Address,
) -> Result<(), Stop> {
    if address == 0 {
        return Ok(());
    }
    let room = guest::read_u32(memory, length)?;
    if room > i32::MAX as u32 {
        return Err(Errno::INVAL.into());
    }
    let bytes = what.bytes();
    let cut = bytes.len().min(room as usize);
    guest::write(memory, address, &bytes[..cut])?;
    guest::write_u32(memory, length, bytes.len() as u32)?;
    Ok(())
}

impl Address {
    pub(super) fn family(&self) -> Family {
        match self {
            Self::V4(..) => Family::V4,
            Self::V6(..) => Family::V6,
            Self::Unix(_) => Family::Unix,
        }
    }

    /// Its IP address; a mapped IPv4 address (`::ffff:…`) is the IPv4 address.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::V4(ip, _) => Some(IpAddr::V4(*ip)),
            Self::V6(ip, _) => Some(IpAddr::V6(*ip).to_canonical()),
            Self::Unix(_) => None,
        }
    }

    /// Where it is outside.
    pub(crate) fn outside(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.ip()?, self.port()?))
    }

    /// The address that a guest seems to have where it goes out to this one.
    pub(super) fn own_towards(&self) -> Self {
        let is_loopback = self.ip().is_some_and(|ip| ip.is_loopback());
        let own = match self {
            _ if is_loopback => return self.with_port(0),
            Self::V4(..) => return Self::V4(OWN_V4, 0),
            Self::V6(ip, _) if ip.to_ipv4_mapped().is_some() => OWN_V4.to_ipv6_mapped(),
            Self::V6(..) => OWN_V6,
            Self::Unix(_) => return Self::Unix(Vec::new()),
        };
        Self::V6(own, 0)
    }

    /// Where a connection to it goes: the unspecified address is this machine.
    pub(super) fn or_loopback(self) -> Self {
        match self {
            Self::V4(ip, port) if ip.is_unspecified() => Self::V4(Ipv4Addr::LOCALHOST, port),
            Self::V6(ip, port) if ip.is_unspecified() => Self::V6(Ipv6Addr::LOCALHOST, port),
            Self::V6(ip, port) if ip == Ipv4Addr::UNSPECIFIED.to_ipv6_mapped() => {
                Self::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port)
            }
            address => address,
        }
    }

    /// The same address with another port.
    pub(super) fn with_port(&self, port: u16) -> Self {
        match self {
            Self::V4(ip, _) => Self::V4(*ip, port),
            Self::V6(ip, _) => Self::V6(*ip, port),
            Self::Unix(_) => Self::Unix(Vec::new()),
        }
    }

    /// The same address for a socket of another family.
    pub(super) fn seen_by(self, family: Family) -> Self {
        match (self, family) {
            (Self::V4(ip, port), Family::V6) => Self::V6(ip.to_ipv6_mapped(), port),
            (Self::V6(ip, port), Family::V4) => {
                Self::V4(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::LOCALHOST), port)
            }
            (address, _) => address,
        }
    }

    /// As a guest reads it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let family = self.family().number().to_le_bytes();
        match self {
            Self::V4(ip, port) => {
                [&family[..], &port.to_be_bytes(), &ip.octets(), &[0; 8]].concat()
            }
            Self::V6(ip, port) => {
                [&family[..], &port.to_be_bytes(), &[0; 4], &ip.octets(), &[0; 4]].concat()
            }
            Self::Unix(name) => {
                let end: &[u8] = if name.is_empty() || name[0] == 0 { &[] } else { &[0] };
                [&family[..], name, end].concat()
            }
        }
    }

    /// With this port, and the address by which a client reaches who listens there.
    fn reached(&self, own_port: Option<u16>) -> Self {
        match self {
            Self::V4(ip, port) => {
                let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST } else { *ip };
                Self::V4(ip, own_port.unwrap_or(*port))
            }
            Self::V6(ip, port) => {
                let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
                let ip = if ip.is_unspecified() { mapped } else { *ip };
                Self::V6(ip, own_port.unwrap_or(*port))
            }
            Self::Unix(name) if own_port.is_none() => Self::Unix(name.clone()),
            Self::Unix(_) => Self::Unix(Vec::new()),
        }
    }
}

impl Endpoint {
    /// The address that it has.
    pub(super) fn name(&self) -> Address {
        let local = self.local.clone().unwrap_or_else(|| self.family.unspecified());
        if self.connection().is_some() { local.reached(None) } else { local }
    }

    /// The address of a connection's other end: the host is as a client on this machine.
    pub(super) fn peer(&self) -> Address {
        if let Some(remote) = &self.remote {
            return remote.clone();
        }
        let local = self.local.clone().unwrap_or_else(|| self.family.unspecified());
        match local.reached(Some(CLIENT_PORT)) {
            Address::V4(_, port) => Address::V4(Ipv4Addr::LOCALHOST, port),
            address => address,
        }
    }
}
