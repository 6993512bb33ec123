//! A configuration beside the one before it: which tenants come, go and change.

use std::{collections::HashMap, sync::Arc};

use sandtide_config::{Config, Load, Serves, Tenant};
use sandtide_engine::Isolation;
use sandtide_runtime::{self as runtime, Answer, RouteError, Slot, SlotState, Table, TableError};

use crate::{
    entry::Entry,
    shared::Shared,
    table::{constant, runtime_tenant, tenant_log},
};

/// A tenant that is served.
pub(crate) struct Known {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) served: Arc<runtime::Tenant>,
    /// `None` for constants.
    pub(crate) entry: Option<Arc<Entry>>,
}

/// All of them, by name.
pub(crate) type Tenants = HashMap<Arc<str>, Known>;

/// What another configuration has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
}

/// Tenants that cannot be served together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// Two of them contradict each other.
    #[error(transparent)]
    Table(#[from] TableError),
    /// One has a route that means nothing.
    #[error(transparent)]
    Route(#[from] RouteError),
}

impl ConfigureError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Table(error) => error.hint(),
            Self::Route(error) => error.hint(),
        }
    }
}

/// Makes the routing table for a configuration. Tenants that stay as they are keep their
/// sandboxes; those that change keep their slot, and with it their program.
pub(crate) fn configure(
    shared: &Arc<Shared>,
    config: &Config,
    before: &Tenants,
) -> Result<(Table, Tenants, Changes), ConfigureError> {
    let mut changes = Changes::default();
    let mut tenants = Tenants::with_capacity(config.tenants.len());
    let mut order = Vec::with_capacity(config.tenants.len());
    for tenant in &config.tenants {
        let known = match before.get(tenant.name.as_str()) {
            Some(known) if *known.tenant == *tenant => Known {
                tenant: known.tenant.clone(),
                served: known.served.clone(),
                entry: known.entry.clone(),
            },
            Some(known) => {
                changes.changed.push(tenant.name.clone());
                make(shared, tenant, Some(known))?
            }
            None => {
                changes.added.push(tenant.name.clone());
                make(shared, tenant, None)?
            }
        };
        order.push(known.served.clone());
        tenants.insert(known.served.name.clone(), known);
    }
    let gone = before.keys().filter(|name| !tenants.contains_key(*name));
    changes.removed = gone.map(|name| name.to_string()).collect();
    changes.removed.sort_unstable();
    Ok((Table::build(order)?, tenants, changes))
}

fn make(
    shared: &Arc<Shared>,
    tenant: &Tenant,
    before: Option<&Known>,
) -> Result<Known, RouteError> {
    let tenant = Arc::new(tenant.clone());
    let log = match before {
        Some(known) if known.tenant.log == tenant.log => known.served.log.clone(),
        _ => tenant_log(&tenant),
    };
    let (answer, entry) = match &tenant.serves {
        Serves::Respond(respond) => (Answer::Fixed(constant(respond)), None),
        Serves::Program(_) | Serves::Application(_) => {
            let entry = match before.and_then(|known| known.entry.clone()) {
                Some(entry) => entry,
                None => {
                    let slot = Slot::new(shared.loader(&tenant.name));
                    Arc::new(Entry::new(tenant.clone(), slot, log.clone()))
                }
            };
            (Answer::Program(entry.slot.clone()), Some(entry))
        }
    };
    let served = Arc::new(runtime_tenant(&tenant, answer, log)?);
    Ok(Known { tenant, served, entry })
}

/// Tells the tenants' programs that the configuration serves now, and has those loaded that
/// need it.
pub(crate) fn settle(shared: &Shared, tenants: &Tenants, before: &Tenants) {
    for (name, known) in tenants {
        let Some(entry) = &known.entry else { continue };
        let old = before.get(name);
        if old.is_some_and(|old| Arc::ptr_eq(&old.tenant, &known.tenant)) {
            continue;
        }
        entry.configure(known.tenant.clone(), known.served.log.clone());
        let had_state = old.is_some_and(|old| old.tenant.isolation == Isolation::None);
        if known.tenant.isolation != Isolation::None && had_state {
            entry.slot.forget_state();
        }
        let is_due = known.tenant.load == Load::Start
            || matches!(entry.slot.status().state, SlotState::Failed | SlotState::Loaded);
        if is_due {
            entry.slot.begin_loading();
            shared.queue.push(entry);
        }
    }
}

/// The keys of `[server]` that are obeyed while the server runs.
const LIVE: [&str; 1] = ["watch"];

/// What differs between two configurations and cannot be changed while the server runs, in the
/// words of the configuration.
pub(crate) fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let server = old.server.differences(&new.server);
    let server = server.into_iter().filter(|key| !LIVE.contains(key));
    let tables = [
        ("tls", old.tls.is_some() != new.tls.is_some()),
        ("admin", old.admin != new.admin),
        ("access_log", old.access_log != new.access_log),
    ];
    let tables = tables.into_iter().filter_map(|(key, differs)| differs.then_some(key));
    server.map(|key| format!("server.{key}")).chain(tables.map(str::to_owned)).collect()
}
