//! Sizes and durations as people write them: `64 MiB`, `500 ms`.

use std::{fmt, time::Duration};

/// Why a text is not a size or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UnitError {
    message: String,
    /// What to write instead.
    pub hint: String,
}

/// The units of a size, and how many bytes they are.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// The units of a duration, and how many microseconds they are.
const DURATIONS: [(&str, u64); 5] =
    [("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// What [`size`] reads, as a pattern (ECMA 262) for the schema; or a variable.
pub(crate) const SIZE_PATTERN: &str = r"^\s*\d+\s*([KMG]i)?B?\s*$";

/// What [`duration`] reads.
pub(crate) const DURATION_PATTERN: &str = r"^\s*\d+\s*(us|µs|μs|ms|s|min|h)\s*$";

/// Reads a size: a whole number with one of the units `B`, `KiB`, `MiB`, `GiB`, or a number of
/// bytes.
pub fn size(text: &str) -> Result<u64, UnitError> {
    quantity(text, "size", "64 MiB", &SIZES, Some("B"))
}

/// Reads a duration: a whole number with one of the units `us`, `ms`, `s`, `min`, `h`.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    quantity(text, "duration", "500 ms", &DURATIONS, None).map(Duration::from_micros)
}

/// Shows a size in the largest unit that divides it.
pub fn show_size(bytes: u64) -> impl fmt::Display {
    Shown { value: bytes, units: &SIZES }
}

/// Shows an integer with its digits in groups, as TOML allows, once there are many.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// Shows a duration in the largest unit that divides it, down to microseconds.
pub fn show_duration(duration: Duration) -> impl fmt::Display {
    Shown { value: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), units: &DURATIONS }
}

struct Shown {
    value: u64,
    units: &'static [(&'static str, u64)],
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, factor): &&(&str, u64)| self.value.is_multiple_of(factor);
        // Zero is a multiple of everything, and shown in the unit that stands alone.
        let unit = match self.value {
            0 => self.units.iter().find(|(name, _)| matches!(*name, "B" | "s")),
            _ => self.units.iter().find(fits),
        };
        match unit.or(self.units.last()) {
            Some((unit, factor)) => write!(f, "{} {unit}", self.value / factor),
            None => write!(f, "{}", self.value),
        }
    }
}

fn quantity(
    text: &str,
    kind: &str,
    example: &str,
    units: &[(&str, u64)],
    bare: Option<&str>,
) -> Result<u64, UnitError> {
    let error = |message: String, hint: String| Err(UnitError { message, hint });
    let write_so = || format!("write a whole number and a unit, such as `{example}`");
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    if number.is_empty() || unit.starts_with(['.', ',', '_']) {
        return error(format!("`{text}` is not a {kind}"), write_so());
    }
    let unit = match (unit.trim_start(), bare) {
        ("", None) => return error(format!("`{text}` has no unit"), write_so()),
        ("", Some(bare)) => bare,
        // The two ways to type a micro sign.
        ("µs" | "μs", _) => "us",
        (unit, _) => unit,
    };
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let names: Vec<_> = units.iter().rev().map(|(name, _)| format!("`{name}`")).collect();
        let hint = format!("the units are {}", names.join(", "));
        return error(format!("`{unit}` is not a unit of {kind}"), hint);
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor)) {
        Some(value) => Ok(value),
        None => error(format!("`{text}` is too large"), write_so()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_or_are_bytes() {
        assert_eq!(size("64 MiB"), Ok(64 << 20));
        assert_eq!(size(" 1GiB "), Ok(1 << 30));
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("0 B"), Ok(0));
        for bad in ["", "MiB", "-1 MiB", "1.5 MiB", "64 MB", "64 M", "1_000", "64 mib", "∞"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(
            size("17179869184 GiB").unwrap_err().to_string(),
            "`17179869184 GiB` is too large"
        );
        assert_eq!(size("64 MB").unwrap_err().hint, "the units are `B`, `KiB`, `MiB`, `GiB`");
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500 ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("250 µs"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("10").unwrap_err().to_string(), "`10` has no unit");
        assert_eq!(duration("10 sec").unwrap_err().to_string(), "`sec` is not a unit of duration");
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for bytes in [0, 1, 1023, 1024, 1536, 64 << 20, 3 << 30, u64::MAX] {
            assert_eq!(size(&show_size(bytes).to_string()), Ok(bytes));
        }
        for micros in [0, 1, 999, 1000, 60_000_000, 90_000_000, 7_200_000_000] {
            let time = Duration::from_micros(micros);
            assert_eq!(duration(&show_duration(time).to_string()), Ok(time));
        }
    }
}
