//! `serve --demo`: a sample origin behind the cache, and example commands.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::listen::Listeners;
use crate::config::resolved::Overrides;
use crate::origin::SampleOrigin;
use crate::output::{print_error, print_line};

/// Size of the demo's disk tier.
const DISK_SIZE: &str = "1GiB";

/// Maximum number of directory names to try; killed demos may have left some behind.
const FOLDERS_MAX: u32 = 100;

/// Prefix of the directory names; the process id and a number follow.
const NAME_PREFIX: &str = "forebay-demo-";

/// Temporary directory of the disk tier, removed when it is dropped.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates the directory and sets it as the disk tier's path, unless a path was given.
    pub(crate) fn make_for(overrides: &mut Overrides) -> Option<Self> {
        if overrides.disk.is_some() {
            return None;
        }
        remove_abandoned();
        match Self::make() {
            Ok(folder) => {
                overrides.disk = Some(folder.0.to_str()?.to_owned());
                overrides.disk_size.get_or_insert_with(|| DISK_SIZE.to_owned());
                Some(folder)
            }
            Err(error) => {
                print_error(format_args!(
                    "forebay: the demo runs without a disk tier: no temporary directory can be \
                     created: {error}"
                ));
                None
            }
        }
    }

    fn make() -> std::io::Result<Self> {
        let mut builder = DirBuilder::new();
        // Only this user may read what is stored.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        for number in 0..FOLDERS_MAX {
            let name = format!("{NAME_PREFIX}{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            // An existing directory may belong to another user, so it is never reused.
            match builder.create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// Removes directories of demos whose process no longer exists. Failures are ignored.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| {
            let (process, _) = name.strip_prefix(NAME_PREFIX)?.split_once('-')?;
            Pid::from_raw(process.parse().ok()?)
        });
        if process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "temporary directory of the demo's \
                                                              disk tier not removed; delete it by \
                                                              hand");
        }
    }
}

/// Sample origin of a demo.
pub(crate) struct Demo(SampleOrigin);

impl Demo {
    /// Starts the origin on a free port and sets it as the origin of the cache.
    ///
    /// # Errors
    /// If no loopback port can be bound.
    pub(crate) fn bind(overrides: &mut Overrides) -> anyhow::Result<Self> {
        let origin = SampleOrigin::bind(SocketAddr::from(([127, 0, 0, 1], 0)));
        let origin = origin.context("the demo's sample origin cannot listen on 127.0.0.1")?;
        overrides.origin = Some(format!("http://{}", origin.local_addr()));
        Ok(Self(origin))
    }

    /// Prints example commands.
    pub(crate) fn explain(&self, listeners: &Listeners, admin: SocketAddr) {
        let Some(cache) = listeners.addresses().find_map(|address| address.tcp()) else { return };
        // The path that this process was called by works for the reader as well.
        let forebay = std::env::args().next().unwrap_or_else(|| "forebay".to_owned());
        print_line(format_args!(
            "\n\
             The cache serves a sample origin; each response contains the origin's request count.\n\
             \n\
             Try, in another terminal:\n\
             \n  \
               # twice: the second response is a hit (see Cache-Status)\n  \
               curl -i 'http://{cache}/items/hello'\n\
             \n  \
               # takes one second; requests that arrive meanwhile share the response\n  \
               curl -i 'http://{cache}/items/slow?delay=1000'\n\
             \n  \
               # a body of 1 MiB\n  \
               curl -s 'http://{cache}/items/big?size=1048576' | wc -c\n\
             \n  \
               # purge the first URL; its next request is a miss\n  \
               {forebay} purge --hard --url 'http://{cache}/items/hello' --admin 'http://{admin}'\n\
             \n\
             Dashboard: http://{admin}/    Metrics: http://{admin}/metrics    Stop: Ctrl-C",
        ));
    }

    /// Runs the origin until the process ends.
    pub(crate) async fn run(self) {
        self.0.run(std::future::pending()).await;
    }
}
