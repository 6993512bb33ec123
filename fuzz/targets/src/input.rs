//! Values out of the bytes of an input.

use arbitrary::{Arbitrary, Unstructured};

/// A value from the input; zeros where it has ended.
pub(crate) fn next<T: for<'a> Arbitrary<'a> + Default>(input: &mut Unstructured<'_>) -> T {
    input.arbitrary().unwrap_or_default()
}
