//! The `sandtide` binary.
fn main() {}
