//! Warm-up before the process is ready (`ready_after_warm`).

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use forebay_http::{ConnectionInfo, Phase, Service};
use forebay_semantics::{PeerAddress, Scheme};
use http::Uri;
use http_body_util::{BodyExt, Empty};
use tokio::time::timeout;

use super::list::{ListFormat, WarmList, WarmUrl};
use super::{Fetched, WarmSummary, request, result_of, warm};
use crate::config::resolved::ResolvedWarmUp;
use crate::tiers::shared::{SharedTier, wait_until_connected};

/// Number of URLs that are fetched at once.
const CONCURRENCY: usize = 16;

/// Fetches the URLs of a file through the cache, then makes the process ready unless it stops.
/// Waits for the shared tiers first: another instance may have stored the responses.
pub(crate) async fn run(warm_up: ResolvedWarmUp, service: Arc<Service>, tiers: Vec<SharedTier>) {
    wait_until_connected(&tiers).await;
    let ResolvedWarmUp { file, time_max } = warm_up;
    let begun = Instant::now();
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let list = WarmList::parse(&text, ListFormat::Lines);
            log(&file, timeout(time_max, fetch_all(&list.urls, &service)).await.ok(), begun);
        }
        Err(error) => tracing::warn!(
            file = %file.display(),
            cause = %error,
            "no warm-up: the list of URLs (ready_after_warm) cannot be read; ready nevertheless"
        ),
    }
    if service.phase() == Phase::Starting {
        service.enter(Phase::Ready);
    }
}

/// Logs the end of a warm-up; `None` if its time was over before.
fn log(file: &Path, summary: Option<WarmSummary>, begun: Instant) {
    let file = file.display();
    let seconds = begun.elapsed().as_secs_f64();
    let Some(summary) = summary else {
        tracing::warn!(
            %file,
            seconds,
            "warm-up not complete within ready_after_warm_max; ready nevertheless"
        );
        return;
    };
    let WarmSummary { hits, stored, not_stored, failed, first_failure, .. } = summary;
    tracing::info!(%file, stored, hits, not_stored, failed, seconds, "warm-up ended; ready");
    if let Some(failure) = first_failure {
        tracing::warn!(%file, failed, failure, "URLs of the warm-up failed; the first one is named");
    }
}

async fn fetch_all(urls: &[WarmUrl], service: &Service) -> WarmSummary {
    warm(urls, CONCURRENCY, |url| fetch(url, service), |_| ()).await
}

/// Fetches a URL as a client on the loopback interface would.
async fn fetch(url: WarmUrl, service: &Service) -> Fetched {
    let peer = PeerAddress::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let scheme = if url.is_https { Scheme::Https } else { Scheme::Http };
    let connection = ConnectionInfo { scheme, ..ConnectionInfo::cleartext(peer) };
    let request = match request(&url, "", Uri::from(url.target.clone()), Empty::<Bytes>::new()) {
        Ok(request) => request,
        Err(error) => return Fetched::Failed(error.to_string()),
    };
    let response = service.handle(request, &connection).await;
    let fetched = result_of(response.status(), response.headers());
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return Fetched::Failed("the response was cut off".to_owned());
        }
    }
    fetched
}
