//! Corpus files.
//!
//! A sample is bytes, and a reviewer reads text. So bytes are escaped as `\n`, `\r`, `\t`, `\\` and
//! `\xHH`. A line break in the file is ignored and only makes it readable.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bstr::{ByteSlice as _, ByteVec as _};

/// Returns all samples of a directory, unescaped, in the order of their names.
///
/// # Errors
///
/// If the directory or a file cannot be read, or there is no file.
pub fn load(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    ensure!(!paths.is_empty(), "{} contains no sample", folder.display());
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Vec::unescape_bytes(text.replace('\n', "")))
    };
    paths.iter().map(read).collect()
}

/// Writes an input to a directory, escaped, under a name derived from its bytes. Returns the path.
///
/// # Errors
///
/// If the file cannot be written.
pub fn keep(folder: &Path, input: &[u8]) -> Result<PathBuf> {
    let mut digest = DefaultHasher::new();
    input.hash(&mut digest);
    let path = folder.join(format!("found-{:016x}", digest.finish()));
    fs::write(&path, escape(input)).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Escapes bytes as text. No line of it ends with white space.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let text = bytes.escape_bytes().to_string().replace("\\n", "\\n\n");
    match text.trim_end_matches('\n').strip_suffix(' ') {
        Some(rest) => format!("{rest}\\x20\n"),
        None => format!("{}\n", text.trim_end_matches('\n')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_survive_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<u8> = (0..=255).chain(*b"\\n\\\\n \n\n ").collect();
        keep(folder.path(), &all).unwrap();
        assert_eq!(load(folder.path()).unwrap(), [all]);
    }
}
