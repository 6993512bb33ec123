//! `translation`: see `fuzz/targets/src/translation.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("translation", data));
