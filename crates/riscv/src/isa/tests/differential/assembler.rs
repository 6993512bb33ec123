//! Code with labels.

/// A place in code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// What refers to a label.
#[derive(Debug, Clone, Copy)]
enum Reference {
    Branch,
    Jump,
    /// An `auipc` and an instruction with 12 bits behind it.
    Pair,
}

/// Writes code.
#[derive(Default)]
pub(crate) struct Assembler {
    halves: Vec<u16>,
    places: Vec<Option<usize>>,
    references: Vec<(usize, Label, Reference)>,
}

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Puts a label here.
    pub(crate) fn bind(&mut self, label: Label) {
        assert!(self.places[label.0].replace(self.halves.len()).is_none(), "a label has one place");
    }

    /// A label that is here.
    pub(crate) fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    pub(crate) fn word(&mut self, word: u32) {
        self.halves.extend([word as u16, (word >> 16) as u16]);
    }

    pub(crate) fn words(&mut self, words: impl IntoIterator<Item = u32>) {
        words.into_iter().for_each(|word| self.word(word));
    }

    pub(crate) fn halves(&mut self, halves: &[u16]) {
        self.halves.extend_from_slice(halves);
    }

    /// A branch; `word` has everything but the distance.
    pub(crate) fn branch(&mut self, word: u32, to: Label) {
        self.references.push((self.halves.len(), to, Reference::Branch));
        self.word(word);
    }

    /// `jal link, to`
    pub(crate) fn jump(&mut self, link: u32, to: Label) {
        self.references.push((self.halves.len(), to, Reference::Jump));
        self.word(0x6f | link << 7);
    }

    /// `auipc register`, and an instruction behind it that adds the low 12 bits: `addi`, `jalr`.
    pub(crate) fn pair(&mut self, register: u32, second: u32, to: Label) {
        self.references.push((self.halves.len(), to, Reference::Pair));
        self.words([0x17 | register << 7, second]);
    }

    /// The address of a label in code that starts at an address.
    pub(crate) fn address(&self, label: Label, start: u32) -> u64 {
        u64::from(start) + 2 * self.places[label.0].expect("a label with a place") as u64
    }

    /// The code, filled up with `c.nop`; `None` if a branch does not reach.
    pub(crate) fn finish(mut self) -> Option<Vec<u32>> {
        for (at, to, reference) in std::mem::take(&mut self.references) {
            let target = self.places[to.0].expect("a label with a place");
            let distance = 2 * (target as i32 - at as i32);
            let bits = distance as u32;
            let field = |from: u32, to: u32, width: u32| (bits >> from & ((1 << width) - 1)) << to;
            let mut add = |at: usize, field: u32| {
                self.halves[at] |= field as u16;
                self.halves[at + 1] |= (field >> 16) as u16;
            };
            match reference {
                Reference::Branch => {
                    if !(-4096..4096).contains(&distance) {
                        return None;
                    }
                    let low = field(1, 8, 4) | field(11, 7, 1);
                    add(at, low | field(5, 25, 6) | field(12, 31, 1));
                }
                Reference::Jump => {
                    let low = field(1, 21, 10) | field(11, 20, 1);
                    add(at, low | field(12, 12, 8) | field(20, 31, 1));
                }
                Reference::Pair => {
                    let upper = bits.wrapping_add(0x800) & 0xffff_f000;
                    add(at, upper);
                    add(at + 2, bits.wrapping_sub(upper) << 20);
                }
            }
        }
        let pair =
            |pair: &[u16]| u32::from(pair[0]) | u32::from(pair.get(1).copied().unwrap_or(1)) << 16;
        Some(self.halves.chunks(2).map(pair).collect())
    }
}

const fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: i32) -> u32 {
    opcode | rd << 7 | funct3 << 12 | rs1 << 15 | (imm as u32) << 20
}

pub(crate) const fn addi(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x13, 0, rd, rs1, imm)
}

pub(crate) const fn andi(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x13, 7, rd, rs1, imm)
}

pub(crate) const fn slli(rd: u32, rs1: u32, by: i32) -> u32 {
    i(0x13, 1, rd, rs1, by)
}

pub(crate) const fn add(rd: u32, rs1: u32, rs2: u32) -> u32 {
    i(0x33, 0, rd, rs1, 0) | rs2 << 20
}

pub(crate) const fn lw(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x03, 2, rd, rs1, imm)
}

pub(crate) const fn ld(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x03, 3, rd, rs1, imm)
}

pub(crate) const fn sd(rs2: u32, rs1: u32, imm: i32) -> u32 {
    let imm = imm as u32;
    0x23 | (imm & 31) << 7 | 3 << 12 | rs1 << 15 | rs2 << 20 | (imm >> 5) << 25
}

pub(crate) const fn jalr(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x67, 0, rd, rs1, imm)
}

/// A branch without its distance: the numbers are those of `funct3`.
pub(crate) const fn branch(funct3: u32, rs1: u32, rs2: u32) -> u32 {
    0x63 | funct3 << 12 | rs1 << 15 | rs2 << 20
}

/// `lui` and `addi`
pub(crate) const fn load_address(rd: u32, value: u32) -> [u32; 2] {
    let upper = value.wrapping_add(0x800) & 0xffff_f000;
    [0x37 | rd << 7 | upper, addi(rd, rd, value as i32)]
}
