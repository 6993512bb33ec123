//! Programs of random functions: loops, calls, jump tables, returns to unexpected places, jumps into
//! the middle of instructions.
//!
//! ```text
//!  data:  0  registers, as a case's block has them (`image.rs`), with the scratch memory
//!      2048  tables of functions and of jumps
//!      4096  the point to jump back to: its address, its stack pointer
//!      8192  stack, 16 KiB; above its top there are return addresses that lead to the end
//! ```
//!
//! Whatever goes back or calls burns fuel, so every program ends. One that is not tame may trap
//! before.

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    super::{CODE, DATA},
    assembler::{Assembler, Label, add, addi, andi, branch, jalr, ld, load_address, lw, sd, slli},
    generate::{Class, Generator},
    image::{SCRATCH, add_block},
};

const RA: u32 = 1;
const SP: u32 = 2;
/// Points to the data.
const BLOCK: u32 = 3;
/// The link register of functions that have no frame.
const T0: u32 = 5;
/// Used up between two instructions of the generator.
const T1: u32 = 6;
const T2: u32 = 7;
const FUEL: u32 = 27;
/// Of loops in which nothing else writes them.
const COUNTERS: [u32; 2] = [24, 25];
const POINTERS: [u32; 2] = [4, 8];
const KEPT: [u32; 6] = [RA, SP, BLOCK, FUEL, COUNTERS[0], COUNTERS[1]];

const TABLES: u32 = 2048;
const POINT: u32 = 4096;
const STACK: u32 = 8192;
const STACK_SIZE: u32 = 16384;
const SIZE: u32 = STACK + STACK_SIZE + 4096;

/// How much a program goes back and calls.
const MOST_FUEL: i32 = 400;

const RET: u32 = 0x0000_8067;
const ECALL: u32 = 0x73;
/// `csrwi frm, 0`
const ROUND_TO_NEAREST: u32 = 0x0020_5073;

/// A program.
pub(crate) struct Flow {
    pub(crate) words: Vec<u32>,
    pub(crate) data: Vec<u8>,
    /// Where its functions start.
    pub(crate) functions: Vec<u64>,
    /// Where its last part starts, which saves the registers.
    pub(crate) end: u64,
}

/// Where the stack ends.
pub(crate) const END_OF_STACK: u64 = DATA as u64 + (STACK + STACK_SIZE) as u64;

/// Makes one. A tame one does not trap, and does the same everywhere.
pub(crate) fn flow(seed: u64, is_tame: bool) -> Flow {
    // Now and then a branch does not reach.
    (0..).find_map(|attempt| attempt_flow(seed ^ attempt << 40, is_tame)).expect("some do")
}

fn attempt_flow(seed: u64, is_tame: bool) -> Option<Flow> {
    let mut random = StdRng::seed_from_u64(seed);
    let inner = StdRng::seed_from_u64(random.random());
    let groups = Generator::around(inner, Class::Integer, &POINTERS, &KEPT);
    let mut code = Assembler::default();
    let functions = (0..random.random_range(3..8)).map(|_| code.label()).collect();
    let leaves = (0..2).map(|_| code.label()).collect();
    let end = code.label();
    Maker { random, groups, code, functions, leaves, end, is_tame, middles: vec![], tables: vec![] }
        .make()
}

/// Entries of a table in the data.
struct Table {
    offset: u32,
    targets: Vec<Label>,
    is_wide: bool,
}

struct Maker {
    random: StdRng,
    groups: Generator,
    code: Assembler,
    functions: Vec<Label>,
    /// Functions that return by `t0`.
    leaves: Vec<Label>,
    end: Label,
    is_tame: bool,
    /// Places inside functions.
    middles: Vec<Label>,
    tables: Vec<Table>,
}

impl Maker {
    fn make(mut self) -> Option<Flow> {
        let mut block = self.groups.empty();
        block.fcsr = 0;
        let mut data = Vec::new();
        add_block(&mut data, &block, DATA);
        data.resize(SIZE as usize, 0);

        self.code.words(load_address(BLOCK, DATA));
        self.code.words((0..32).map(|f| ld(f, BLOCK, 256 + 8 * f as i32) | 4));
        self.code.words((1..32).filter(|x| *x != BLOCK).map(|x| ld(x, BLOCK, 8 * x as i32)));
        self.code.words(load_address(SP, DATA + STACK + STACK_SIZE));
        let fuel = self.random.random_range(1..MOST_FUEL);
        self.code.word(addi(FUEL, 0, fuel));
        self.code.jump(RA, self.functions[0]);
        self.code.bind(self.end);
        self.finish_program();
        for number in 0..self.functions.len() {
            self.function(self.functions[number]);
        }
        for number in 0..self.leaves.len() {
            self.leaf(self.leaves[number]);
        }

        let address = |label| self.code.address(label, CODE);
        let mut put = |at: u32, bytes: &[u8]| {
            data[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        for Table { offset, targets, is_wide } in &self.tables {
            for (number, target) in targets.iter().enumerate() {
                let target = address(*target);
                if *is_wide {
                    put(offset + 8 * number as u32, &target.to_le_bytes());
                } else {
                    let distance = target.wrapping_sub(u64::from(DATA + offset)) as u32;
                    put(offset + 4 * number as u32, &distance.to_le_bytes());
                }
            }
        }
        let end = address(self.end);
        let bytes = end.to_le_bytes();
        put(POINT, &bytes);
        let top = STACK + STACK_SIZE;
        put(POINT + 8, &u64::from(DATA + top).to_le_bytes());
        (top..SIZE).step_by(8).for_each(|at| put(at, &bytes));
        let functions = self.functions.iter().chain(&self.middles).map(|it| address(*it)).collect();
        Some(Flow { words: self.code.finish()?, data, functions, end })
    }

    /// Saves the registers; `write(1, DATA, SIZE)`; `exit(0)`.
    fn finish_program(&mut self) {
        self.code.words(load_address(BLOCK, DATA));
        self.code.words((0..32).map(|x| sd(x, BLOCK, 528 + 8 * x as i32)));
        self.code.words((0..32).map(|f| sd(f, BLOCK, 784 + 8 * f as i32) | 4));
        // x5 ← fcsr
        self.code.words([0x0030_22f3, sd(5, BLOCK, 1040)]);
        self.code.word(addi(10, 0, 1));
        self.code.words(load_address(11, DATA));
        self.code.words(load_address(12, SIZE));
        self.code.words([addi(17, 0, 64), ECALL, addi(10, 0, 0), addi(17, 0, 93), ECALL]);
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn function(&mut self, label: Label) {
        if self.chance(2) {
            // At an odd halfword.
            self.code.halves(&[1]);
        }
        self.code.bind(label);
        let body = self.code.label();
        self.code.word(addi(FUEL, FUEL, -1));
        self.code.branch(branch(4, 0, FUEL), body);
        self.code.word(RET);
        self.code.bind(body);
        let has_frame = !self.chance(4);
        if has_frame {
            self.code.words([addi(SP, SP, -32), sd(RA, SP, 24)]);
        }
        self.body(0, has_frame);
        if has_frame {
            self.code.words([ld(RA, SP, 24), addi(SP, SP, 32)]);
        }
        let other = self.any_function();
        match self.random.random_range(0..6) {
            0 => self.code.jump(0, other),
            // A far one.
            1 => self.code.pair(T1, jalr(0, T1, 0), other),
            2 => self.code.halves(&[0x8082]),
            _ => self.code.word(RET),
        }
    }

    /// A function that returns by `t0`, and does not call.
    fn leaf(&mut self, label: Label) {
        self.code.bind(label);
        for _ in 0..self.random.random_range(1..4) {
            let instruction = addi(10, 10, self.random.random_range(-100..100));
            self.code.word(instruction);
        }
        match self.random.random_range(0..3) {
            // Behind the next instruction.
            0 => self.code.word(jalr(0, T0, 4)),
            _ => self.code.word(jalr(0, T0, 0)),
        }
    }

    fn any_function(&mut self) -> Label {
        self.functions[self.random.random_range(0..self.functions.len())]
    }

    fn body(&mut self, depth: u32, may_call: bool) {
        for _ in 0..self.random.random_range(1..5) {
            if self.chance(6) {
                let here = self.code.here();
                self.middles.push(here);
            }
            match self.random.random_range(0..20) {
                0..6 => self.straight(may_call),
                6..8 if depth < 3 => self.choice(depth, may_call),
                8..10 if depth < 3 => self.burning_loop(depth, may_call),
                10 | 11 => self.tight_loop(),
                12..15 if may_call => self.call(),
                15 => self.jump_table(depth, may_call),
                16 => self.overlapping(),
                17 if may_call => self.point(),
                18 => self.system(),
                _ if !self.is_tame => self.wild(),
                _ => self.straight(may_call),
            }
        }
    }

    fn straight(&mut self, may_link: bool) {
        let class = match self.random.random_range(0..10) {
            0..4 => Class::Integer,
            4 => Class::Compressed,
            5 | 6 => Class::Memory,
            7 if may_link => Class::Jump,
            8 => Class::Single,
            _ => Class::Double,
        };
        for _ in 0..self.random.random_range(1..5) {
            self.group(class);
        }
    }

    fn group(&mut self, class: Class) {
        let group = self.groups.group(class);
        self.code.halves(&group);
        let writes_csr = class == Class::Memory && group[0] & 0x7f == 0x73;
        if writes_csr && !self.chance(8) {
            self.code.word(ROUND_TO_NEAREST);
        }
    }

    fn condition(&mut self) -> u32 {
        let funct3 = [0, 1, 4, 5, 6, 7][self.random.random_range(0..6)];
        branch(funct3, self.random.random_range(0..32), self.random.random_range(0..32))
    }

    fn choice(&mut self, depth: u32, may_call: bool) {
        let (other, done) = (self.code.label(), self.code.label());
        let condition = self.condition();
        self.code.branch(condition, other);
        self.body(depth + 1, may_call);
        if self.chance(2) {
            self.code.short_or_long(&mut self.random, done);
        }
        self.code.bind(other);
        if self.chance(2) {
            self.body(depth + 1, may_call);
        }
        self.code.bind(done);
    }

    /// A loop with anything in it, perhaps entered in the middle.
    fn burning_loop(&mut self, depth: u32, may_call: bool) {
        let (done, middle) = (self.code.label(), self.code.label());
        if self.chance(3) {
            self.code.jump(0, middle);
        }
        let head = self.code.here();
        self.code.word(addi(FUEL, FUEL, -1));
        self.code.branch(branch(5, 0, FUEL), done);
        self.body(depth + 1, may_call);
        self.code.bind(middle);
        if self.chance(2) {
            self.body(depth + 1, may_call);
        }
        let condition = self.condition();
        if self.chance(2) {
            let out = self.code.label();
            self.code.branch(condition, out);
            self.code.jump(0, head);
            self.code.bind(out);
        } else {
            // Far away, perhaps: a branch reaches 4 KiB.
            let stay = self.code.label();
            self.code.branch(condition ^ 1 << 12, stay);
            self.code.jump(0, head);
            self.code.bind(stay);
        }
        self.code.bind(done);
    }

    /// A loop of few instructions that goes round an exact number of times.
    fn tight_loop(&mut self) {
        let counter = COUNTERS[self.random.random_range(0..2)];
        let rounds = self.random.random_range(1..40);
        self.code.word(addi(counter, 0, rounds));
        let head = self.code.here();
        for _ in 0..self.random.random_range(0..4) {
            let class =
                [Class::Integer, Class::Double, Class::Compressed][self.random.random_range(0..3)];
            self.group(class);
        }
        if self.chance(3) {
            let other = COUNTERS[0] + COUNTERS[1] - counter;
            self.code.word(addi(other, 0, 3));
            let inner = self.code.here();
            self.group(Class::Integer);
            self.code.word(addi(other, other, -1));
            self.code.branch(branch(4, 0, other), inner);
        }
        self.code.word(addi(counter, counter, -1));
        let condition = if self.chance(2) { branch(1, counter, 0) } else { branch(4, 0, counter) };
        self.code.branch(condition, head);
    }

    fn call(&mut self) {
        let function = self.any_function();
        match self.random.random_range(0..8) {
            0..3 => self.code.jump(RA, function),
            3 => self.code.pair(RA, jalr(RA, RA, 0), function),
            4 => {
                let targets = self.functions.clone();
                self.through_table(targets, RA, true);
            }
            5 => {
                let leaf = self.leaves[self.random.random_range(0..2)];
                self.code.jump(T0, leaf);
                self.code.words([addi(11, 11, 1), addi(12, 12, 1)]);
            }
            6 => {
                // Another way back than behind the call.
                let (back, other) = (self.code.label(), self.code.label());
                self.code.pair(RA, addi(RA, RA, 0), back);
                self.code.jump(0, function);
                self.code.bind(other);
                self.code.word(addi(13, 13, 5));
                self.code.bind(back);
                self.code.word(addi(FUEL, FUEL, -1));
                let condition = self.condition();
                let done = self.code.label();
                self.code.branch(branch(5, 0, FUEL), done);
                self.code.branch(condition, other);
                self.code.bind(done);
            }
            _ => {
                // By a register, in the short form.
                self.code.pair(T2, addi(T2, T2, 0), function);
                self.code.halves(&[0x9002 | (T2 as u16) << 7]);
            }
        }
    }

    fn jump_table(&mut self, depth: u32, may_call: bool) {
        let targets: Vec<_> = (0..4).map(|_| self.code.label()).collect();
        let done = self.code.label();
        let is_wide = self.chance(2);
        if self.through_table(targets.clone(), 0, is_wide) {
            for target in targets {
                self.code.bind(target);
                if depth < 2 && self.chance(3) {
                    self.body(depth + 2, may_call);
                } else {
                    self.group(Class::Integer);
                }
                if !self.chance(4) {
                    self.code.short_or_long(&mut self.random, done);
                }
            }
        } else {
            targets.into_iter().for_each(|target| self.code.bind(target));
        }
        self.code.bind(done);
    }

    /// Jumps to one of these. Whether there was room for the table.
    fn through_table(&mut self, mut targets: Vec<Label>, link: u32, is_wide: bool) -> bool {
        let size = if is_wide { 8 } else { 4 };
        let offset = self.tables.last().map_or(TABLES, |table| table.offset + 64);
        if offset + 64 > POINT {
            return false;
        }
        targets.truncate(4);
        while targets.len() < 4 {
            targets.push(targets[0]);
        }
        let shift = if is_wide { 3 } else { 2 };
        let index = self.random.random_range(10..18);
        self.code.word(andi(T1, index, 3));
        self.code.words(load_address(T2, DATA + offset));
        self.code.words([slli(T1, T1, shift), add(T1, T1, T2)]);
        if is_wide {
            self.code.words([ld(T1, T1, 0), jalr(link, T1, 0)]);
        } else {
            self.code.words([lw(T1, T1, 0), add(T1, T1, T2), jalr(link, T1, 0)]);
        }
        assert!(targets.len() * size <= 64);
        self.tables.push(Table { offset, targets, is_wide });
        true
    }

    /// An instruction whose second half is one of its own, which is jumped to or not.
    fn overlapping(&mut self) {
        let half = loop {
            let group = self.groups.group(Class::Compressed);
            if group.len() == 1 {
                break group[0];
            }
        };
        let condition = self.condition();
        let inside = self.code.label();
        self.code.branch(condition, inside);
        // lui t1
        self.code.halves(&[0x0037 | (T1 as u16) << 7]);
        self.code.bind(inside);
        self.code.halves(&[half]);
    }

    /// Sets the point to jump back to, or jumps back.
    fn point(&mut self) {
        if self.chance(2) {
            let here = self.code.label();
            self.code.pair(T1, addi(T1, T1, 0), here);
            self.code.words(load_address(T2, DATA + POINT));
            self.code.words([sd(T1, T2, 0), sd(SP, T2, 8)]);
            self.code.bind(here);
        } else {
            let stay = self.code.label();
            self.code.word(addi(FUEL, FUEL, -1));
            self.code.branch(branch(5, 0, FUEL), stay);
            let condition = self.condition();
            self.code.branch(condition, stay);
            self.code.words(load_address(T2, DATA + POINT));
            self.code.words([ld(T1, T2, 0), ld(SP, T2, 8)]);
            self.code.halves(&[0x8002 | (T1 as u16) << 7]);
            self.code.bind(stay);
        }
    }

    /// What the interpreter executes, and nobody minds.
    fn system(&mut self) {
        match self.random.random_range(0..3) {
            // fence.i
            0 => self.code.word(0x0000_100f),
            // No such system call.
            1 => self.code.words([addi(17, 0, 2047), ECALL]),
            _ => self.group(Class::Memory),
        }
    }

    /// What ends in a trap, perhaps, or cannot be the same elsewhere.
    fn wild(&mut self) {
        let random: u32 = self.random.random();
        let register = self.random.random_range(5..24);
        match self.random.random_range(0..12) {
            // An address of chance, or one at an edge.
            0 => self.code.word(ld(register, 0, (random & 0xfff) as i32)),
            1 => self.code.word(sd(register, self.random.random_range(0..32), random as i32 >> 20)),
            2 => self.code.word(ld(register, self.random.random_range(0..32), random as i32 >> 20)),
            3 => {
                let edge = [DATA + SIZE, DATA, 0, u32::MAX][self.random.random_range(0..4)];
                let edge = edge.wrapping_add(random & 15).wrapping_sub(8);
                self.code.words(load_address(T1, edge));
                let access = if self.chance(2) { ld(T2, T1, 0) } else { sd(T2, T1, 0) };
                self.code.word(access);
            }
            // A store to code.
            4 => {
                let here = self.code.here();
                self.code.pair(T1, sd(T2, T1, 0), here);
            }
            // c.ebreak, or what no instruction is.
            5 => self.code.halves(&[[0x9002, 0][(random & 1) as usize]]),
            // A jump to anywhere, or into the middle of a function.
            6 => self.code.word(jalr(random & 1, register, 0)),
            7 | 8 => {
                let middle = self.middles.get(random as usize % self.middles.len().max(1));
                if let Some(middle) = middle.copied() {
                    let condition = self.condition();
                    let stay = self.code.label();
                    self.code.word(addi(FUEL, FUEL, -1));
                    self.code.branch(branch(5, 0, FUEL), stay);
                    self.code.branch(condition, stay);
                    self.code.jump(if random & 2 == 0 { 0 } else { RA }, middle);
                    self.code.bind(stay);
                }
            }
            // rdinstret, rdcycle, rdtime
            9 => self.code.word([0xc020_2573, 0xc000_2573, 0xc010_2573][random as usize % 3]),
            // The return address is elsewhere.
            10 => self.code.word(addi(RA, RA, (random & 6) as i32)),
            // t0 and ra are swapped by a jump that links.
            _ => {
                let here = self.code.label();
                self.code.pair(T0, addi(T0, T0, 0), here);
                self.code.word(jalr(RA, T0, 0));
                self.code.bind(here);
            }
        }
    }
}

impl Assembler {
    /// A jump in either form.
    fn short_or_long(&mut self, random: &mut StdRng, to: Label) {
        if random.random_range(0..2) == 0 {
            self.jump(0, to)
        } else {
            self.pair(T1, jalr(0, T1, 0), to)
        }
    }
}

const _: () = assert!(SCRATCH + 512 <= TABLES as usize);
