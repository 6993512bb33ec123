//! Integers, sizes and durations, with their ranges.

use std::{
    fmt::Display,
    num::{NonZeroU32, NonZeroUsize},
    ops::RangeInclusive,
    time::Duration,
};

use sandtide_engine::Requests;
use serde_json::{Value as Json, json};

use super::{Kind, Shown};
use crate::{
    problem::{Mistake, Mistakes},
    section::Definitions,
    units::{self, grouped, show_duration, show_size},
    value::Value,
    variables,
};

/// The types of fields that hold an integer.
pub(crate) trait Number: Copy + Display {
    fn to_u64(self) -> u64;
    fn from_u64(value: u64) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty: $to:expr, $from:expr;)*) => {
        $(impl Number for $type {
            fn to_u64(self) -> u64 {
                let to: fn(Self) -> u64 = $to;
                to(self)
            }
            fn from_u64(value: u64) -> Option<Self> {
                let from: fn(u64) -> Option<Self> = $from;
                from(value)
            }
        })*
    };
}

numbers! {
    u16: u64::from, |value| value.try_into().ok();
    u32: u64::from, |value| value.try_into().ok();
    u64: |value| value, Some;
    NonZeroU32: |value| value.get().into(), |value| Self::new(value.try_into().ok()?);
    NonZeroUsize: |value| value.get() as u64, |value| Self::new(value.try_into().ok()?);
}

/// An integer in a range.
pub(crate) struct Integer<T>(RangeInclusive<T>);

/// A whole number; TOML has none above `i64::MAX`, which therefore stands for no upper bound.
pub(crate) fn integer<T>(range: RangeInclusive<T>) -> Integer<T> {
    Integer(range)
}

const UNBOUNDED: u64 = i64::MAX as u64;

impl<T: Number> Kind for Integer<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Result<T, Mistakes> {
        let number = value.integer()?;
        let (least, most) = (self.0.start().to_u64(), self.0.end().to_u64());
        let inside = number.value.filter(|number| (least..=most).contains(number));
        Ok(inside.and_then(T::from_u64).ok_or_else(|| match most {
            UNBOUNDED.. => value.mistake(format_args!("{} is less than {least}", number.text)),
            _ => outside(value, &number.text, &least, &most),
        })?)
    }

    fn describe(&self) -> String {
        let (least, most) = (self.0.start().to_u64(), self.0.end().to_u64());
        match most {
            UNBOUNDED.. => format!("integer, at least {}", grouped(least)),
            _ => format!("integer, {} to {}", grouped(least), grouped(most)),
        }
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        let (least, most) = (self.0.start().to_u64(), self.0.end().to_u64());
        or_variable(json!({ "type": "integer", "minimum": least, "maximum": most }))
    }

    fn show(&self, value: &T) -> Shown {
        Shown::Value(json!(value.to_u64()))
    }
}

/// A number of bytes in a range.
pub(crate) struct Size<T>(RangeInclusive<T>);

pub(crate) fn size<T>(range: RangeInclusive<T>) -> Size<T> {
    Size(range)
}

impl<T: Number> Kind for Size<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>) -> Result<T, Mistakes> {
        let bytes = value.size()?;
        let (least, most) = (self.0.start().to_u64(), self.0.end().to_u64());
        let inside = Some(bytes).filter(|bytes| (least..=most).contains(bytes));
        Ok(inside.and_then(T::from_u64).ok_or_else(|| {
            outside(value, &show_size(bytes), &show_size(least), &show_size(most))
        })?)
    }

    fn describe(&self) -> String {
        let (least, most) = (self.0.start().to_u64(), self.0.end().to_u64());
        format!("size, {} to {}", show_size(least), show_size(most))
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        let (least, most) = (self.0.start().to_u64(), self.0.end().to_u64());
        let text = json!({ "type": "string", "pattern": units::SIZE_PATTERN });
        let bytes = json!({ "type": "integer", "minimum": least, "maximum": most });
        json!({ "anyOf": [text, bytes, variable()] })
    }

    fn show(&self, value: &T) -> Shown {
        Shown::Value(json!(show_size(value.to_u64()).to_string()))
    }
}

/// A duration in a range.
pub(crate) struct Time(RangeInclusive<Duration>);

pub(crate) fn duration(range: RangeInclusive<Duration>) -> Time {
    Time(range)
}

impl Kind for Time {
    type Value = Duration;

    fn read(&self, value: &Value<'_>) -> Result<Duration, Mistakes> {
        let time = value.duration()?;
        if !self.0.contains(&time) {
            let [least, most] = [self.0.start(), self.0.end()].map(|time| show_duration(*time));
            return Err(outside(value, &show_duration(time), &least, &most).into());
        }
        Ok(time)
    }

    fn describe(&self) -> String {
        let [least, most] = [self.0.start(), self.0.end()].map(|time| show_duration(*time));
        format!("duration, {least} to {most}")
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        or_variable(json!({ "type": "string", "pattern": units::DURATION_PATTERN }))
    }

    fn show(&self, value: &Duration) -> Shown {
        Shown::Value(json!(show_duration(*value).to_string()))
    }
}

/// A duration, or `"never"`, which is `None`.
pub(crate) struct OrNever(Time);

pub(crate) fn or_never(duration: Time) -> OrNever {
    OrNever(duration)
}

impl Kind for OrNever {
    type Value = Option<Duration>;

    fn read(&self, value: &Value<'_>) -> Result<Option<Duration>, Mistakes> {
        if value.is_string() {
            let text = value.string()?;
            if text == "never" {
                return Ok(None);
            }
            if let Err(error) = units::duration(&text) {
                let hint = "write a whole number and a unit, such as `10 min`, or `never`";
                return Err(value.mistake(error).hint(hint).into());
            }
        }
        self.0.read(value).map(Some)
    }

    fn describe(&self) -> String {
        format!("{}, or `\"never\"`", self.0.describe())
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [self.0.schema(definitions), { "const": "never" }] })
    }

    fn show(&self, value: &Option<Duration>) -> Shown {
        match value {
            Some(value) => self.0.show(value),
            None => Shown::Value(json!("never")),
        }
    }
}

/// A number of requests, or `"auto"`.
pub(crate) struct OrAuto(Integer<u32>);

pub(crate) fn or_auto(integer: Integer<u32>) -> OrAuto {
    OrAuto(integer)
}

impl Kind for OrAuto {
    type Value = Requests;

    fn read(&self, value: &Value<'_>) -> Result<Requests, Mistakes> {
        if value.is_string() && value.string()? == "auto" {
            return Ok(Requests::UntilSteady);
        }
        self.0.read(value).map(Requests::Exactly)
    }

    fn describe(&self) -> String {
        format!("{}, or `\"auto\"`", self.0.describe())
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [self.0.schema(definitions), { "const": "auto" }] })
    }

    fn show(&self, value: &Requests) -> Shown {
        match value {
            Requests::Exactly(count) => self.0.show(count),
            Requests::UntilSteady => Shown::Value(json!("auto")),
        }
    }
}

fn outside(
    value: &Value<'_>,
    is: &dyn Display,
    least: &dyn Display,
    most: &dyn Display,
) -> Mistake {
    value.mistake(format_args!("{is} is outside {least} to {most}"))
}

/// A string with a variable of the environment in it, which may stand for anything.
fn variable() -> Json {
    json!({ "type": "string", "pattern": variables::PATTERN })
}

/// What a schema allows, or a variable.
pub(super) fn or_variable(schema: Json) -> Json {
    json!({ "anyOf": [schema, variable()] })
}
