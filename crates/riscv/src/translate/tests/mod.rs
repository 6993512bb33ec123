//! Tests of the translator.

mod lockstep;
mod speed;

use sandtide_memory::Space;

use super::{Bounds, Translation};
use crate::isa::{Code, tests::CODE};

/// Translates test code.
fn translated(space: &Space, code: &Code, symbols: &[u64]) -> Translation {
    let symbols = symbols.iter().copied();
    let translation =
        Translation::new(space, code, u64::from(CODE), symbols, &Bounds::default());
    translation.unwrap().0
}
