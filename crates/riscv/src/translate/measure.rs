//! Translations without some of their checks, to measure what those cost.
//!
//! Only with this crate's feature `measure`, which no server is built with: such a translation
//! does not hold what the engine promises. Without the feature nothing is ever left out, and that is
//! a constant.

/// A part of translated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "measure"), allow(dead_code, reason = "nothing is left out"))]
pub enum Part {
    /// Counting instructions, and looking whether the budget lasts. One comparison at the start of
    /// a function stays: it also tells where the function is entered.
    Counting = 1,
    /// Looking in the page table, in front of stores, whether they are allowed and the page is
    /// known to be written.
    StoreChecks = 2,
}

#[cfg(feature = "measure")]
static LEFT_OUT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Leaves a part out of all translations that are made from here on, in this process.
#[cfg(feature = "measure")]
pub fn leave_out(part: Part) {
    LEFT_OUT.fetch_or(part as u8, std::sync::atomic::Ordering::Relaxed);
}

/// Whether translated code has a part.
#[cfg(feature = "measure")]
pub(super) fn has(part: Part) -> bool {
    LEFT_OUT.load(std::sync::atomic::Ordering::Relaxed) & part as u8 == 0
}

/// Whether translated code has a part.
#[cfg(not(feature = "measure"))]
pub(super) const fn has(_: Part) -> bool {
    true
}
