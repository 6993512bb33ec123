//! What the kernel says about this process (proc(5)).

use std::fs;

/// Ticks a second in proc(5): `USER_HZ`, which is 100 on all machines that Linux runs on today.
const TICKS: f64 = 100.0;

/// The fields that are of interest. What could not be read is zero.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
    pub(super) threads: u64,
    /// Seconds since 1970.
    pub(super) start_time: f64,
}

impl Process {
    pub(super) fn read() -> Self {
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let status = text("self/status");
        let kib = |name| number_after(&status, name).unwrap_or(0) << 10;
        let stat = text("self/stat");
        let ticks = |field| stat_field(&stat, field).unwrap_or(0) as f64 / TICKS;
        let booted = number_after(&text("stat"), "btime ").unwrap_or(0) as f64;
        Self {
            cpu_seconds: ticks(14) + ticks(15),
            resident_bytes: kib("VmRSS:"),
            virtual_bytes: kib("VmSize:"),
            open_fds: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            max_fds: number_after(&text("self/limits"), "Max open files").unwrap_or(0),
            threads: number_after(&status, "Threads:").unwrap_or(0),
            start_time: if booted > 0.0 { booted + ticks(22) } else { 0.0 },
        }
    }
}

/// The first number in the line that begins like this.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// A field of `/proc/self/stat`, by its number in proc(5). The second is in parentheses, and may
/// hold spaces.
fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(number.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(number_after("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(stat_field("1 (a) b) S 4 5 6", 4), Some(4));
        assert_eq!(stat_field("1 (x) S 4", 9), None);
    }

    #[test]
    fn this_process_is_alive() {
        let process = Process::read();
        assert!(process.resident_bytes > 0 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.open_fds > 2 && process.max_fds >= process.open_fds && process.threads > 0);
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        assert!(process.start_time > 0.0 && process.start_time <= now);
    }
}
