//! What a guest may use, and what it used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a sandbox may run before it lets others on the same thread run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice(pub Duration);

/// The limits of one tenant. Each is enforced; what exceeds it becomes a [`crate::Fault`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Guest instructions for one exchange (riscv counts them exactly).
    pub instructions: u64,
    /// From the start of an exchange to its end.
    pub wall_time: Duration,
    /// From the start of the program to its first wait for a request.
    pub boot_time: Duration,
    /// Guest instructions until its first wait for a request.
    pub boot_instructions: u64,
    /// Guest memory that the program has written or mapped in its image, in bytes.
    pub memory: u64,
    /// Body bytes of one response.
    pub response_body: u64,
    /// From the head of a response until the client has taken all of it. The host holds it.
    pub response_time: Duration,
    /// Body bytes of one request.
    pub request_body: u64,
    /// Open descriptors.
    pub descriptors: u32,
    /// Threads alive at a time.
    pub threads: u32,
    /// Connections of one sandbox to the outside at a time.
    pub connections: u32,
    /// Connections of all sandboxes of the tenant to the outside at a time.
    pub connections_total: u32,
    /// Bytes of files in the scratch area.
    pub scratch: u64,
    /// Processor time to translate the program. What is not translated by then is interpreted.
    pub translate_time: Duration,
    /// Bytes of memory for its translated code. What has no room is interpreted.
    pub translate_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 2_000_000_000,
            wall_time: Duration::from_secs(10),
            boot_time: Duration::from_secs(10),
            boot_instructions: 10_000_000_000,
            memory: 64 << 20,
            response_body: 16 << 20,
            response_time: Duration::from_secs(60),
            request_body: 16 << 20,
            descriptors: 64,
            threads: 16,
            connections: 16,
            connections_total: 256,
            scratch: 8 << 20,
            translate_time: Duration::from_secs(10),
            translate_size: 64 << 20,
        }
    }
}

/// What one exchange used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Guest instructions.
    pub instructions: u64,
    /// Distinct pages of 4 KiB that were written.
    pub pages_written: u64,
    /// System calls and guest calls.
    pub calls: u64,
    /// How often the guest has come out of its virtual machine; 0 for an engine that has none.
    pub exits: u64,
    /// What went to the outside and came from there.
    pub traffic: Traffic,
}

/// What one exchange had to do with the outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that were refused because the tenant may not have them.
    pub denied: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that came.
    pub received: u64,
}
