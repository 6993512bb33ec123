//! The system calls, by subject.

pub(crate) mod descriptors;
pub(crate) mod epoll;
mod exchange;
pub(crate) mod files;
pub(crate) mod futex;
pub(crate) mod identity;
pub(crate) mod io;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod metadata;
pub(crate) mod network;
pub(crate) mod poll;
pub(crate) mod resources;
pub(crate) mod robust;
pub(crate) mod signalfd;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod threads;
pub(crate) mod time;
pub(crate) mod timers;
