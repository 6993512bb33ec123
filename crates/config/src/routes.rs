//! Each place is claimed once, and each tenant can be reached.

use std::collections::HashMap;

use crate::{Authority, problem::Findings, problem::Mistake, tenant::Claim};

/// Notes tenants that claim the same authority and path, and tenants that claim nothing.
pub(crate) fn check(claims: &[Claim], findings: &Findings) {
    // Without an authority: what `default` claims.
    let mut owners: HashMap<(Option<&Authority>, &str), &str> = HashMap::new();
    for Claim { tenant, name_span, authority_spans, default_span } in claims {
        let authorities = tenant.authorities.iter().map(Some).zip(authority_spans);
        let default = tenant.default.then_some((None, default_span));
        let mut places = authorities.chain(default).peekable();
        if places.peek().is_none() && findings.is_empty() {
            let what = format!("tenant `{}` cannot be reached", tenant.name);
            let hint = format!(
                "set `authorities = [\"{}.localhost\"]`, for example, or `default = true`",
                tenant.name
            );
            findings.add(Mistake::new(name_span.clone(), what).hint(hint));
        }
        for (authority, span) in places {
            let Some(owner) = owners.insert((authority, &tenant.path), &tenant.name) else {
                continue;
            };
            let place = match authority {
                Some(authority) => format!("authority `{authority}`"),
                None => "`default`".to_owned(),
            };
            let path = &tenant.path;
            let what = if owner == tenant.name {
                format!("{place} with path `{path}` is there twice")
            } else {
                format!("tenant `{owner}` already claims {place} with path `{path}`")
            };
            findings.add(Mistake::new(span.clone(), what));
        }
    }
}
