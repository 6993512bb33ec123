//! Text from clients in a line. Whatever they send stays in its field: what could end the field or
//! the line, or move a terminal's cursor, is written as an escape, so that a line is ASCII.

/// Appends bytes as the content of a JSON string. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn json(line: &mut Vec<u8>, bytes: &[u8]) {
    if is_plain(bytes) {
        line.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars();
        let invalid = (!chunk.invalid().is_empty()).then_some('\u{fffd}');
        for c in valid.chain(invalid) {
            match c {
                '"' | '\\' => line.extend_from_slice(&[b'\\', c as u8]),
                ' '..='~' => line.push(c as u8),
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        line.extend_from_slice(b"\\u");
                        unit.to_be_bytes().into_iter().for_each(|byte| hex(line, byte));
                    }
                }
            }
        }
    }
}

/// Appends bytes as Apache does within quotes: `\"`, `\\`, and `\xhh` for what is not printable.
pub(super) fn common(line: &mut Vec<u8>, bytes: &[u8]) {
    if is_plain(bytes) {
        line.extend_from_slice(bytes);
        return;
    }
    for byte in bytes {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            b' '..=b'~' => line.push(*byte),
            _ => {
                line.extend_from_slice(b"\\x");
                hex(line, *byte);
            }
        }
    }
}

/// Whether nothing has to be escaped. Looks at all bytes, which is faster than to stop.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, byte| {
        plain & (*byte >= b' ') & (*byte <= b'~') & (*byte != b'"') & (*byte != b'\\')
    })
}

fn hex(line: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    line.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}
