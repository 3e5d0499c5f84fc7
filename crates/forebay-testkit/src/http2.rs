//! Frames of HTTP/2, for clients that break its rules.

/// Preface of a client, before its SETTINGS (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Preface and empty SETTINGS of a client.
pub const START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Bytes of a body.
pub const DATA: u8 = 0;
/// Opens a stream.
pub const HEADERS: u8 = 1;
/// Ends a stream.
pub const RST_STREAM: u8 = 3;
/// Parameters of the connection.
pub const SETTINGS: u8 = 4;
/// Asks for an answer.
pub const PING: u8 = 6;
/// Ends the connection.
pub const GOAWAY: u8 = 7;
/// Continues a field block.
pub const CONTINUATION: u8 = 9;

/// Returns a frame of HTTP/2 (RFC 9113 section 4.1).
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a literal field without indexing (RFC 7541 section 6.2.2).
#[must_use]
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap_or(126);
    let mut bytes = vec![0, length(name)];
    bytes.extend(name.bytes());
    bytes.push(length(value));
    bytes.extend(value.bytes());
    bytes
}

/// Returns the field block of a GET with further fields.
#[must_use]
pub fn head(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let start = [(":method", "GET"), (":scheme", "http"), (":path", path)];
    let all = start.iter().chain([&(":authority", "a.example")]).chain(more);
    all.flat_map(|(name, value)| field(name, value)).collect()
}
