//! `forebay completions` and the manual pages.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;

/// Prints the completions of a shell.
///
/// # Errors
/// If writing fails for another reason than a closed pipe.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "forebay", &mut script);
    match std::io::stdout().lock().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}

/// Writes the manual pages of the command and of each subcommand to a folder.
///
/// # Errors
/// If the folder cannot be written.
pub(crate) fn write_pages(folder: &Path) -> anyhow::Result<u8> {
    clap_mangen::generate_to(Args::command(), folder)
        .with_context(|| format!("manual pages cannot be written to {}", folder.display()))?;
    Ok(0)
}
