//! Constants that registers hold, and tables of code addresses: what code is found by.

use super::registers::{Flow, effects, flow};
use crate::isa::insn::{Insn, op};

pub(super) const SINK: usize = crate::isa::insn::SINK as usize;

/// A table of code addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) address: u64,
    /// Whether its entries have 8 bytes, and not 4.
    pub(super) is_wide: bool,
    /// What is added to an entry.
    pub(super) base: u64,
}

/// What is known about registers inside a block: constants, and values from tables.
pub(super) struct Constants {
    values: [Known; 64],
}

#[derive(Clone, Copy)]
enum Known {
    Nothing,
    Constant(u64),
    /// A constant and something.
    Near(u64),
    /// Loaded from a table.
    Entry(Table),
    /// It was this constant in a block that was looked at before. Good enough to find a jump table
    /// by, and for nothing else.
    Perhaps(u64),
}

impl Default for Constants {
    fn default() -> Self {
        Self { values: [Known::Nothing; 64] }
    }
}

impl Constants {
    /// For a block behind others.
    pub(super) fn after(&self) -> Self {
        Self {
            values: self.values.map(|value| match value {
                Known::Constant(value) | Known::Perhaps(value) => Known::Perhaps(value),
                _ => Known::Nothing,
            }),
        }
    }

    /// Takes over constants of another block, for [`Self::after`].
    pub(super) fn remember(&mut self, block: &Self) {
        for (all, own) in self.values.iter_mut().zip(&block.values) {
            if let Known::Constant(_) = own {
                *all = *own;
            }
        }
    }

    pub(super) fn of(&self, register: usize) -> Option<u64> {
        match self.values[register] {
            Known::Constant(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn table(&self, register: usize) -> Option<Table> {
        match self.values[register] {
            Known::Entry(table) => Some(table),
            _ => None,
        }
    }

    /// How execution goes on after an instruction, and where if it jumps at a fixed distance or
    /// to an address that was just computed: linkers make a far call of `auipc` and `jalr`.
    pub(super) fn flow(&self, pc: u64, insn: Insn) -> (Flow, u64) {
        match (flow(insn), self.of(insn.s1())) {
            (Flow::JumpRegister, Some(base)) => {
                (Flow::Jump, base.wrapping_add(insn.immediate()) & !1)
            }
            (flow, _) => (flow, pc.wrapping_add(insn.immediate() << 1)),
        }
    }

    pub(super) fn step(&mut self, pc: u64, insn: Insn) {
        use Known::*;

        let (a, b) = (self.values[insn.s1()], self.values[insn.s2()]);
        let immediate = insn.immediate();
        let load = |is_wide| match a {
            Near(address) => {
                Entry(Table { address: address.wrapping_add(immediate), is_wide, base: 0 })
            }
            _ => Nothing,
        };
        let value = match insn.op() {
            op::LI | op::C_LI => Constant(immediate),
            op::AUIPC => Constant(pc.wrapping_add(immediate)),
            op::MV | op::C_MV => a,
            op::ADDI | op::C_ADDI => match a {
                Constant(value) => Constant(value.wrapping_add(immediate)),
                Near(value) => Near(value.wrapping_add(immediate)),
                _ => Nothing,
            },
            op::ADDIW | op::C_ADDIW => match a {
                Constant(value) => Constant(value.wrapping_add(immediate) as i32 as u64),
                _ => Nothing,
            },
            op::ADD | op::C_ADD => match (a, b) {
                (Constant(a), Constant(b)) => Constant(a.wrapping_add(b)),
                (Entry(table), Constant(base) | Perhaps(base))
                | (Constant(base) | Perhaps(base), Entry(table)) => {
                    Entry(Table { base: table.base.wrapping_add(base), ..table })
                }
                (Constant(value) | Perhaps(value), _) | (_, Constant(value) | Perhaps(value)) => {
                    Near(value)
                }
                _ => Nothing,
            },
            op::SH1ADD | op::SH2ADD | op::SH3ADD | op::SH2ADD_UW | op::SH3ADD_UW => match b {
                Constant(value) | Perhaps(value) => Near(value),
                _ => Nothing,
            },
            op::LW | op::C_LW => load(false),
            op::LD | op::C_LD => load(true),
            _ => Nothing,
        };
        let (writes_float, d) = (effects(insn).writes.0 >> 32 != 0, insn.d());
        let writes_nothing = matches!(flow(insn), Flow::Branch | Flow::Trap)
            || matches!(insn.op(), op::SB | op::SH | op::SW | op::C_SW | op::SD | op::C_SD);
        if d != SINK && d != 0 && !writes_float && !writes_nothing {
            self.values[d] = value;
        }
    }
}
