//! A child that stays while others are run against it; what it prints goes to a file.
//!
//! A file, not a pipe: nobody has to drain it, so a server that talks a lot never blocks.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// A running child; dropped, it is asked to end, and killed by its pid if it does not.
pub(crate) struct Background {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Background {
    /// Starts `command`; both of its streams are written to the file `log`.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let copy = file.try_clone().context("copy a file handle")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub(crate) fn text(&self) -> Result<String> {
        let bytes =
            std::fs::read(&self.log).with_context(|| format!("read what {} printed", self.name))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for something that `wanted` finds in a complete line of what it prints.
    ///
    /// Fails when it ends before, or when `limit` has passed.
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

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("look after {}", self.name))
    }

    /// Ends it and tells how it ended.
    pub(crate) fn stop(mut self) -> Result<ExitStatus> {
        process::stop(&mut self.child).with_context(|| format!("end {}", self.name))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Already on the way out; the failure worth reporting is the one that led here.
        let _ = process::stop(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const LIMIT: Duration = Duration::from_secs(60);

    fn start(script: &str) -> (Background, Scratch) {
        let scratch = Scratch::new("background").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let log = scratch.path().join("log");
        (Background::start("a script", &mut command, &log).unwrap(), scratch)
    }

    #[test]
    fn a_line_is_found_once_it_is_complete() {
        let (mut running, _scratch) = start("echo warming; echo 'ready: 7'; exec sleep 1000");
        let port =
            running.wait_for(LIMIT, |line| line.strip_prefix("ready: ")?.parse::<u16>().ok());
        assert_eq!(port.unwrap(), 7);
        assert!(running.text().unwrap().starts_with("warming\n"));
        assert!(!running.stop().unwrap().success());
    }

    #[test]
    fn ending_early_is_an_error_with_the_output() {
        let (mut running, _scratch) = start("echo cannot bind; exit 1");
        let error = running.wait_for(LIMIT, |line| (line == "ready").then_some(())).unwrap_err();
        assert!(error.to_string().contains("cannot bind"), "{error}");
    }

    #[test]
    fn a_line_that_never_comes_is_an_error() {
        let (mut running, _scratch) = start("printf ready; exec sleep 1000");
        let wanted = |line: &str| (line == "ready").then_some(());
        assert!(running.wait_for(Duration::ZERO, wanted).is_err());
    }
}
