//! Corpus files.
//!
//! A sample is bytes, and a reviewer reads text. So bytes are escaped as `\n`, `\r`, `\t`, `\\` and
//! `\xHH`. A line break in the file is ignored and only makes it readable.

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

/// Width of the lines of a written sample.
const WIDTH: usize = 90;

/// All samples of a directory, in the order of their names.
///
/// # Errors
///
/// If the directory or a file cannot be read, a file is malformed, or there is no file.
pub fn load(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(folder).map_err(|error| at(folder, &error.to_string()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    if paths.is_empty() {
        return Err(at(folder, "contains no sample"));
    }
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).map_err(|error| at(path, &error.to_string()))?;
        unescape(&text).ok_or_else(|| at(path, "not an escaped text"))
    };
    paths.iter().map(read).collect()
}

/// Writes an input to a directory, under a name derived from its bytes.
///
/// # Errors
///
/// If the file cannot be written.
pub fn keep(folder: &Path, input: &[u8]) -> io::Result<PathBuf> {
    let mut digest = DefaultHasher::new();
    input.hash(&mut digest);
    let path = folder.join(format!("found-{:016x}", digest.finish()));
    fs::write(&path, escape(input)).map_err(|error| at(&path, &error.to_string()))?;
    Ok(path)
}

fn at(path: &Path, says: &str) -> io::Error {
    io::Error::other(format!("{}: {says}", path.display()))
}

/// Escapes bytes as text.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (place, byte) in bytes.iter().enumerate() {
        let before = text.len();
        let is_last = place + 1 == bytes.len();
        // A line of the file may not end with white space, so a space there is escaped.
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            b' ' if !is_last && width + 1 < WIDTH => text.push(' '),
            b'!'..=b'~' => text.push(char::from(*byte)),
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
        width += text.len() - before;
        if (*byte == b'\n' || width >= WIDTH) && !is_last {
            text.push('\n');
            width = 0;
        }
    }
    text.push('\n');
    text
}

/// Bytes of an escaped text; `None` for an unknown escape or a character that is neither printable
/// ASCII nor a line break.
#[must_use]
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\n' | b'\r' => {}
            b'\\' => bytes.push(match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'\\' => b'\\',
                b'x' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
                _ => return None,
            }),
            b' '..=b'~' => bytes.push(byte),
            _ => return None,
        }
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn all_bytes_survive_escaping() {
        let mut dice = Dice::new(5);
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length).map(|_| dice.next().to_le_bytes()[0]).collect();
            let spaces = vec![b' '; length];
            for bytes in [bytes, spaces] {
                let text = escape(&bytes);
                assert_eq!(unescape(&text), Some(bytes));
                let is_tidy = |line: &str| line.len() < 100 && !line.ends_with(' ');
                assert!(text.lines().all(is_tidy), "{text}");
            }
        }
    }

    #[test]
    fn line_breaks_in_a_file_are_ignored() {
        assert_eq!(unescape("a: b\\r\\n\r\n\\r\\n\n").as_deref(), Some(&b"a: b\r\n\r\n"[..]));
        assert_eq!(unescape("\\x00\\xfF").as_deref(), Some(&[0, 255][..]));
        for text in ["\\", "\\q", "\\x", "\\x0", "\\xg0", "\t", "\u{e9}"] {
            assert_eq!(unescape(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_empty_or_missing_folder_is_an_error() {
        let nowhere = Path::new(env!("CARGO_MANIFEST_DIR")).join("nowhere");
        assert!(load(&nowhere).unwrap_err().to_string().contains("nowhere"));
    }
}
