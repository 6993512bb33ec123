//! `reset`: see `fuzz/targets/src/reset.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("reset", data));
