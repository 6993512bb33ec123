//! `config`: see `fuzz/targets/src/config.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("config", data));
