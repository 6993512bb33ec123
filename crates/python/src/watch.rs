//! A descriptor that the reactor watches.
#![allow(unsafe_code)] // Tokio asks for a promise about the descriptor that an owned one keeps.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Watches a descriptor for input. To be called in the reactor's event loop.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor that `as_raw_fd` of an `OwnedFd` returns is always the same, and it is
    // open until the `OwnedFd` is dropped, which the `AsyncFd` owns.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|refused| refused.into_parts().1)
}
