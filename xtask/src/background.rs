//! A server process that runs while other commands use it; its output goes to a file.
//!
//! A file needs no reader, so a server with much output never blocks, as it would on a pipe.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// A running server; stopped when dropped.
pub(crate) struct Background {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Background {
    /// Starts `command` with stdout and stderr in the file `log`.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let copy = file.try_clone().context("cannot copy a file handle")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Output so far.
    pub(crate) fn text(&self) -> Result<String> {
        let bytes = std::fs::read(&self.log)
            .with_context(|| format!("cannot read the output of {}", self.name))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until `wanted` returns a value for a complete line of the output.
    ///
    /// Fails when the server ends first or `limit` has passed.
    pub(crate) fn wait_for<T>(
        &mut self,
        limit: Duration,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let found = process::poll(limit, || {
            let ended = self.ended()?;
            let text = self.text()?;
            let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            match (complete.map(str::trim_end).find_map(&wanted), ended) {
                (Some(value), _) => Ok(Some(value)),
                (None, Some(status)) => bail!("{} ended ({status}):\n{text}", self.name),
                (None, None) => Ok(None),
            }
        })?;
        match found {
            Some(value) => Ok(value),
            None => bail!("{} is not ready after {limit:?}:\n{}", self.name, self.text()?),
        }
    }

    /// Exit status, if the server has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot ask for the status of {}", self.name))
    }

    /// Stops the server and returns its exit status.
    pub(crate) fn stop(mut self) -> Result<ExitStatus> {
        process::stop(&mut self.child).with_context(|| format!("stop {}", self.name))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // An earlier failure is the one to report.
        let _ = process::stop(&mut self.child);
    }
}
