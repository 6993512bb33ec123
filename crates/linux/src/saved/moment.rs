//! Instants on disk: nanoseconds from when the process stopped.

use std::time::{Duration, Instant};

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de, ser};

use super::context;

pub(crate) fn serialize<S: Serializer>(
    moment: &Option<Instant>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let stopped = context::stopped().ok_or(ser::Error::custom("no process is being kept"))?;
    let distance = moment.map(|moment| match moment.checked_duration_since(stopped) {
        Some(later) => (false, later),
        None => (true, stopped.duration_since(moment)),
    });
    distance.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Instant>, D::Error> {
    let stopped = context::stopped().ok_or(de::Error::custom("no process is being read"))?;
    let Some((is_earlier, distance)) = Option::<(bool, Duration)>::deserialize(deserializer)?
    else {
        return Ok(None);
    };
    let moment = match is_earlier {
        true => stopped.checked_sub(distance),
        false => stopped.checked_add(distance),
    };
    moment.map(Some).ok_or(de::Error::custom("an instant that cannot be"))
}
