//! Files that every guest has: devices, and the few texts that C libraries look for.

use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::{
    Architecture, Errno, PAGE, Protection,
    calls::{identity::release, time::Clock},
    fresh::hooks,
    kernel::Kernel,
    vfs::{ExchangeFile, Source},
};

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Device {
    Null,
    Zero,
    Full,
    Random,
    /// Memory that is read from it is kept fresh (`fresh`).
    Fresh,
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
    ProcessorInfo,
    Usage,
    Pages,
    Uptime,
    Fixed(&'static str),
}

/// What a C library looks up, in files that on a machine would say who its users and neighbours are.
/// A dynamically linked one takes them from there only.
const DATABASES: [(&str, &str); 2] = [
    ("/etc/passwd", "root:x:0:0:root:/:/bin/sh\nguest:x:1000:1000:guest:/tmp:/bin/sh\n"),
    ("/etc/group", "root:x:0:\nguest:x:1000:\n"),
];

/// The SDKs of languages that read a module when they start.
const MODULES: [(&str, &str); 3] = [
    ("/sandtide/sandtide.py", include_str!("../../../../sdk/python/sandtide.py")),
    ("/sandtide/sandtide.js", include_str!("../../../../sdk/js/sandtide.js")),
    // Says that the one before it is a module.
    ("/sandtide/package.json", include_str!("../../../../sdk/js/package.json")),
];

/// How names become addresses. The name server is an emulated one, which answers for those that the
/// guest may reach.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const SERVICES: &str = "passwd: files\ngroup: files\nhosts: files dns\n";
const RESOLVER: &str = "nameserver 127.0.0.53\n";

/// What is mounted in every guest, and what only in those that load libraries, and in those whose
/// interpreters are to seed themselves.
pub(super) fn mounts(
    program: &[u8],
    libraries: bool,
    reseed: bool,
) -> impl Iterator<Item = (&'static str, Source)> {
    let fixed = |text| Source::Text(Text::Fixed(text));
    let databases = DATABASES.into_iter().chain(MODULES).filter(move |_| libraries);
    let hooks = hooks::FILES.into_iter().filter(move |_| reseed);
    let texts = databases.chain(hooks).map(move |(path, text)| (path, fixed(text)));
    [
        ("/tmp", Source::Scratch),
        ("/etc/hosts", fixed(HOSTS)),
        ("/etc/nsswitch.conf", fixed(SERVICES)),
        ("/etc/resolv.conf", fixed(RESOLVER)),
        ("/dev/null", Source::Device(Device::Null)),
        ("/dev/zero", Source::Device(Device::Zero)),
        ("/dev/full", Source::Device(Device::Full)),
        ("/dev/random", Source::Device(Device::Random)),
        ("/dev/urandom", Source::Device(Device::Random)),
        (hooks::FRESH, Source::Device(Device::Fresh)),
        ("/proc/self/exe", Source::Link(program.to_vec())),
        ("/proc/self/cmdline", Source::Text(Text::CommandLine)),
        ("/proc/self/maps", Source::Text(Text::Maps)),
        ("/proc/self/stat", Source::Text(Text::Stat)),
        ("/proc/self/status", Source::Text(Text::Status)),
        ("/proc/meminfo", Source::Text(Text::MemoryInfo)),
        ("/proc/self/statm", Source::Text(Text::Pages)),
        ("/proc/100", Source::Link(b"/proc/self".to_vec())),
        ("/proc/cpuinfo", Source::Text(Text::ProcessorInfo)),
        ("/proc/stat", Source::Text(Text::Usage)),
        ("/proc/uptime", Source::Text(Text::Uptime)),
        ("/proc/version", fixed(VERSION)),
        ("/proc/sys/kernel/osrelease", fixed(concat!(release!(), "\n"))),
        ("/proc/sys/net/core/somaxconn", fixed("4096\n")),
        // Heuristic: what a reservation may take is checked when it becomes writable.
        ("/proc/sys/vm/overcommit_memory", fixed("0\n")),
        ("/sys/devices/system/cpu/online", Source::Text(Text::Processors)),
        ("/sys/devices/system/cpu/possible", Source::Text(Text::Processors)),
    ]
    .into_iter()
    .chain(ExchangeFile::ALL.map(|file| (file.path(), Source::Exchange(file))))
    .chain(texts)
}

const VERSION: &str = concat!("Linux version ", release!(), " (sandtide) #1 Sandtide\n");

impl Device {
    /// Major and minor number.
    pub(crate) fn number(self) -> (u32, u32) {
        match self {
            Self::Null => (1, 3),
            Self::Zero => (1, 5),
            Self::Full => (1, 7),
            Self::Random => (1, 9),
            Self::Fresh => (10, 240),
        }
    }

    pub(crate) fn read(self, buffer: &mut [u8], random: &mut dyn RngCore) -> usize {
        match self {
            Self::Null => return 0,
            Self::Zero | Self::Full => buffer.fill(0),
            Self::Random | Self::Fresh => random.fill_bytes(buffer),
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
                // Fields 7 to 52 (`proc(5)`); of these, programs look at 20, 23 and 24.
                let size: u64 = self.space.areas().iter().map(|area| area.end - area.start).sum();
                let used = total.saturating_sub(available) / PAGE;
                let (before, after) = (" 0".repeat(13), " 0".repeat(28));
                let (name, threads) = (self.name(), self.threads.count());
                let pid = self.pid.known();
                format!(
                    "{pid} ({name}) R 1 {pid} {pid}{before} {threads} 0 0 {size} {used}{after}\n"
                )
                .into_bytes()
            }
            Text::Status => format!(
                "Name:\t{}\nState:\tR (running)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t1\nThreads:\t{}\n",
                self.name(),
                self.threads.count(),
                pid = self.pid.known()
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
            Text::ProcessorInfo => match self.fixed.architecture {
                Architecture::Riscv64 => "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64gc\n\n".into(),
                Architecture::X86_64 => {
                    "processor\t: 0\nmodel name\t: x86-64\ncpu MHz\t\t: 1000.000\n\n".into()
                }
            },
            // No time is counted for the machine as a whole.
            Text::Usage => {
                let zeros = " 0".repeat(10);
                format!("cpu {zeros}\ncpu0{zeros}\nbtime 0\nprocesses 1\n").into_bytes()
            }
            Text::Pages => {
                let size: u64 = self.space.areas().iter().map(|area| area.end - area.start).sum();
                let used = total.saturating_sub(available) / PAGE;
                format!("{} {used} 0 0 0 {used} 0\n", size / PAGE).into_bytes()
            }
            Text::Uptime => {
                let up = self.clock(Clock::Boot).as_secs_f64();
                format!("{up:.2} 0.00\n").into_bytes()
            }
            Text::Fixed(text) => text.as_bytes().to_vec(),
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
