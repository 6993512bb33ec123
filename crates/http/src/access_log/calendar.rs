//! Dates for log lines, in UTC.

use std::fmt::Write as _;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A second as both formats write it, without the zone and the fraction.
#[derive(Debug, Default)]
pub(super) struct Second {
    /// Since 1970.
    seconds: u64,
    /// `10/Oct/2000:13:55:36`
    pub(super) common: String,
    /// `2000-10-10T13:55:36`
    pub(super) iso: String,
}

impl Second {
    /// Becomes the second that is so many after the beginning of 1970, if it is another.
    pub(super) fn set(&mut self, seconds: u64) {
        if self.seconds == seconds && !self.iso.is_empty() {
            return;
        }
        self.seconds = seconds;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let name = MONTHS[month as usize - 1];
        self.common.clear();
        self.iso.clear();
        // Writing to a String cannot fail.
        let _ = write!(self.common, "{day:02}/{name}/{year}:{hour:02}:{minute:02}:{second:02}");
        let _ = write!(self.iso, "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    }
}

/// The date that is so many days after 1970-01-01, in the Gregorian calendar.
///
/// Counts in years that begin in March, so that a leap day is the last of its year
/// (H. Hinnant, *chrono-Compatible Low-Level Date Algorithms*).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + 400 * era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (seconds, iso, common) in [
            (0, "1970-01-01T00:00:00", "01/Jan/1970:00:00:00"),
            (951_782_400, "2000-02-29T00:00:00", "29/Feb/2000:00:00:00"),
            (951_868_799, "2000-02-29T23:59:59", "29/Feb/2000:23:59:59"),
            (971_186_136, "2000-10-10T13:55:36", "10/Oct/2000:13:55:36"),
            (1_709_164_800, "2024-02-29T00:00:00", "29/Feb/2024:00:00:00"),
            (4_107_542_399, "2100-02-28T23:59:59", "28/Feb/2100:23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00", "01/Mar/2100:00:00:00"),
        ] {
            let mut second = Second::default();
            second.set(seconds);
            assert_eq!((second.iso.as_str(), second.common.as_str()), (iso, common));
        }
    }

    /// Each day follows the one before it.
    #[test]
    fn no_day_is_left_out() {
        for days in 0..100_000 {
            let ((year, month, day), next) = (civil(days), civil(days + 1));
            let is_next = next == (year, month, day + 1)
                || next == (year, month + 1, 1)
                || next == (year + 1, 1, 1);
            assert!(is_next && day <= 31 && month <= 12, "{days}");
        }
    }
}
