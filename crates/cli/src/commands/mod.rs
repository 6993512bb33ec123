//! The commands, one file each.

pub mod build;
pub mod call;
pub mod check;
pub mod run;
pub mod schema;
pub mod serve;
pub mod snapshot;

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Serve tenants over HTTP.
    Serve(serve::Args),
    /// Run a program to its end in a sandbox.
    Run(run::Args),
    /// Make one request to a tenant, without a server.
    Call(call::Args),
    /// Check a configuration, load every program in it and read every certificate.
    Check(check::Args),
    /// Keep a program's snapshot on disk, for a start that needs no boot.
    Snapshot(snapshot::Args),
    /// Print the JSON Schema of a configuration file.
    Schema(schema::Args),
    /// Compile a source file into a program.
    Build(build::Args),
}
