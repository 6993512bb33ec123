//! For tests: what to do where there is no KVM.

use crate::Unavailable;

/// Says loudly that a test cannot run.
///
/// # Panics
/// If `SANDTIDE_REQUIRE_KVM` says that there is a KVM.
pub(crate) fn skip(reason: &Unavailable) {
    assert!(
        std::env::var_os("SANDTIDE_REQUIRE_KVM").is_none(),
        "{reason}\nhint: {}",
        reason.hint()
    );
    eprintln!("SKIPPED: {reason}");
}
