//! The routing table: all tenants, and who answers where.

use std::{collections::HashSet, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    route::Route,
    router::{Conflict, Router},
    tenant::Tenant,
};

/// All tenants and the way to them. Immutable; the control plane builds a new one and swaps it in.
#[derive(Debug, Default)]
pub struct Table {
    pub(crate) tenants: Vec<Arc<Tenant>>,
    pub(crate) router: Router,
    /// Where a tenant stands in `tenants`, by its address.
    indices: FxHashMap<usize, usize>,
}

/// Tenants that cannot live in one table.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Two tenants answer at the same place.
    #[error("tenants `{first}` and `{second}` both answer at `{route}`")]
    Conflict {
        /// The place.
        route: Route,
        /// The one tenant.
        first: Arc<str>,
        /// The other tenant.
        second: Arc<str>,
    },
    /// One tenant has a route twice.
    #[error("tenant `{tenant}` has the route `{route}` twice")]
    Twice {
        /// The route.
        route: Route,
        /// The tenant.
        tenant: Arc<str>,
    },
    /// Two tenants have the same name.
    #[error("two tenants have the name `{0}`")]
    Name(Arc<str>),
}

impl TableError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "give one of them another authority or path prefix",
            Self::Twice { .. } => "remove one; names are compared without case and final dot",
            Self::Name(_) => "rename one of them",
        }
    }
}

impl Table {
    /// Builds the table. A tenant without routes is legal: it can be called, but not reached.
    pub fn build(tenants: impl IntoIterator<Item = Arc<Tenant>>) -> Result<Self, TableError> {
        let tenants: Vec<_> = tenants.into_iter().collect();
        let mut names = HashSet::new();
        if let Some(twice) = tenants.iter().find(|tenant| !names.insert(&tenant.name)) {
            return Err(TableError::Name(twice.name.clone()));
        }
        let routes = tenants
            .iter()
            .enumerate()
            .flat_map(|(index, tenant)| tenant.routes.iter().map(move |r| (r.clone(), index)));
        let router = Router::build(routes).map_err(|Conflict { route, first, second }| {
            if first == second {
                TableError::Twice { route, tenant: tenants[first].name.clone() }
            } else {
                let (first, second) = (tenants[first].name.clone(), tenants[second].name.clone());
                TableError::Conflict { route, first, second }
            }
        })?;
        let addresses = tenants.iter().map(|tenant| Arc::as_ptr(tenant).addr());
        let indices = addresses.enumerate().map(|(index, address)| (address, index)).collect();
        Ok(Self { tenants, router, indices })
    }

    /// Where this very tenant stands in the table, if it does.
    pub(crate) fn index_of(&self, tenant: &Arc<Tenant>) -> Option<usize> {
        self.indices.get(&Arc::as_ptr(tenant).addr()).copied()
    }

    /// The tenants, in the order they were given.
    pub fn tenants(&self) -> &[Arc<Tenant>] {
        &self.tenants
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, FixedResponse};

    fn tenant(name: &str, authority: &str) -> Arc<Tenant> {
        let routes = vec![Route::new(authority, "/").unwrap()];
        Arc::new(Tenant::new(name, routes, Answer::Fixed(FixedResponse::text("x"))))
    }

    #[test]
    fn conflicts_name_both_tenants() {
        let error = Table::build([tenant("a", "x.y"), tenant("b", "X.Y.")]).unwrap_err();
        assert_eq!(error.to_string(), "tenants `a` and `b` both answer at `x.y/`");
        let error = Table::build([tenant("a", "x.y"), tenant("a", "z")]).unwrap_err();
        assert_eq!(error.to_string(), "two tenants have the name `a`");
    }
}
