//! `guest_calls`: see `fuzz/targets/src/guest_calls.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("guest_calls", data));
