//! `system_calls`: see `fuzz/targets/src/system_calls.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("system_calls", data));
