//! `instructions`: see `fuzz/targets/src/instructions.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("instructions", data));
