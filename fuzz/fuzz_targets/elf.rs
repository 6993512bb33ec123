//! `elf`: see `fuzz/targets/src/elf.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandtide_fuzz_targets::run("elf", data));
