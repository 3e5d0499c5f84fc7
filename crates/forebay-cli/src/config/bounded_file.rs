//! Files of limited size that the configuration names, and the configuration itself.

use std::io::Read as _;
use std::path::Path;

/// Reads a file of at most `bytes_max` bytes.
pub(in crate::config) fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(std::io::Error::other(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}
