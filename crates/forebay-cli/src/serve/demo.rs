//! `serve --demo`: a sample origin behind the cache, and what to try with the two.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::sync::watch;

use super::listen::Listeners;
use crate::config::plan::Overrides;
use crate::origin::SampleOrigin;

/// The sample origin of a demonstration.
pub(crate) struct Demo(SampleOrigin);

impl Demo {
    /// Starts it on a free port and makes it the origin.
    pub(crate) async fn bind(overrides: &mut Overrides) -> anyhow::Result<Self> {
        if let Some(origin) = &overrides.origin {
            anyhow::bail!("--demo brings its own origin; leave out --origin {origin}, or --demo");
        }
        let origin = SampleOrigin::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let origin = origin.context("the sample origin cannot listen on 127.0.0.1")?;
        overrides.origin = Some(format!("http://{}", origin.local_addr()));
        Ok(Self(origin))
    }

    /// Prints what to try.
    pub(crate) fn explain(&self, listeners: &Listeners, admin: SocketAddr) {
        let Some(cache) = listeners.addresses().next() else { return };
        println!(
            "\n\
             A sample origin stands behind it; each of its answers tells how often it was asked.\n\
             \n\
             Try, in another terminal:\n\
             \n  \
               curl -i 'http://{cache}/items/hello'                     # twice: the second is a hit\n  \
               curl -i 'http://{cache}/items/slow?delay=1000'           # waits a second, once\n  \
               curl -s 'http://{cache}/items/big?size=1048576' | wc -c  # a body of 1 MiB\n  \
               forebay purge --url 'http://{cache}/items/hello' --admin 'http://{admin}'\n\
             \n\
             What it does: http://{admin}/    Counts: http://{admin}/metrics    Stop: Ctrl-C",
        );
    }

    /// Runs the origin until the cache stops.
    pub(crate) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let stop = async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        self.0.run(stop).await;
    }
}
