//! How fast translated code is: `cargo test --release -p sandtide-riscv --lib -- --ignored
//! --nocapture translated_instructions_per_second`.

use std::{hint::black_box, io::Write};

use super::translated;
use crate::{
    isa::{
        Exit,
        tests::{
            DATA, guest,
            speed::{FLOAT, HASH, cpu_time},
        },
    },
    translate::run_translated,
};

fn measure(name: &str, words: &[u32]) {
    let (mut cpu, mut space, code) = guest(words, &[7; 8192]);
    let translation = translated(&space, &code, &[]);
    let data = u64::from(DATA);
    (cpu.x[10], cpu.x[11], cpu.x[12]) = (data, data + 4096, data + 4096);
    (cpu.x[13], cpu.x[14]) = (1_099_511_628_211, 14_695_981_039_346_656_037);
    for (register, value) in [(1, 1.5f64), (2, 0.75), (3, 1.0)] {
        cpu.f[register] = value.to_bits();
    }
    let count = 5_000_000;
    let rates = (0..100).map(|_| {
        let (start, mut budget) = (cpu_time(), count);
        let cpu = black_box(&mut cpu);
        let exit = run_translated(Some(&translation), cpu, &mut space, &code, &mut budget);
        assert_eq!(exit, Exit::Budget);
        count as f64 * 1e3 / (cpu_time() - start) as f64
    });
    let rate = rates.fold(0.0, f64::max);
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {rate:.0} million instructions per second of CPU time"
    );
}

#[test]
#[ignore = "measures, proves nothing"]
fn translated_instructions_per_second() {
    measure("integer", HASH);
    measure("float", FLOAT);
}
