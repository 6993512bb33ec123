//! The top of a configuration file, and of one that it includes.

use crate::{
    AccessLog, Admin, Server,
    entry::{GroupEntry, TenantEntry},
    kind::{array, layer, named, optional, placed, string, table},
    problem::Placed,
    reader::Reader,
    section::{Section as _, section},
    shared::{Shared, SharedLayer},
    tls::TlsKeys,
};

section! {
    /// The configuration file.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Root / RootLayer {
        /// other files with tenants and groups, by name or by a pattern such as `"tenants.d/*.toml"`
        include: Vec<Placed<String>> = Vec::new(), array(placed(string()), ("path", "paths"));
        /// what the operator sets
        server: Server = Server::default(), table();
        /// certificates, for listeners with `tls = true`
        tls: Option<TlsKeys> = None, optional(table(), "no TLS");
        /// a listener for the operator: metrics and health
        admin: Option<Placed<Admin>> = None, optional(placed(table()), "no such listener");
        /// a line for each exchange
        access_log: Option<AccessLog> = None, optional(table(), "no such log");
        /// what holds for every tenant that does not say otherwise
        defaults: SharedLayer = SharedLayer::default(), layer::<Shared>();
        /// what several tenants have in common, one table for each group
        groups: Vec<GroupEntry> = Vec::new(), named();
        /// the tenants, one table for each
        tenants: Vec<TenantEntry> = Vec::new(), named();
    }
}

section! {
    /// A file that another includes.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Included / IncludedLayer {
        /// as in the including file
        groups: Vec<GroupEntry> = Vec::new(), named();
        /// as in the including file
        tenants: Vec<TenantEntry> = Vec::new(), named();
    }
}

impl Root {
    pub fn of(mut table: Reader<'_>) -> Self {
        let root = Self::resolve(Self::read(&mut table));
        table.finish();
        root
    }
}

impl Included {
    pub fn of(mut table: Reader<'_>) -> Self {
        let included = Self::resolve(Self::read(&mut table));
        for key in Root::names() {
            let what = "cannot stand in a file that another includes";
            table.refuse(key, what, "move it to the including file");
        }
        table.finish();
        included
    }
}
