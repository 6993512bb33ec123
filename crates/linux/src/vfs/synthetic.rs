//! Files that every guest has: devices, and the few texts that C libraries look for.

use rand::RngCore;

use crate::{
    Errno, Protection,
    kernel::{Kernel, PID},
    vfs::Source,
};

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    Null,
    Zero,
    Full,
    Random,
}

/// A text that is made when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    CommandLine,
    Maps,
    Stat,
    Status,
    MemoryInfo,
    Processors,
    OverCommit,
}

/// What is mounted in every guest.
pub(super) fn mounts(program: &[u8]) -> impl Iterator<Item = (&'static str, Source)> {
    [
        ("/tmp", Source::Scratch),
        ("/dev/null", Source::Device(Device::Null)),
        ("/dev/zero", Source::Device(Device::Zero)),
        ("/dev/full", Source::Device(Device::Full)),
        ("/dev/random", Source::Device(Device::Random)),
        ("/dev/urandom", Source::Device(Device::Random)),
        ("/proc/self/exe", Source::Link(program.to_vec())),
        ("/proc/self/cmdline", Source::Text(Text::CommandLine)),
        ("/proc/self/maps", Source::Text(Text::Maps)),
        ("/proc/self/stat", Source::Text(Text::Stat)),
        ("/proc/self/status", Source::Text(Text::Status)),
        ("/proc/meminfo", Source::Text(Text::MemoryInfo)),
        ("/proc/sys/vm/overcommit_memory", Source::Text(Text::OverCommit)),
        ("/sys/devices/system/cpu/online", Source::Text(Text::Processors)),
        ("/sys/devices/system/cpu/possible", Source::Text(Text::Processors)),
    ]
    .into_iter()
}

impl Device {
    /// Major and minor number.
    pub(crate) fn number(self) -> (u32, u32) {
        match self {
            Self::Null => (1, 3),
            Self::Zero => (1, 5),
            Self::Full => (1, 7),
            Self::Random => (1, 9),
        }
    }

    pub(crate) fn read(self, buffer: &mut [u8], random: &mut dyn RngCore) -> usize {
        match self {
            Self::Null => return 0,
            Self::Zero | Self::Full => buffer.fill(0),
            Self::Random => random.fill_bytes(buffer),
        }
        buffer.len()
    }

    /// Takes everything, or nothing.
    pub(crate) fn write(self) -> Result<(), Errno> {
        if self == Self::Full { Err(Errno::NOSPC) } else { Ok(()) }
    }
}

impl Kernel {
    /// The text as it is now.
    pub(crate) fn text(&self, text: Text, available: u64) -> Vec<u8> {
        let total = self.fixed.limits.memory;
        match text {
            Text::CommandLine => self.fixed.command_line.clone(),
            Text::Maps => self.maps(),
            Text::Stat => {
                let zeros = " 0".repeat(30);
                format!("{PID} ({}) R 1 {PID} {PID}{zeros}\n", self.name()).into_bytes()
            }
            Text::Status => format!(
                "Name:\t{}\nState:\tR (running)\nTgid:\t{PID}\nPid:\t{PID}\nPPid:\t1\nThreads:\t{}\n",
                self.name(),
                self.threads.count()
            )
            .into_bytes(),
            Text::MemoryInfo => format!(
                "MemTotal: {:>14} kB\nMemFree:  {:>14} kB\nMemAvailable: {:>10} kB\n",
                total / 1024,
                available.min(total) / 1024,
                available.min(total) / 1024
            )
            .into_bytes(),
            Text::Processors => b"0\n".to_vec(),
            // Heuristic: what a reservation may take is checked when it becomes writable.
            Text::OverCommit => b"0\n".to_vec(),
        }
    }

    fn name(&self) -> String {
        let name = self.threads.current().name;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }

    fn maps(&self) -> Vec<u8> {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        let line = |area: &crate::space::Area| {
            let Protection { read, write, execute } = area.kind.protection;
            let (read, write, execute) = (flag(read, 'r'), flag(write, 'w'), flag(execute, 'x'));
            let label = match (area.start, area.end) {
                (_, end) if end == self.space.search_start => "[stack]",
                (start, _) if start == self.space.brk_start => "[heap]",
                _ => "",
            };
            format!(
                "{:08x}-{:08x} {read}{write}{execute}p 00000000 00:00 0 {label}\n",
                area.start, area.end
            )
        };
        self.space.areas().iter().map(line).collect::<String>().into_bytes()
    }
}
