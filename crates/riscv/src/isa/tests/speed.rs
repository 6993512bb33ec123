//! How fast the interpreter is: `cargo test --release -p sandtide-riscv --lib -- --ignored
//! --nocapture instructions_per_second`.

use std::{fs, hint::black_box, io::Write};

use super::{DATA, guest};
use crate::isa::{Exit, run};

/// A loop as a compiler makes it: bytes hashed into a table, and a bit-wise checksum.
///
/// ```text
///     for (;;) {
///         u64 h = 14695981039346656037;
///         for (u8 *p = data; p != data + 4096; p++) {
///             h = (h ^ *p) * 1099511628211;
///             table[h >> 56] += 1;
///         }
///     }
/// ```
/// x10 is `data`, x11 its end, x12 `table`, x13 the factor, x14 the first hash.
pub(crate) const HASH: &[u32] = &[
    0x0005_0293, // mv    x5, x10
    0x0007_0313, // mv    x6, x14
    0x0002_c383, // lbu   x7, (x5)
    0x0012_8293, // addi  x5, x5, 1
    0x0073_4333, // xor   x6, x6, x7
    0x02d3_0333, // mul   x6, x6, x13
    0x0383_5393, // srli  x7, x6, 56
    0x0033_9393, // slli  x7, x7, 3
    0x00c3_83b3, // add   x7, x7, x12
    0x0003_be03, // ld    x28, (x7)
    0x001e_0e13, // addi  x28, x28, 1
    0x01c3_b023, // sd    x28, (x7)
    0xfcb2_9ce3, // bne   x5, x11, -40
    0xfcdf_f06f, // j     -52
];

/// The same for floating point, from one step to the next: `x = (x * y + z) / (x * x + z)`, and
/// how far that is from the numerator. With y = 0.75 and z = 1 all stays finite.
pub(crate) const FLOAT: &[u32] = &[
    0x1210_f253, // fmul.d  f4, f1, f1
    0x0232_7253, // fadd.d  f4, f4, f3
    0x1a20_f2c3, // fmadd.d f5, f1, f2, f3
    0x1a42_f0d3, // fdiv.d  f1, f5, f4
    0x0a50_f353, // fsub.d  f6, f1, f5
    0xfedf_f06f, // j       -20
];

/// How long this thread has run, in nanoseconds. Not wall time: others may use this machine too.
pub(crate) fn cpu_time() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    status.split(' ').next().unwrap().parse().unwrap()
}

fn measure(name: &str, words: &[u32]) {
    let (mut cpu, mut space, code) = guest(words, &[7; 8192]);
    let data = u64::from(DATA);
    (cpu.x[10], cpu.x[11], cpu.x[12]) = (data, data + 4096, data + 4096);
    (cpu.x[13], cpu.x[14]) = (1_099_511_628_211, 14_695_981_039_346_656_037);
    for (register, value) in [(1, 1.5f64), (2, 0.75), (3, 1.0)] {
        cpu.f[register] = value.to_bits();
    }
    // The best of many: the rest is what others on this machine have cost.
    let count = 5_000_000;
    let rates = (0..100).map(|_| {
        let (start, mut budget) = (cpu_time(), count);
        assert_eq!(run(black_box(&mut cpu), &mut space, &code, &mut budget), Exit::Budget);
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
fn instructions_per_second() {
    measure("integer", HASH);
    measure("float", FLOAT);
}
