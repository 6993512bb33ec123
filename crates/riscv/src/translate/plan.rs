//! What a region's translation has to know about each block before the first is translated.

use std::collections::HashMap;

use super::{
    discover::{Block, End, Region},
    registers::{Registers, effects},
};

/// The registers that host functions pass to each other in host registers: `sp`, `a0` to `a3`.
/// They are never stored to the frame by translated code.
pub(super) const PASSED: [usize; 5] = [2, 10, 11, 12, 13];

/// The same as a set.
pub(super) const PASSED_SET: Registers = {
    let mut set = Registers::NONE;
    let mut index = 0;
    while index < PASSED.len() {
        set = set.and(Registers::x(PASSED[index]));
        index += 1;
    }
    set
};

/// `ra`, `sp` and `s0`: callers are found through them wherever the code leaves.
const UNWOUND: Registers = Registers::x(1).and(Registers::x(2)).and(Registers::x(8));

/// From one look at the budget to the next there are at most about this many instructions.
const LONGEST_PATH: u64 = 192;

/// What is known about a block.
#[derive(Debug, Default, Clone)]
pub(super) struct BlockPlan {
    /// The blocks of the region that may follow, without a call in between.
    pub(super) successors: Vec<usize>,
    /// How many blocks have it as a successor.
    pub(super) predecessors: usize,
    /// The block behind the call that the block ends with.
    pub(super) back: Option<usize>,
    /// The budget is looked at before it.
    pub(super) is_checked: bool,
    /// Host code can be entered there; its number in the region.
    pub(super) entry: Option<usize>,
    /// The most instructions that retire from its start on before the budget is looked at again.
    pub(super) path: u64,
    /// It is part of a loop: registers that it writes are stored to the frame late, where the
    /// code leaves. Elsewhere they are stored at once, so that ways out need not do it.
    pub(super) is_lazy: bool,
    /// Its address, and the block that a branch to that goes to.
    again: Option<(u64, usize)>,
    /// Where it may go at its start.
    pub(super) apart: Option<usize>,
    /// Registers whose values from before it may be read, by it or what follows: all where a way
    /// leads out of the region. What no instruction reads any more is not kept for anybody, but
    /// [`UNWOUND`].
    pub(super) alive: Registers,
    /// The same for the blocks outside of loops that may follow.
    alive_outside: Registers,
    /// Registers that may differ from the frame at its start.
    pub(super) dirty: Registers,
    /// Registers that it or its successors in loops may need from before, if it is in a loop itself.
    /// Outside of loops, blocks load what they need.
    pub(super) needed: Registers,
    /// The innermost loop that it is part of: its number in [`Plan::loops`].
    pub(super) innermost: Option<usize>,
    /// Registers of [`PASSED`] that it or what follows in the region may need from before.
    passed: Registers,
}

impl BlockPlan {
    /// How many instructions may be pending in front of it, if that is decided beforehand.
    pub(super) fn owed(&self) -> Option<u64> {
        (self.is_checked || self.entry.is_some()).then_some(0)
    }
}

/// A loop.
#[derive(Debug, Default, Clone)]
pub(super) struct Loop {
    /// How many blocks it has, with those of the loops inside.
    size: usize,
    /// The registers that its blocks name, without those of the loops inside.
    pub(super) named: Registers,
}

impl Loop {
    /// Whether it leaves a host register free for the base.
    pub(super) fn holds_base(&self) -> bool {
        self.named.and_both(Registers::INTEGER).iter().count() <= ROOMY
    }
}

/// A loop that names at most so many registers has host registers to spare.
const ROOMY: usize = 9;

/// The plan of a region.
pub(super) struct Plan {
    pub(super) blocks: Vec<BlockPlan>,
    /// In which order the blocks are translated: each before those that only it leads to.
    pub(super) order: Vec<usize>,
    /// The blocks that have entries, by number.
    pub(super) entries: Vec<usize>,
    pub(super) loops: Vec<Loop>,
    by_pc: HashMap<u64, usize>,
}

impl Plan {
    pub(super) fn new(region: &Region) -> Self {
        // Of blocks that are repeated, the first.
        let blocks = region.blocks.iter().enumerate().rev();
        let by_pc: HashMap<u64, usize> = blocks.map(|(index, block)| (block.pc, index)).collect();
        let mut this = Self {
            blocks: vec![BlockPlan::default(); region.blocks.len()],
            order: Vec::new(),
            entries: Vec::new(),
            loops: Vec::new(),
            by_pc,
        };
        this.connect(region);
        let position = this.sort();
        this.find_loops(region, &position);
        this.find_checks(region, &position);
        this.find_entries(region);
        this.find_alive(region);
        this.find_dirty(region);
        this.find_needed(region);
        this.find_passed(region);
        this
    }

    /// Where a branch of a block to an address goes.
    pub(super) fn way(&self, from: usize, pc: u64) -> Option<usize> {
        match self.blocks[from].again {
            Some((own, next)) if own == pc => Some(next),
            _ => self.at(pc),
        }
    }

    /// Whether a block is repeated, and not the last round.
    pub(super) fn is_followed(&self, index: usize) -> bool {
        self.blocks[index].again.is_some_and(|(_, next)| next > index)
    }

    /// The block that starts at an address.
    pub(super) fn at(&self, pc: u64) -> Option<usize> {
        self.by_pc.get(&pc).copied()
    }

    /// For each instruction of a block, the registers whose values from before it are needed, by
    /// itself or later, as far as they are passed or differ from the frame there.
    pub(super) fn live(&self, index: usize, block: &Block) -> Vec<Registers> {
        let plan = &self.blocks[index];
        let written = block.instructions.iter().map(|insn| effects(*insn).writes);
        let leaving = written.fold(plan.dirty, Registers::and).and(PASSED_SET);
        let alive = self.alive(index, block);
        let mut live = Registers::NONE;
        for next in plan.successors.iter().map(|successor| &self.blocks[*successor]) {
            live = live.and(next.needed.without(PASSED_SET)).and(next.passed);
        }
        if self.leaves_loop(plan) {
            live = live.and(leaving.without(PASSED_SET).and_both(plan.alive_outside));
        }
        if leaves_region(block, plan) {
            live = live.and(leaving);
        }
        let before = block.instructions.iter().zip(&alive).rev().map(|(insn, alive)| {
            let effects = effects(*insn);
            live = live.without(effects.writes).and(effects.reads);
            if effects.may_leave {
                live = live.and(leaving.and_both(*alive));
            }
            live
        });
        let mut before: Vec<_> = before.collect();
        before.reverse();
        before
    }

    /// The registers that a way from one block to another has to split the lives of: those that
    /// the inner one of two loops names, and the other takes over. `None` inside of one loop.
    pub(super) fn split(&self, from: usize, to: usize) -> Option<Registers> {
        let [one, other] = [from, to].map(|index| self.blocks[index].innermost);
        let next = &self.blocks[to];
        let needed = next.needed.without(PASSED_SET).and(next.passed);
        let inner = match (one?, other?) {
            (one, other) if one == other => return None,
            (one, other) if self.loops[one].size <= self.loops[other].size => one,
            (_, other) => other,
        };
        Some(needed.and_both(self.loops[inner].named))
    }

    /// The same for a way from outside of loops to a block of one.
    pub(super) fn split_in_front(&self, to: usize) -> Registers {
        let next = &self.blocks[to];
        let named = next.innermost.map(|number| self.loops[number].named).unwrap_or_default();
        next.needed.without(PASSED_SET).and(next.passed).and_both(named)
    }

    /// Whether a block outside of loops may follow.
    fn leaves_loop(&self, plan: &BlockPlan) -> bool {
        plan.successors.iter().any(|successor| !self.blocks[*successor].is_lazy)
    }

    /// Which of the registers that are passed are needed from before each block: all where it
    /// leaves, and those that it reads.
    fn find_passed(&mut self, region: &Region) {
        for plan in &mut self.blocks {
            let leaves = if plan.is_checked { PASSED_SET } else { Registers::NONE };
            plan.passed = leaves.and_both(plan.alive);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for &index in self.order.iter().rev() {
                let block = &region.blocks[index];
                let plan = &self.blocks[index];
                let first = self.live(index, block).first().copied();
                let passed = first.unwrap_or(PASSED_SET).and_both(PASSED_SET).and(plan.passed);
                let apart = plan.apart.map(|apart| self.blocks[apart].passed);
                let passed = passed.and(apart.unwrap_or_default());
                changed |= passed != plan.passed;
                self.blocks[index].passed = passed;
            }
        }
    }

    fn connect(&mut self, region: &Region) {
        for (index, block) in region.blocks.iter().enumerate() {
            self.blocks[index].again = block.again.map(|next| (block.pc, next));
            let mut successors: Vec<usize> = match &block.end {
                End::Jump(pc) => self.at(*pc).into_iter().collect(),
                End::Branch { taken, next } => {
                    self.way(index, *taken).into_iter().chain(self.way(index, *next)).collect()
                }
                End::JumpRegister(targets) => {
                    targets.entries.iter().filter_map(|pc| self.at(*pc)).collect()
                }
                End::Call { .. } | End::CallRegister { .. } => Vec::new(),
                End::Return | End::Leave { .. } => Vec::new(),
            };
            successors.sort_unstable();
            successors.dedup();
            for successor in &successors {
                self.blocks[*successor].predecessors += 1;
            }
            self.blocks[index].successors = successors;
            self.blocks[index].apart = block.apart.as_ref().map(|apart| apart.block);
            if let Some(apart) = self.blocks[index].apart {
                self.blocks[apart].predecessors += 1;
            }
            self.blocks[index].back = match &block.end {
                End::Call { back, .. } | End::CallRegister { back } => self.at(*back),
                End::Leave { next: Some(next), .. } => self.at(*next),
                _ => None,
            };
        }
    }

    /// Sorts the blocks in reverse postorder, and tells the position of each.
    fn sort(&mut self) -> Vec<usize> {
        let mut postorder = Vec::new();
        let mut seen = vec![false; self.blocks.len()];
        let mut stack = Vec::new();
        for root in 0..self.blocks.len() {
            if std::mem::replace(&mut seen[root], true) {
                continue;
            }
            stack.push((root, 0));
            while let Some((index, next)) = stack.last_mut() {
                let plan = &self.blocks[*index];
                let others = plan.back.into_iter().chain(plan.apart);
                let follower = plan.successors.iter().copied().chain(others).nth(*next);
                *next += 1;
                match follower {
                    Some(follower) if !std::mem::replace(&mut seen[follower], true) => {
                        stack.push((follower, 0));
                    }
                    Some(_) => {}
                    None => {
                        postorder.push(*index);
                        stack.pop();
                    }
                }
            }
        }
        self.order = postorder.into_iter().rev().collect();
        let mut position = vec![0; self.order.len()];
        for (number, index) in self.order.iter().enumerate() {
            position[*index] = number;
        }
        position
    }

    /// Marks the blocks of loops: what reaches a jump backward without passing its target.
    fn find_loops(&mut self, region: &Region, position: &[usize]) {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for (index, block) in self.blocks.iter().enumerate() {
            for successor in &block.successors {
                predecessors[*successor].push(index);
            }
            if let Some(apart) = block.apart {
                predecessors[apart].push(index);
            }
        }
        for head in 0..self.blocks.len() {
            let is_backward = |from: &&usize| position[**from] >= position[head];
            let mut open: Vec<usize> =
                predecessors[head].iter().filter(is_backward).copied().collect();
            if open.is_empty() {
                continue;
            }
            let mut seen = vec![false; self.blocks.len()];
            seen[head] = true;
            let mut members = vec![head];
            while let Some(index) = open.pop() {
                if !std::mem::replace(&mut seen[index], true) {
                    members.push(index);
                    let inside = |from: &&usize| position[**from] >= position[head];
                    open.extend(predecessors[index].iter().filter(inside));
                }
            }
            let (number, size) = (self.loops.len(), members.len());
            self.loops.push(Loop { size, named: Registers::NONE });
            for index in members {
                let block = &mut self.blocks[index];
                block.is_lazy = true;
                if block.innermost.is_none_or(|known| self.loops[known].size > size) {
                    block.innermost = Some(number);
                }
            }
        }
        for (block, plan) in region.blocks.iter().zip(&self.blocks) {
            let Some(number) = plan.innermost else { continue };
            for insn in &block.instructions {
                let effects = effects(*insn);
                let named = &mut self.loops[number].named;
                *named = named.and(effects.reads).and(effects.writes);
            }
        }
    }

    /// The budget is looked at in front of the heads of loops, and on the way where it gets long.
    fn find_checks(&mut self, region: &Region, position: &[usize]) {
        for index in 0..self.blocks.len() {
            for successor in self.blocks[index].successors.clone() {
                if position[successor] <= position[index] {
                    self.blocks[successor].is_checked = true;
                }
            }
        }
        for &index in self.order.clone().iter().rev() {
            let own = region.blocks[index].instructions.len() as u64;
            let mut longest = 0;
            for successor in self.blocks[index].successors.clone() {
                let follower = &mut self.blocks[successor];
                if !follower.is_checked && own + follower.path > LONGEST_PATH {
                    follower.is_checked = true;
                }
                if !follower.is_checked {
                    longest = longest.max(follower.path);
                }
            }
            self.blocks[index].path = own + longest;
        }
        // A block may have become checked behind the back of one that counted it before.
        for &index in self.order.iter().rev() {
            let own = region.blocks[index].instructions.len() as u64;
            let followers = self.blocks[index].successors.iter().map(|index| &self.blocks[*index]);
            let longest = followers.filter(|plan| !plan.is_checked).map(|plan| plan.path).max();
            self.blocks[index].path = own + longest.unwrap_or(0);
        }
    }

    /// Where the dispatcher or a jump may come in: the start, wherever translated code may leave
    /// with nothing but the budget in the way, and behind calls.
    fn find_entries(&mut self, region: &Region) {
        let mut is_entry = vec![false; self.blocks.len()];
        is_entry[0] = true;
        for (index, block) in region.blocks.iter().enumerate() {
            is_entry[index] |= self.blocks[index].is_checked;
            if let Some(back) = self.blocks[index].back {
                is_entry[back] = true;
            }
            let jumps_anywhere = matches!(block.end, End::JumpRegister(_));
            for successor in &self.blocks[index].successors {
                // The interpreter looks for entries where it jumps. A loop has at least one jump
                // backward, so it comes across one in each round.
                let is_backward = region.blocks[*successor].pc <= block.pc;
                let is_first = self.at(region.blocks[*successor].pc) == Some(*successor);
                is_entry[*successor] |= jumps_anywhere || is_backward && is_first;
            }
        }
        self.entries = (0..self.blocks.len()).filter(|index| is_entry[*index]).collect();
        for (number, index) in self.entries.iter().enumerate() {
            self.blocks[*index].entry = Some(number);
        }
    }

    fn find_alive(&mut self, region: &Region) {
        let own: Vec<(Registers, Registers)> = region
            .blocks
            .iter()
            .map(|block| {
                let (mut reads, mut writes) = (Registers::NONE, Registers::NONE);
                for insn in &block.instructions {
                    let effects = effects(*insn);
                    reads = reads.and(effects.reads.without(writes));
                    writes = writes.and(effects.writes);
                }
                (reads, writes)
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &index in self.order.iter().rev() {
                let (reads, writes) = own[index];
                let behind = self.alive_behind(index, &region.blocks[index]);
                let apart = self.blocks[index].apart.map(|apart| self.blocks[apart].alive);
                let alive = reads.and(behind.without(writes)).and(apart.unwrap_or_default());
                let alive = alive.and(UNWOUND);
                changed |= alive != self.blocks[index].alive;
                self.blocks[index].alive = alive;
            }
        }
        for index in 0..self.blocks.len() {
            let outside = self.blocks[index].successors.iter().map(|next| &self.blocks[*next]);
            let outside = outside.filter(|next| !next.is_lazy).map(|next| next.alive);
            self.blocks[index].alive_outside = outside.fold(Registers::NONE, Registers::and);
        }
    }

    /// The registers that are alive behind a block.
    fn alive_behind(&self, index: usize, block: &Block) -> Registers {
        let plan = &self.blocks[index];
        if leaves_region(block, plan) {
            return Registers::ALL;
        }
        let behind = plan.successors.iter().map(|successor| self.blocks[*successor].alive);
        behind.fold(Registers::NONE, Registers::and)
    }

    /// The registers that are alive in front of each instruction of a block, and behind it.
    pub(super) fn alive(&self, index: usize, block: &Block) -> Vec<Registers> {
        let mut alive = vec![self.alive_behind(index, block)];
        for insn in block.instructions.iter().rev() {
            let effects = effects(*insn);
            let behind = alive.last().copied().unwrap_or_default();
            alive.push(behind.without(effects.writes).and(effects.reads).and(UNWOUND));
        }
        alive.reverse();
        alive
    }

    /// Every entry starts clean; calls store everything, and so does the way out of a loop.
    fn find_dirty(&mut self, region: &Region) {
        let written: Vec<Registers> = region
            .blocks
            .iter()
            .map(|block| {
                let all = block.instructions.iter().map(|insn| effects(*insn).writes);
                all.fold(Registers::NONE, Registers::and).without(PASSED_SET)
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &index in &self.order {
                let block = &self.blocks[index];
                if let (Some(apart), dirty) = (block.apart, block.dirty) {
                    let all = self.blocks[apart].dirty.and(dirty);
                    changed |= all != self.blocks[apart].dirty;
                    self.blocks[apart].dirty = all;
                }
                let block = &self.blocks[index];
                let out =
                    if block.is_lazy { block.dirty.and(written[index]) } else { Registers::NONE };
                for successor in self.blocks[index].successors.clone() {
                    if !self.blocks[successor].is_lazy {
                        continue;
                    }
                    let dirty = &mut self.blocks[successor].dirty;
                    let all = dirty.and(out);
                    changed |= all != *dirty;
                    *dirty = all;
                }
            }
        }
    }

    fn find_needed(&mut self, region: &Region) {
        // What each block needs itself, and what it sets.
        let own: Vec<(Registers, Registers)> = region
            .blocks
            .iter()
            .zip(&self.blocks)
            .enumerate()
            .map(|(index, (block, plan))| self.needs(index, block, plan))
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &index in self.order.iter().rev() {
                let after = self.blocks[index]
                    .successors
                    .iter()
                    .map(|successor| self.blocks[*successor].needed)
                    .fold(Registers::NONE, Registers::and);
                if !self.blocks[index].is_lazy {
                    continue;
                }
                let (needs, sets) = own[index];
                let apart = self.blocks[index].apart.map(|apart| self.blocks[apart].needed);
                let needed = needs.and(after.without(sets)).and(apart.unwrap_or_default());
                changed |= needed != self.blocks[index].needed;
                self.blocks[index].needed = needed;
            }
        }
    }

    /// What a block of a loop needs itself, and what it sets.
    fn needs(&self, index: usize, block: &Block, plan: &BlockPlan) -> (Registers, Registers) {
        let (mut needs, mut sets) = (Registers::NONE, Registers::NONE);
        let leaving = plan.dirty.and(PASSED_SET);
        let alive = self.alive(index, block);
        if plan.is_checked {
            needs = needs.and(leaving.and_both(plan.alive));
        }
        for (insn, alive) in block.instructions.iter().zip(&alive) {
            let effects = effects(*insn);
            needs = needs.and(effects.reads.without(sets));
            if effects.may_leave {
                needs = needs.and(leaving.and_both(*alive).without(sets));
            }
            sets = sets.and(effects.writes);
        }
        // Whatever leaves the loop or the region takes everything along that somebody may read.
        let mut outside = plan.alive_outside;
        if leaves_region(block, plan) {
            outside = Registers::ALL;
        }
        needs = needs.and(leaving.and_both(outside).without(sets));
        (needs, sets)
    }
}

/// Whether a way leads out of the region, by the end of a block or by a branch to elsewhere.
fn leaves_region(block: &Block, plan: &BlockPlan) -> bool {
    let stays = matches!(block.end, End::Jump(_) | End::Branch { .. });
    let ways = match &block.end {
        End::Branch { taken, next } if taken != next => 2,
        _ => 1,
    };
    !stays || plan.successors.len() < ways
}
