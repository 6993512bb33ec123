//! Each place is claimed once, and each tenant can be reached.

use std::collections::HashMap;

use crate::{
    Authority,
    entry::{Answers, TenantEntry},
    problem::{Findings, Mistake, Placed},
};

/// Notes tenants that claim the same authority and path, and tenants that claim nothing.
pub(crate) fn check(tenants: &[TenantEntry], findings: &Findings) {
    let complete = findings.is_empty();
    // Without an authority: what `default` claims.
    let mut owners: HashMap<(Option<&Authority>, &str), &Placed<String>> = HashMap::new();
    for TenantEntry { name: own, answers, .. } in tenants {
        let Answers { authorities, default, path } = answers;
        let Placed { value: name, place: name_place } = own;
        let authorities = authorities.iter().map(|named| (Some(&named.value), named.place));
        let default = default.value.then_some((None, default.place));
        let mut places = authorities.chain(default).peekable();
        if places.peek().is_none() && complete {
            let what = format!("tenant `{name}` cannot be reached");
            let hint = format!(
                "set `authorities = [\"{name}.localhost\"]`, for example, or `default = true`",
            );
            findings.add(Mistake::new(*name_place, what).hint(hint));
        }
        for (authority, place) in places {
            let Some(owner) = owners.insert((authority, path), own) else { continue };
            let claimed = match authority {
                Some(authority) => format!("authority `{authority}`"),
                None => "`default`".to_owned(),
            };
            let what = if owner == own {
                format!("{claimed} with path `{path}` is there twice")
            } else if owner.value == *name {
                // The tenant is there twice, which has been said.
                continue;
            } else {
                format!("tenant `{}` already claims {claimed} with path `{path}`", owner.value)
            };
            findings.add(Mistake::new(place, what));
        }
    }
}
