//! Byte classes of the HTTP grammar, as lookup tables: one load per byte.

/// Returns `true` if the byte is allowed in a token, such as a method or a field name (RFC 9110,
/// 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// Returns `true` if the byte is allowed in `uri-host [ ":" port ]` (RFC 3986, 3.2.2; RFC 9110,
/// 7.2).
pub(super) fn is_authority(byte: u8) -> bool {
    AUTHORITY[usize::from(byte)]
}

/// Returns `true` if the byte is allowed in both a path and a query (RFC 3986, 3.3 and 3.4), or is
/// commonly accepted there.
pub(super) fn is_plain_target(byte: u8) -> bool {
    PLAIN_TARGET[usize::from(byte)]
}

/// Returns `true` if the byte is not allowed in a field value: a control byte other than a tab (RFC
/// 9110, 5.5).
pub(super) const fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7F
}

static PLAIN_TARGET: [bool; 256] = alphanumeric_and(b"!$%&'()*+,-./:;=@[\\]^_|~");

static TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// No `@`: user information is not part of `Host`. No `/` or `\`: one party could read a path where
/// another reads a host.
static AUTHORITY: [bool; 256] = alphanumeric_and(b"-._~%!$&'()*+,;=:[]");

const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}
