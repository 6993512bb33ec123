//! `unwind`: see `fuzz/targets/src/unwind.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("unwind", data));
