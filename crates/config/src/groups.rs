//! Groups: what a tenant or a group does not say is taken from the group that it names.

use std::collections::HashMap;

use crate::{
    entry::GroupEntry,
    problem::{Findings, Mistake, Placed},
    reader::suggest,
    section::Section as _,
    shared::{Shared, SharedLayer},
};

/// All groups, each with what it inherits; under them, `[defaults]`.
pub(crate) struct Groups {
    resolved: HashMap<String, SharedLayer>,
    defaults: SharedLayer,
    /// Whether a group that is not there does not exist; else its file could not be read.
    complete: bool,
}

impl Groups {
    /// Follows each group to its parents. Cycles and groups that do not exist are noted.
    pub fn new(
        entries: Vec<GroupEntry>,
        defaults: SharedLayer,
        complete: bool,
        findings: &Findings,
    ) -> Self {
        let mut groups = Self { resolved: HashMap::new(), defaults, complete };
        let mut names: Vec<_> = entries.iter().map(|group| group.name.value.clone()).collect();
        names.sort();
        let mut unresolved: HashMap<String, GroupEntry> = HashMap::new();
        for entry in entries {
            unresolved.entry(entry.name.value.clone()).or_insert(entry);
        }
        for name in &names {
            groups.resolve(name, &mut unresolved, &names, findings);
        }
        groups
    }

    /// What a table has that names this group; [`Groups::new`] has noted those that do not exist.
    pub fn base(&self, group: Option<&str>) -> &SharedLayer {
        group.and_then(|name| self.resolved.get(name)).unwrap_or(&self.defaults)
    }

    /// Notes a group that a tenant names and that does not exist.
    pub fn check(&self, group: &Placed<String>, findings: &Findings) {
        if !self.resolved.contains_key(&group.value) {
            let names: Vec<_> = self.resolved.keys().map(String::as_str).collect();
            self.unknown(group, &names, findings);
        }
    }

    fn unknown(&self, group: &Placed<String>, names: &[&str], findings: &Findings) {
        if self.complete {
            let Placed { value: name, place } = group;
            let mistake = Mistake::new(*place, format!("`group`: there is no group `{name}`"));
            findings.add(mistake.hint(match names {
                [] => format!("add it: `[groups.{name}]`"),
                names => suggest(name, names),
            }));
        }
    }

    /// Goes up from a group until it comes to one that is resolved, and back down. A group is
    /// taken out of `unresolved` on the way up, so that each is visited once.
    fn resolve(
        &mut self,
        name: &str,
        unresolved: &mut HashMap<String, GroupEntry>,
        names: &[String],
        findings: &Findings,
    ) {
        let mut chain: Vec<GroupEntry> = Vec::new();
        let mut next = unresolved.remove(name);
        while let Some(entry) = next.take() {
            if let Some(parent) = &entry.group {
                next = unresolved.remove(&parent.value);
            }
            chain.push(entry);
        }
        let Some(last) = chain.last() else { return };
        if let Some(parent) = &last.group
            && !self.resolved.contains_key(&parent.value)
        {
            match chain.iter().position(|entry| entry.name.value == parent.value) {
                Some(start) => findings.add(cycle(&chain[start..])),
                None => {
                    let others = names.iter().filter(|name| **name != last.name.value);
                    let others: Vec<_> = others.map(String::as_str).collect();
                    self.unknown(parent, &others, findings);
                }
            }
        }
        for mut entry in chain.into_iter().rev() {
            let parent = entry.group.as_ref().map(|parent| parent.value.as_str());
            Shared::inherit(&mut entry.shared, self.base(parent));
            self.resolved.insert(entry.name.value, entry.shared);
        }
    }
}

/// A mistake about groups that inherit from each other in a circle.
fn cycle(groups: &[GroupEntry]) -> Mistake {
    let first = (0..groups.len()).min_by_key(|&index| groups[index].name.place).unwrap_or_default();
    let (name, place) = (&groups[first].name.value, groups[first].name.place);
    let place = groups[first].group.as_ref().map_or(place, |group| group.place);
    let way = groups[first..].iter().chain(&groups[..first]).map(|group| &group.name.value);
    let way: Vec<_> = way.chain([name]).map(|name| format!("`{name}`")).collect();
    let way = if groups.len() > 1 { format!(": {}", way.join(" → ")) } else { String::new() };
    let mistake = Mistake::new(place, format!("group `{name}` inherits from itself{way}"));
    mistake.hint(if groups.len() > 1 {
        "take `group` out of one of them"
    } else {
        "leave `group` out"
    })
}
