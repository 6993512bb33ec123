//! `responses`: see `fuzz/targets/src/responses.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("responses", data));
