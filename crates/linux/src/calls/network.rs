//! Sockets: egress is denied.

use crate::{
    Errno, Host,
    kernel::{Args, CallResult, Kernel, fail},
    vfs::Node,
};

/// `socket`.
pub(crate) fn socket(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const INET: u32 = 2;
    const INET6: u32 = 10;
    match args[0] as u32 {
        INET | INET6 => fail(Errno::ACCESS),
        _ => fail(Errno::AFNOSUPPORT),
    }
}

/// What is done to sockets that have an address: no descriptor is one.
pub(crate) fn not_a_socket(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    match kernel.files.get(args[0])?.node {
        Node::Socket(_) => fail(Errno::OPNOTSUPP),
        _ => fail(Errno::NOTSOCK),
    }
}
