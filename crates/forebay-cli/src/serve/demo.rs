//! `serve --demo`: a sample origin behind the cache, and what to try with the two.

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

/// How much a demonstration may store on disk.
const DISK_SIZE: &str = "1GiB";

/// How many directories are tried: others were left by demonstrations that were killed.
const FOLDERS_MAX: u32 = 100;

/// What their names begin with; the process and a number follow.
const NAME_PREFIX: &str = "forebay-demo-";

/// The directory of the disk tier, which goes away with the demonstration.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Makes it and puts the disk tier there, unless one was asked for.
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
                eprintln!("forebay: no temporary directory, so there is no disk tier: {error}");
                None
            }
        }
    }

    fn make() -> std::io::Result<Self> {
        let mut builder = DirBuilder::new();
        // Others on this machine have no business in what is stored.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        for number in 0..FOLDERS_MAX {
            let name = format!("{NAME_PREFIX}{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            // One that is there already is somebody else's, whatever it looks like.
            match builder.create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// Removes what demonstrations have left that were killed. What cannot be removed stays.
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
            tracing::warn!(path = %self.0.display(), %error, "a temporary directory stays");
        }
    }
}

/// The sample origin of a demonstration.
pub(crate) struct Demo(SampleOrigin);

impl Demo {
    /// Starts it on a free port and makes it the origin.
    pub(crate) fn bind(overrides: &mut Overrides) -> anyhow::Result<Self> {
        let origin = SampleOrigin::bind(SocketAddr::from(([127, 0, 0, 1], 0)));
        let origin = origin.context("the sample origin cannot listen on 127.0.0.1")?;
        overrides.origin = Some(format!("http://{}", origin.local_addr()));
        Ok(Self(origin))
    }

    /// Prints what to try.
    pub(crate) fn explain(&self, listeners: &Listeners, admin: SocketAddr) {
        let Some(cache) = listeners.addresses().next() else { return };
        // However this program was called, the same words will call it again.
        let forebay = std::env::args().next().unwrap_or_else(|| "forebay".to_owned());
        println!(
            "\n\
             A sample origin stands behind it; each of its answers tells how often it was asked.\n\
             \n\
             Try, in another terminal:\n\
             \n  \
               # twice: the second time, Cache-Status says that it was a hit\n  \
               curl -i 'http://{cache}/items/hello'\n\
             \n  \
               # this one takes a second; whoever asks meanwhile shares the answer\n  \
               curl -i 'http://{cache}/items/slow?delay=1000'\n\
             \n  \
               # a body of 1 MiB\n  \
               curl -s 'http://{cache}/items/big?size=1048576' | wc -c\n\
             \n  \
               # forget the first one; then its first curl is a miss again\n  \
               {forebay} purge --hard --url 'http://{cache}/items/hello' --admin 'http://{admin}'\n\
             \n\
             Dashboard: http://{admin}/    Counters: http://{admin}/metrics    Stop: Ctrl-C",
        );
    }

    /// Runs the origin, without end.
    pub(crate) async fn run(self) {
        self.0.run(std::future::pending()).await;
    }
}
