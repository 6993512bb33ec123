//! Arrays that are longer than serde knows them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(crate) fn serialize<S: Serializer, T: Serialize, const N: usize>(
    array: &[T; N],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    array.as_slice().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
    deserializer: D,
) -> Result<[T; N], D::Error> {
    let values = Vec::deserialize(deserializer)?;
    values.try_into().map_err(|_| de::Error::custom("an array of another length"))
}
