//! `serve --demo`: a sample origin behind the cache, and what to try with the two.

use std::net::SocketAddr;

use anyhow::Context;

use super::listen::Listeners;
use crate::config::plan::Overrides;
use crate::origin::SampleOrigin;

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
