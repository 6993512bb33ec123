//! Open files of the host on disk: where the guest has found them.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de};

use super::context;
use crate::vfs::{HostFile, join};

pub(crate) fn serialize<S: Serializer>(
    file: &Arc<HostFile>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    file.path.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Arc<HostFile>, D::Error> {
    let path = join(&Vec::<Vec<u8>>::deserialize(deserializer)?);
    let fixed = context::fixed().ok_or(de::Error::custom("no process is being read"))?;
    let file = fixed.mounts.open_host_file(&path).map_err(|error| {
        let path = String::from_utf8_lossy(&path);
        de::Error::custom(format_args!("cannot open `{path}`: {error}"))
    })?;
    Ok(Arc::new(file))
}
