//! Heads that hyper does not write.

use sandtide_engine::ResponseHead;

/// The bytes of a response's head in HTTP/1.1 (RFC 9112 §4). The types of names and values let no
/// line break through.
pub(crate) fn encode(head: &ResponseHead) -> Vec<u8> {
    let ResponseHead { status, headers } = head;
    let mut bytes = Vec::new();
    let reason = status.canonical_reason().unwrap_or_default();
    for part in [b"HTTP/1.1 ", status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"] {
        bytes.extend_from_slice(part);
    }
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}
