//! Starting a process: its address space, and what it finds on its stack.

use std::sync::Arc;

use rand::RngCore;

use crate::{
    Architecture, GuestMemory, ImageLayout, MAX_STACK, MemoryError, PAGE, ProcessSetup, Protection,
    StartError,
    files::Files,
    fresh::{Fresh, hooks},
    guest::{self, Range},
    kernel::{Fixed, Kernel, UID},
    objects::Objects,
    outside::Outside,
    pause::Pause,
    process_id::{self, ProcessId},
    reads::Reads,
    signals::Signals,
    space::{AddressSpace, Kind, page_up},
    threads::Threads,
    tracked::Tracked,
    vfs::{Mounts, Scratch, join, split},
};

/// The smallest stack, in bytes.
const MIN_STACK: u64 = 64 << 10;

/// Never mapped, between image and stack, so that an overflow traps.
const GUARD: u64 = 64 << 10;

/// For small mappings, between stack and heap: first in the search for free addresses.
const WINDOW: u64 = 256 << 10;

/// The lowest address that is used.
const LOWEST: u64 = 64 << 10;

/// Auxiliary vector entries (`getauxval(3)`).
mod auxv {
    pub(super) const NULL: u64 = 0;
    pub(super) const PHDR: u64 = 3;
    pub(super) const PHENT: u64 = 4;
    pub(super) const PHNUM: u64 = 5;
    pub(super) const PAGESZ: u64 = 6;
    pub(super) const BASE: u64 = 7;
    pub(super) const FLAGS: u64 = 8;
    pub(super) const ENTRY: u64 = 9;
    pub(super) const UID: u64 = 11;
    pub(super) const EUID: u64 = 12;
    pub(super) const GID: u64 = 13;
    pub(super) const EGID: u64 = 14;
    pub(super) const PLATFORM: u64 = 15;
    pub(super) const HWCAP: u64 = 16;
    pub(super) const CLKTCK: u64 = 17;
    pub(super) const SECURE: u64 = 23;
    pub(super) const RANDOM: u64 = 25;
    pub(super) const HWCAP2: u64 = 26;
    pub(super) const EXECFN: u64 = 31;
    pub(super) const SYSINFO_EHDR: u64 = 33;
    pub(super) const MINSIGSTKSZ: u64 = 51;
}

/// Where everything but the image goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    stack_start: u64,
    stack_end: u64,
    brk_start: u64,
    brk_limit: u64,
}

fn plan(image: &ImageLayout, stack: u64, heap: u64, end: u64) -> Result<Plan, StartError> {
    let no_room = |what| StartError::NoRoom { what, end };
    let image_start = image.segments.iter().map(|segment| segment.start).min().unwrap_or(end);
    let image_end = image.segments.iter().map(|segment| segment.end).max().unwrap_or(0);
    let image_end = page_up(image_end.max(image.brk_start)).ok_or(no_room("the image"))?;
    if image_end > end {
        return Err(no_room("the image"));
    }
    let needed = GUARD + stack + WINDOW + GUARD;
    // Behind the image as a rule; below it if it was linked to the top of the address space.
    let (base, ceiling) = if end - image_end >= needed {
        (image_end, end)
    } else if image_start.saturating_sub(LOWEST) >= needed {
        (LOWEST, image_start)
    } else {
        return Err(no_room("the stack"));
    };
    let stack_start = base + GUARD;
    let stack_end = stack_start + stack;
    let brk_start = stack_end + WINDOW;
    // At least half of what is left is for mappings.
    let room = (ceiling - brk_start) / 2 / PAGE * PAGE;
    let brk_limit = brk_start + page_up(heap).unwrap_or(u64::MAX).min(room);
    Ok(Plan { stack_start, stack_end, brk_start, brk_limit })
}

/// Starts a process; returns the kernel and the stack pointer.
pub(crate) fn start(
    architecture: Architecture,
    image: &ImageLayout,
    setup: &ProcessSetup<'_>,
    memory: &mut dyn GuestMemory,
    random: &mut dyn RngCore,
) -> Result<(Kernel, u64), StartError> {
    let stack = setup.stack.clamp(MIN_STACK, MAX_STACK) / PAGE * PAGE;
    let end = memory.end();
    let plan = plan(image, stack, setup.limits.memory, end)?;
    let mut space = AddressSpace::new(end);
    space.search_start = plan.stack_end;
    (space.brk_start, space.brk, space.brk_limit) =
        (plan.brk_start, plan.brk_start, plan.brk_limit);
    let no_room = |_| StartError::NoRoom { what: "the image's segments", end };
    for segment in image.segments.iter().filter(|segment| segment.start < segment.end) {
        let kind = Kind::new(segment.protection, true);
        space.insert(segment.start, segment.end, kind).map_err(no_room)?;
    }
    let protection = Protection { read: true, write: true, execute: false };
    let kind = Kind::new(protection, true);
    space.insert(plan.stack_start, plan.stack_end, kind).map_err(no_room)?;
    memory.map(plan.stack_start, stack, protection);

    let env = match setup.reseed {
        true => hooks::environment(setup.program, setup.env),
        false => setup.env.into(),
    };
    let setup = &ProcessSetup { env: &env, ..*setup };
    let contents = StackContents::new(architecture, image, setup, random);
    let (sp, own_random) = contents.write(plan.stack_end, stack, memory)?;
    let fixed = Fixed::new(architecture, setup, stack, image.interpreter_base != 0)?;
    let kernel = Kernel {
        fixed: Arc::new(fixed),
        threads: Tracked::new(Threads::new(process_id::FIRST, thread_name(setup.program))),
        space: Tracked::new(space),
        files: Tracked::new(Files::new(split(setup.directory.as_bytes()))),
        objects: Objects::default(),
        pause: Pause::default(),
        pid: ProcessId::of(setup.program),
        fresh: Fresh::of_process(own_random),
        output: false,
        sent_to: None,
        outside: Outside::default(),
        reads: Reads::begin(),
        scratch: Tracked::new(Scratch::new(setup.limits.scratch)),
        signals: Tracked::new(Signals::default()),
    };
    Ok((kernel, sp))
}

impl Fixed {
    /// What a setup says of a process, with this stack; `libraries` says whether it loads any.
    pub(crate) fn new(
        architecture: Architecture,
        setup: &ProcessSetup<'_>,
        stack: u64,
        libraries: bool,
    ) -> Result<Self, StartError> {
        Ok(Self {
            architecture,
            limits: setup.limits.clone(),
            stack,
            libraries,
            network: setup.network.cloned(),
            mounts: Mounts::open(setup.files, &absolute(setup.program), libraries, setup.reseed)?,
            command_line: setup.args.iter().flat_map(|arg| terminated(arg)).collect(),
        })
    }
}

/// The path of the program for `/proc/self/exe`: C libraries abort if that is not absolute. A
/// process starts in `/`.
fn absolute(program: &str) -> Vec<u8> {
    let mut components = split(program.as_bytes());
    components.retain(|name| name != b"." && name != b"..");
    join(&components)
}

/// The last component of a path, as the name of the first thread.
fn thread_name(program: &str) -> [u8; 16] {
    let base = program.rsplit('/').next().unwrap_or_default().as_bytes();
    let mut name = [0; 16];
    let length = base.len().min(15);
    name[..length].copy_from_slice(&base[..length]);
    name
}

fn terminated(text: &str) -> impl Iterator<Item = u8> + '_ {
    // A NUL inside would end it for the guest anyway.
    text.bytes().take_while(|byte| *byte != 0).chain([0])
}

/// The random bytes that a program starts with (getauxval(3), `AT_RANDOM`).
const RANDOM_LENGTH: usize = 16;

/// What a program finds above its stack pointer (System V ABI, process initialization):
///
/// ```text
/// sp ─▶ argc │ argv… 0 │ envp… 0 │ auxv… (0, 0) │ padding │ random │ strings │ stack end
/// ```
struct StackContents {
    strings: Vec<u8>,
    /// Offsets in `strings`.
    args: Vec<u64>,
    env: Vec<u64>,
    program: u64,
    platform: u64,
    random: u64,
    auxv: Vec<(u64, u64)>,
}

impl StackContents {
    fn new(
        architecture: Architecture,
        image: &ImageLayout,
        setup: &ProcessSetup<'_>,
        random: &mut dyn RngCore,
    ) -> Self {
        let mut strings = vec![0; RANDOM_LENGTH];
        random.fill_bytes(&mut strings);
        let mut add = |text: &String| {
            let offset = strings.len() as u64;
            strings.extend(terminated(text));
            offset
        };
        let args = setup.args.iter().map(&mut add).collect();
        let env = setup.env.iter().map(&mut add).collect();
        let program = add(&setup.program.to_owned());
        let platform = add(&architecture.machine().to_owned());
        let mut auxv = vec![
            (auxv::PHDR, image.phdr),
            (auxv::PHENT, image.phent),
            (auxv::PHNUM, image.phnum),
            (auxv::PAGESZ, PAGE),
            (auxv::BASE, image.interpreter_base),
            (auxv::FLAGS, 0),
            (auxv::ENTRY, image.entry),
            (auxv::UID, u64::from(UID)),
            (auxv::EUID, u64::from(UID)),
            (auxv::GID, u64::from(UID)),
            (auxv::EGID, u64::from(UID)),
            (auxv::HWCAP, setup.hardware.capabilities),
            (auxv::HWCAP2, setup.hardware.more_capabilities),
            (auxv::CLKTCK, 100),
            (auxv::SECURE, 0),
        ];
        for (key, value) in [
            (auxv::SYSINFO_EHDR, setup.hardware.clocks),
            (auxv::MINSIGSTKSZ, setup.hardware.signal_stack),
        ] {
            if value != 0 {
                auxv.push((key, value));
            }
        }
        Self { strings, args, env, program, platform, random: 0, auxv }
    }

    /// Writes all of it. Where the stack pointer is then, and the random bytes are.
    fn write(
        &self,
        stack_end: u64,
        stack: u64,
        memory: &mut dyn GuestMemory,
    ) -> Result<(u64, Range), StartError> {
        let count = 1 + self.args.len() + 1 + self.env.len() + 1 + 2 * (self.auxv.len() + 4);
        let size = self.strings.len() as u64 + 8 * count as u64 + 32;
        let limit = stack / 4;
        if size > limit {
            return Err(StartError::ArgumentsTooLong { size, limit });
        }
        let strings = (stack_end - self.strings.len() as u64) & !15;
        let sp = (strings - 8 * count as u64) & !15;
        let mut words = vec![self.args.len() as u64];
        words.extend(self.args.iter().map(|offset| strings + offset));
        words.push(0);
        words.extend(self.env.iter().map(|offset| strings + offset));
        words.push(0);
        words.extend(self.auxv.iter().flat_map(|(key, value)| [*key, *value]));
        words.extend([auxv::RANDOM, strings + self.random]);
        words.extend([auxv::PLATFORM, strings + self.platform]);
        words.extend([auxv::EXECFN, strings + self.program]);
        words.extend([auxv::NULL, 0]);
        let failed = |error| match error {
            MemoryError::Limit => StartError::MemoryLimit,
            MemoryError::Denied => StartError::NoRoom { what: "the stack", end: stack_end },
        };
        guest::write(memory, strings, &self.strings).map_err(failed)?;
        guest::write_words(memory, sp, &words).map_err(failed)?;
        Ok((sp, Range { address: strings + self.random, length: RANDOM_LENGTH as u64 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_path_is_absolute() {
        for (given, path) in [
            ("program", "/program"),
            ("./bin/program", "/bin/program"),
            ("../program", "/program"),
            ("/bin//program", "/bin/program"),
            ("", "/"),
        ] {
            assert_eq!(absolute(given), path.as_bytes(), "{given}");
        }
    }
}
