//! `sandtide run --profile`: where the program has spent its instructions, for people and for
//! flame graphs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, Write},
};

use sandtide_engine::Profile;

/// Functions that the table shows.
const MOST: usize = 25;

/// What was spent in one function.
#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    /// In its own instructions.
    own: u64,
    /// In them and in all that it called.
    with_callees: u64,
    /// Of its own, those that were translated.
    translated: u64,
}

/// A profile as a table: the hottest functions first.
pub struct Table<'a>(pub &'a Profile);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Profile { time, instructions, translated, samples, stacks } = self.0;
        write!(
            f,
            "profile: {} instructions in {:.3} s",
            grouped(*instructions),
            time.as_secs_f64()
        )?;
        let in_translated = percent(*translated, *instructions);
        writeln!(f, ", {in_translated} in translated code; {} samples", grouped(*samples))?;
        let mut functions = BTreeMap::<&str, Spent>::new();
        for stack in stacks {
            if let Some(innermost) = stack.functions.first() {
                let spent = functions.entry(innermost).or_default();
                spent.own += stack.instructions;
                spent.translated += stack.translated;
            }
            // A recursive function is in a stack more than once.
            for function in stack.functions.iter().collect::<BTreeSet<_>>() {
                functions.entry(function).or_default().with_callees += stack.instructions;
            }
        }
        let total: u64 = stacks.iter().map(|stack| stack.instructions).sum();
        let mut sorted: Vec<_> = functions.into_iter().collect();
        sorted.sort_by_key(|(_, spent)| std::cmp::Reverse((spent.own, spent.with_callees)));
        let is_shown = |spent: &Spent| share(spent.own.max(spent.with_callees), total) >= 0.0005;
        let shown = sorted.iter().filter(|(_, spent)| is_shown(spent)).take(MOST).count();
        if shown > 0 {
            writeln!(f, "\n{:>8} {:>13} {:>11}  function", "own", "with callees", "translated")?;
        }
        for (name, spent) in &sorted[..shown] {
            let own = percent(spent.own, total);
            let with_callees = percent(spent.with_callees, total);
            let translated = match spent.own {
                0 => String::new(),
                own => format!("{:.0} %", 100.0 * share(spent.translated, own)),
            };
            writeln!(f, "{own:>8} {with_callees:>13} {translated:>11}  {name}")?;
        }
        if sorted.len() > shown {
            let rest: u64 = sorted[shown..].iter().map(|(_, spent)| spent.own).sum();
            writeln!(f, "{:>8} {:>25}  ({} more)", percent(rest, total), "", sorted.len() - shown)?;
        }
        Ok(())
    }
}

/// Writes a profile as folded stacks, one a line with its instructions, outermost function first:
/// what `flamegraph.pl`, `inferno` and speedscope read.
pub fn fold(profile: &Profile, to: &mut dyn Write) -> io::Result<()> {
    for stack in &profile.stacks {
        let functions: Vec<&str> = stack.functions.iter().rev().map(String::as_str).collect();
        // What separates functions there is no part of a name here.
        let line = functions.iter().map(|name| name.replace([';', '\n'], ":")).collect::<Vec<_>>();
        writeln!(to, "{} {}", line.join(";"), stack.instructions)?;
    }
    Ok(())
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * share(part, whole))
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b',')).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use insta::assert_snapshot;
    use sandtide_engine::SampledStack;

    use super::*;

    fn profile() -> Profile {
        let stack = |functions: &[&str], instructions, translated| SampledStack {
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            instructions,
            translated,
        };
        Profile {
            time: Duration::from_millis(1234),
            instructions: 1_000_500,
            translated: 600_000,
            samples: 1002,
            stacks: vec![
                stack(&["fibonacci", "fibonacci", "fibonacci", "main"], 600_000, 600_000),
                stack(&["0x10a4", "main"], 300_000, 0),
                stack(&["main"], 100_000, 50_000),
                stack(&["_start"], 100, 0),
            ],
        }
    }

    #[test]
    fn hottest_functions_come_first() {
        assert_snapshot!(Table(&profile()), @"
        profile: 1,000,500 instructions in 1.234 s, 60.0 % in translated code; 1,002 samples

             own  with callees  translated  function
          60.0 %        60.0 %       100 %  fibonacci
          30.0 %        30.0 %         0 %  0x10a4
          10.0 %       100.0 %        50 %  main
           0.0 %                            (1 more)
        ");
    }

    #[test]
    fn a_run_without_samples_has_no_table() {
        assert_snapshot!(Table(&Profile::default()), @"
        profile: 0 instructions in 0.000 s, 0.0 % in translated code; 0 samples
        ");
    }

    #[test]
    fn folded_stacks_begin_with_the_outermost_function() {
        let mut text = Vec::new();
        fold(&profile(), &mut text).unwrap();
        assert_snapshot!(String::from_utf8(text).unwrap(), @"
        main;fibonacci;fibonacci;fibonacci 600000
        main;0x10a4 300000
        main 100000
        _start 100
        ");
    }
}
