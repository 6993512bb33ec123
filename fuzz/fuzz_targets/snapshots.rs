//! `snapshots`: see `fuzz/targets/src/snapshots.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("snapshots", data));
