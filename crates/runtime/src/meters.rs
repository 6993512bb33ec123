//! The counters of all tenants on all reactors, for the control plane.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::counters::{Count, Counters, Totals};

/// Where counters are found. Reactors come here only when they meet a tenant for the first time.
#[derive(Debug)]
pub(crate) struct Meters {
    start: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the tenant's name, with the reactor's index. A name keeps its counters over reloads.
    tenants: HashMap<Arc<str>, Vec<(usize, Arc<Counters>)>>,
    /// What tenants that are gone have counted, by reactor.
    gone: HashMap<usize, Totals>,
    vitals: Vec<Arc<Vitals>>,
}

/// What a reactor says about itself.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    index: usize,
    /// When its event loop last turned, in milliseconds since the start of the runtime.
    beat: Count,
    /// Counts of requests that no tenant answers.
    pub(crate) nobody: Counters,
}

impl Meters {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of a tenant on reactor `index`.
    pub(crate) fn counters(&self, tenant: &Arc<str>, index: usize) -> Arc<Counters> {
        let mut inner = self.inner();
        let of_tenant = inner.tenants.entry(tenant.clone()).or_default();
        if let Some((_, counters)) = of_tenant.iter().find(|(reactor, _)| *reactor == index) {
            return counters.clone();
        }
        let counters = Arc::<Counters>::default();
        of_tenant.push((index, counters.clone()));
        counters
    }

    /// A new reactor's.
    pub(crate) fn vitals(&self, index: usize) -> Arc<Vitals> {
        let vitals = Arc::new(Vitals { index, ..Vitals::default() });
        self.beat(&vitals);
        self.inner().vitals.push(vitals.clone());
        vitals
    }

    /// Notes that the reactor's event loop turns.
    pub(crate) fn beat(&self, vitals: &Vitals) {
        let now = self.start.elapsed().as_millis();
        vitals.beat.set(u64::try_from(now).unwrap_or(u64::MAX));
    }

    /// How long ago each reactor's event loop turned for the last time.
    pub(crate) fn silences(&self) -> Vec<(usize, Duration)> {
        let now = self.start.elapsed();
        let silence = |v: &Arc<Vitals>| now.saturating_sub(Duration::from_millis(v.beat.get()));
        self.inner().vitals.iter().map(|v| (v.index, silence(v))).collect()
    }

    /// What each tenant's exchanges came to, on all reactors.
    pub(crate) fn tenants(&self) -> Vec<(Arc<str>, Totals)> {
        // Summed up without the lock, so that no reactor waits for it.
        let tenants: Vec<_> =
            self.inner().tenants.iter().map(|(name, of)| (name.clone(), of.clone())).collect();
        let sum = |of: Vec<(usize, Arc<Counters>)>| {
            of.iter().fold(Totals::default(), |sum, (_, counters)| sum.plus(&counters.totals()))
        };
        tenants.into_iter().map(|(name, of)| (name, sum(of))).collect()
    }

    /// What was counted for no tenant, or for tenants that are gone.
    pub(crate) fn others(&self) -> Totals {
        let inner = self.inner();
        let gone = inner.gone.values().fold(Totals::default(), Totals::plus);
        inner.vitals.iter().fold(gone, |sum, vitals| sum.plus(&vitals.nobody.totals()))
    }

    /// What reactor `index` has counted.
    pub(crate) fn of_reactor(&self, index: usize) -> Totals {
        let inner = self.inner();
        let gone = inner.gone.get(&index).copied().unwrap_or_default();
        let nobody = inner.vitals.iter().filter(|v| v.index == index).map(|v| v.nobody.totals());
        let tenants = inner.tenants.values().flatten().filter(|(reactor, _)| *reactor == index);
        nobody.chain(tenants.map(|(_, c)| c.totals())).fold(gone, |sum, own| sum.plus(&own))
    }

    /// Forgets the names of tenants that are configured no more and that no reactor works for.
    /// What they counted is kept in [`Self::others`].
    pub(crate) fn forget(&self, is_configured: impl Fn(&str) -> bool) {
        let mut inner = self.inner();
        let Inner { tenants, gone, .. } = &mut *inner;
        tenants.retain(|name, of| {
            let in_use = of.iter().any(|(_, counters)| Arc::strong_count(counters) > 1);
            if in_use || is_configured(name) {
                return true;
            }
            for (index, counters) in of {
                let sum = gone.entry(*index).or_default();
                *sum = sum.plus(&counters.totals());
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_still_counts() {
        let meters = Meters::new();
        let (shop, cart): (Arc<str>, Arc<str>) = ("shop".into(), "cart".into());
        let held = meters.counters(&shop, 0);
        held.fixed.add(2);
        meters.counters(&shop, 1).fixed.add(3);
        meters.counters(&cart, 1).fixed.add(5);
        assert!(Arc::ptr_eq(&held, &meters.counters(&shop, 0)), "the name keeps its counters");

        meters.forget(|_| false);
        let tenants = meters.tenants();
        assert_eq!(tenants.len(), 1, "a reactor works for `shop`: {tenants:?}");
        assert_eq!((tenants[0].1.fixed, meters.others().fixed), (5, 5));

        drop(held);
        meters.forget(|name| name == "shop");
        assert_eq!(meters.tenants().len(), 1);
        meters.forget(|_| false);
        assert_eq!((meters.tenants().len(), meters.others().fixed), (0, 10));
        assert_eq!((meters.of_reactor(0).fixed, meters.of_reactor(1).fixed), (2, 8));
    }
}
