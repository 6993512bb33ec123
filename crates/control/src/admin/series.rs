//! Which tenants have series of their own, so that their number stays bounded.
//!
//! A counter must never go down. So what a tenant counted while it had no series of its own stays
//! with the others for good, and what it counted while it had one does not go over to them.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use sandtide_runtime::Totals;

/// A tenant takes another's place if it has had this many times its requests: not at each turn of
/// their fortunes.
const LEAD: u64 = 2;

/// The counts as they are shown.
#[derive(Debug)]
pub(super) struct Series {
    limit: usize,
    accounts: HashMap<Arc<str>, Account>,
    /// What tenants that are gone have counted in series of their own.
    gone: Totals,
}

#[derive(Debug, Default)]
struct Account {
    has_series: bool,
    /// All that was counted, as of the last time.
    total: Totals,
    /// What was counted while it had a series, and while it had none.
    own: Totals,
    among_others: Totals,
}

/// What is shown at one time.
#[derive(Debug)]
pub(super) struct Shown {
    /// Tenants with series, by name.
    pub(super) tenants: Vec<(Arc<str>, Totals)>,
    /// The sum of all others.
    pub(super) others: Totals,
}

impl Series {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, accounts: HashMap::new(), gone: Totals::default() }
    }

    /// Takes in what tenants have counted until now, all in all, and what was counted for none of
    /// them.
    pub(super) fn update(&mut self, tenants: &[(Arc<str>, Totals)], others: Totals) -> Shown {
        let now: HashMap<&str, &Totals> = tenants.iter().map(|(name, t)| (&**name, t)).collect();
        self.accounts.retain(|name, account| {
            let is_here = now.contains_key(&**name);
            if !is_here {
                self.gone = self.gone.plus(&account.own.with_gauges_of(&Totals::default()));
            }
            is_here
        });
        for (name, totals) in tenants {
            if totals.requests() > 0 && !self.accounts.contains_key(name) {
                self.accounts.insert(name.clone(), Account::default());
            }
        }
        self.choose(&now);
        let mut shown = Shown { tenants: Vec::new(), others: others.minus(&self.gone) };
        for (name, account) in &mut self.accounts {
            let Some(total) = now.get(&**name) else { continue };
            let added = total.minus(&account.total);
            account.total = **total;
            if account.has_series {
                account.own = account.own.plus(&added);
                shown.tenants.push((name.clone(), account.own.with_gauges_of(total)));
            } else {
                account.among_others = account.among_others.plus(&added);
                shown.others = shown.others.plus(&Totals::default().with_gauges_of(total));
            }
            let past = account.among_others.with_gauges_of(&Totals::default());
            shown.others = shown.others.plus(&past);
        }
        shown.tenants.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        shown
    }

    /// Gives the tenants with the most requests their series.
    fn choose(&mut self, now: &HashMap<&str, &Totals>) {
        let requests = |name: &str| now.get(name).map_or(0, |totals| totals.requests());
        let names = |has_series| {
            let named = self.accounts.iter().filter(move |(_, a)| a.has_series == has_series);
            let mut names: Vec<_> = named.map(|(name, _)| (requests(name), name.clone())).collect();
            names.sort_unstable_by_key(|(requests, name)| (Reverse(*requests), name.clone()));
            names
        };
        let (mut with, without) = (names(true), names(false));
        for (requests, name) in without {
            if with.len() < self.limit {
                // To the front: the end is for those who may lose their place.
                self.set(&name, true);
                with.insert(0, (requests, name));
                continue;
            }
            match with.last() {
                Some((fewest, last)) if requests > fewest.saturating_mul(LEAD) => {
                    self.set(&last.clone(), false);
                    self.set(&name, true);
                    with.pop();
                    with.insert(0, (requests, name));
                }
                _ => break,
            }
        }
    }

    fn set(&mut self, name: &str, has_series: bool) {
        if let Some(account) = self.accounts.get_mut(name) {
            account.has_series = has_series;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(tenants: &[(&str, u64)]) -> Vec<(Arc<str>, Totals)> {
        let totals = |fixed| Totals { fixed, idle: 1, ..Totals::default() };
        tenants.iter().map(|(name, fixed)| (Arc::from(*name), totals(*fixed))).collect()
    }

    /// Tenants with series and their requests, and those of all others.
    fn update(series: &mut Series, tenants: &[(&str, u64)], others: u64) -> (String, u64, u64) {
        let others = Totals { fixed: others, ..Totals::default() };
        let shown = series.update(&counted(tenants), others);
        let text = |(name, totals): &(Arc<str>, Totals)| format!("{name}={}", totals.fixed);
        let tenants: Vec<_> = shown.tenants.iter().map(text).collect();
        assert!(shown.tenants.iter().all(|(_, totals)| totals.idle == 1));
        (tenants.join(" "), shown.others.fixed, shown.others.idle)
    }

    #[test]
    fn those_with_the_most_requests_have_series() {
        let mut series = Series::new(2);
        let tenants = [("a", 1), ("b", 3), ("c", 2), ("none", 0)];
        assert_eq!(update(&mut series, &tenants, 4), ("b=3 c=2".into(), 5, 1));
    }

    #[test]
    fn no_counter_goes_down_when_series_change_hands() {
        let mut series = Series::new(1);
        assert_eq!(update(&mut series, &[("a", 10), ("b", 5)], 0), ("a=10".into(), 5, 1));
        // Not yet twice as many.
        assert_eq!(update(&mut series, &[("a", 10), ("b", 20)], 0), ("a=10".into(), 20, 1));
        assert_eq!(update(&mut series, &[("a", 11), ("b", 23)], 0), ("b=3".into(), 21, 1));
        assert_eq!(update(&mut series, &[("a", 12), ("b", 24)], 0), ("b=4".into(), 22, 1));
    }

    #[test]
    fn tenants_that_are_gone_are_counted_once() {
        let mut series = Series::new(1);
        assert_eq!(update(&mut series, &[("a", 10), ("b", 5)], 1), ("a=10".into(), 6, 1));
        // Their counts are among those of no tenant from then on.
        assert_eq!(update(&mut series, &[], 16), (String::new(), 6, 0));
        assert_eq!(update(&mut series, &[("a", 2)], 16), ("a=2".into(), 6, 0));
    }

    #[test]
    fn no_series_at_all() {
        assert_eq!(update(&mut Series::new(0), &[("a", 1)], 0), (String::new(), 1, 1));
    }
}
