//! How long a sandbox lasts.

/// What shares a sandbox before it is put back to its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// Nothing: each exchange starts from the snapshot.
    #[default]
    Request,
    /// The exchanges of a client's connection, one after the other. When it ends, or an exchange does
    /// not end with an answer, the next one starts from the snapshot.
    Connection,
    /// All exchanges of the tenant, one after the other, in one sandbox for the whole server.
    None,
}

/// Whose exchange is the next one in a sandbox that keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Anybody's.
    Anyone,
    /// One of the same connection of a client.
    SameClient,
}
