//! What a file of the cache looks like.
//!
//! ```text
//!  offset  bytes
//!       0      8  "sandtide"
//!       8      8  format, little-endian
//!      16     32  key: what it is the translation of
//!      48     32  SHA-256 of all other bytes
//!      80      …  the translation (postcard)
//! ```
//!
//! The hash finds damage, not forgery: whoever may write the file can make it fit.

use sha2::{Digest as _, Sha256};

use super::key::Key;
use crate::translate::Artifact;

const MAGIC: &[u8; 8] = b"sandtide";
const FORMAT: u64 = 1;
const HEADER: usize = 80;

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it is cut off")]
    Short,
    #[error("it is not a translation")]
    Foreign,
    #[error("it has another format")]
    Format,
    #[error("it is the translation of something else")]
    OtherKey,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it cannot be read as a translation")]
    Content,
}

/// The bytes of a file.
pub(super) fn encode(key: &Key, artifact: &Artifact) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER + artifact.bytes() as usize);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&key.0);
    bytes.resize(HEADER, 0);
    let mut bytes = postcard::to_extend(artifact, bytes).ok()?;
    let checksum = checksum(&bytes);
    bytes[HEADER - 32..HEADER].copy_from_slice(&checksum);
    Some(bytes)
}

/// The translation with this key in the bytes of a file.
pub(super) fn decode(key: &Key, bytes: &[u8]) -> Result<Artifact, Damage> {
    let (header, payload) = bytes.split_at_checked(HEADER).ok_or(Damage::Short)?;
    if &header[..8] != MAGIC {
        return Err(Damage::Foreign);
    }
    if header[8..16] != FORMAT.to_le_bytes() {
        return Err(Damage::Format);
    }
    if header[16..48] != key.0 {
        return Err(Damage::OtherKey);
    }
    if header[48..] != checksum(bytes) {
        return Err(Damage::Checksum);
    }
    match postcard::take_from_bytes::<Artifact>(payload) {
        Ok((artifact, [])) if artifact.is_consistent() => Ok(artifact),
        _ => Err(Damage::Content),
    }
}

/// Of a file of at least a header.
fn checksum(bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&bytes[..HEADER - 32]);
    hash.update(&bytes[HEADER..]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::translate::tests::artifact;

    const KEY: Key = Key([7; 32]);

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let bytes = encode(&KEY, &artifact()).unwrap();
        assert_eq!(decode(&KEY, &bytes), Ok(artifact()));
        assert_eq!(decode(&Key([8; 32]), &bytes), Err(Damage::OtherKey));
        assert_eq!(decode(&KEY, b""), Err(Damage::Short));
        assert_eq!(decode(&KEY, &[0; 100]), Err(Damage::Foreign));
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(decode(&KEY, &longer), Err(Damage::Checksum));
    }

    /// A file with this content, and a checksum that fits.
    fn forged(payload: &[u8]) -> Vec<u8> {
        let mut bytes = encode(&KEY, &artifact()).unwrap();
        bytes.truncate(HEADER);
        bytes.extend_from_slice(payload);
        let checksum = checksum(&bytes);
        bytes[HEADER - 32..HEADER].copy_from_slice(&checksum);
        bytes
    }

    proptest! {
        #[test]
        fn every_damaged_byte_is_found(place in any::<prop::sample::Index>(), bit in 0u32..8) {
            let mut bytes = encode(&KEY, &artifact()).unwrap();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            prop_assert!(decode(&KEY, &bytes).is_err());
        }

        #[test]
        fn every_cut_is_found(length in any::<prop::sample::Index>()) {
            let bytes = encode(&KEY, &artifact()).unwrap();
            prop_assert!(decode(&KEY, &bytes[..length.index(bytes.len())]).is_err());
        }

        #[test]
        fn any_content_is_read_or_refused(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(artifact) = decode(&KEY, &forged(&payload)) {
                prop_assert!(artifact.is_consistent());
            }
        }
    }
}
