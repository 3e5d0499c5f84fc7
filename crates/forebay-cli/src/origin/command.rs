//! `forebay origin`.

use std::net::SocketAddr;

use anyhow::Context;

use super::SampleOrigin;
use crate::args::OriginArgs;
use crate::output::print_line;
use crate::stop::{Signals, raise_open_files};

/// Runs the sample origin until SIGTERM or SIGINT.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) fn run(args: &OriginArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime of the sample origin cannot be started")?;
    runtime.block_on(serve(args.listen))
}

async fn serve(listen: SocketAddr) -> anyhow::Result<u8> {
    raise_open_files();
    let mut signals = Signals::listen()?;
    let origin = SampleOrigin::bind(listen).map_err(|error| {
        anyhow::anyhow!("cannot listen on {listen}: {error}; choose another address with --listen")
    })?;
    print_line(format_args!("forebay ready: http://{}", origin.local_addr()));
    let stopped = async {
        signals.next().await;
    };
    origin.run(stopped).await;
    Ok(0)
}
