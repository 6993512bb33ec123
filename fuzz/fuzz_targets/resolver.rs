//! `resolver`: see `fuzz/targets/src/resolver.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("resolver", data));
