//! Export of spans to a collector, as OTLP over HTTP (OpenTelemetry protocol 1, binary protobuf).
//!
//! Workers encode a span and put it into a queue of [`QUEUE_MAX`]; a full queue drops it. One task
//! sends batches. A collector that hangs or fails delays only this task.

mod encode;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_http::{LoadSpan, RequestSpan, Service, SpanExporter, Tracer};
use http::header::CONTENT_TYPE;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::config::resolved::ResolvedTrace;
use crate::log::Log;
use encode::Batch;

/// Maximum number of spans that wait. Above it, spans are dropped and counted.
const QUEUE_MAX: usize = 4_096;

/// Maximum number of spans of one request to the collector.
const BATCH_MAX: usize = 512;

/// Time after its first span at which a batch is sent.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// Maximum time for the answer of the collector.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of requests with one batch, before it is dropped.
const ATTEMPTS_MAX: u32 = 3;

/// Pause after the first failed request; it doubles with each further one.
const PAUSE: Duration = Duration::from_secs(1);

/// Minimum interval between warnings about a collector that fails.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum size of an answer of the collector, in bytes; nothing in it is used.
const ANSWER_MAX: usize = 64 << 10;

/// Path of traces at a collector.
const PATH: &str = "/v1/traces";

/// Numbers of spans since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl SpanCounts {
    /// Returns the numbers by result: spans that the collector accepted, that the full queue dropped,
    /// and that the collector did not accept.
    pub(crate) fn by_result(&self) -> [(&'static str, u64); 3] {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("exported", value(&self.exported)),
            ("dropped", value(&self.dropped)),
            ("failed", value(&self.failed)),
        ]
    }
}

/// Queue of encoded spans.
struct SpanQueue {
    spans: Sender<Vec<u8>>,
    counts: Arc<SpanCounts>,
    log: Arc<Log>,
}

impl SpanQueue {
    fn add(&self, span: Vec<u8>) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl SpanExporter for SpanQueue {
    fn request(&self, span: &RequestSpan<'_>) {
        self.add(span::of_request(span, &self.log.redaction()));
    }

    fn load(&self, span: &LoadSpan) {
        self.add(span::of_load(span, &self.log.redaction()));
    }
}

/// Traces the requests of a service, if the configuration says so. Returns the numbers of spans.
pub(crate) fn trace(
    trace: Option<&ResolvedTrace>,
    service: &Service,
    log: &Arc<Log>,
) -> Arc<SpanCounts> {
    let counts = Arc::new(SpanCounts::default());
    if let Some(trace) = trace {
        service.trace(Some(start(trace, log.clone(), counts.clone())));
    }
    counts
}

/// Creates the tracer of a configuration, and starts the task that sends its spans.
fn start(trace: &ResolvedTrace, log: Arc<Log>, counts: Arc<SpanCounts>) -> Arc<Tracer> {
    let (spans, queue) = channel(QUEUE_MAX);
    let connector = HttpConnector::new();
    let sending = Sending {
        queue,
        client: Client::builder(TokioExecutor::new()).build(connector),
        target: target(&trace.endpoint),
        counts: counts.clone(),
        warned: None,
    };
    tokio::spawn(sending.run());
    Tracer::new(trace.settings, Box::new(SpanQueue { spans, counts, log }))
}

/// Returns the URL of traces at a collector, given its base URL or that URL itself.
fn target(endpoint: &Uri) -> Uri {
    let base = endpoint.to_string();
    let base = base.trim_end_matches('/');
    let whole = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
    whole.parse().unwrap_or_else(|_| endpoint.clone())
}

/// State of the task that sends.
struct Sending {
    queue: Receiver<Vec<u8>>,
    client: Client<HttpConnector, Full<Bytes>>,
    target: Uri,
    counts: Arc<SpanCounts>,
    warned: Option<tokio::time::Instant>,
}

impl Sending {
    /// Sends until the tracer is gone.
    async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut batch = Batch::new();
            batch.add(&first);
            let deadline = tokio::time::Instant::now() + BATCH_TIME;
            while batch.len() < BATCH_MAX
                && let Ok(Some(span)) = tokio::time::timeout_at(deadline, self.queue.recv()).await
            {
                batch.add(&span);
            }
            let spans = batch.len() as u64;
            let is_sent = self.send(batch).await;
            let counter = if is_sent { &self.counts.exported } else { &self.counts.failed };
            counter.fetch_add(spans, Ordering::Relaxed);
        }
    }

    /// Sends a batch, up to [`ATTEMPTS_MAX`] times. Returns true if the collector accepted it.
    async fn send(&mut self, batch: Batch) -> bool {
        let spans = batch.len();
        let body = Bytes::from(batch.finish());
        for attempt in 0..ATTEMPTS_MAX {
            let Err(error) = self.post(body.clone()).await else { return true };
            if attempt + 1 == ATTEMPTS_MAX || !error.may_pass {
                self.warn(&error.cause, spans);
                return false;
            }
            tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
        }
        false
    }

    async fn post(&self, body: Bytes) -> Result<(), ExportError> {
        let request = Request::post(self.target.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body));
        let request = request.map_err(|error| ExportError::final_one(error.to_string()))?;
        let exchange = async {
            let response = self.client.request(request).await?;
            let status = response.status();
            // Read to its end, so that the connection can be used again.
            let _ = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            Ok::<_, hyper_util::client::legacy::Error>(status)
        };
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            // OTLP specification: only these may be sent again.
            Ok(Ok(status)) => Err(ExportError {
                may_pass: matches!(status.as_u16(), 429 | 502 | 503 | 504),
                cause: format!("it answered with status {}", status.as_u16()),
            }),
            Ok(Err(error)) => Err(ExportError {
                may_pass: true,
                cause: anyhow::Error::from(error).root_cause().to_string(),
            }),
            Err(_) => Err(ExportError {
                may_pass: true,
                cause: format!("it did not answer within {} s", TIMEOUT.as_secs()),
            }),
        }
    }

    fn warn(&mut self, cause: &str, spans: usize) {
        if self.warned.is_some_and(|warned| warned.elapsed() < WARNING_INTERVAL) {
            return;
        }
        self.warned = Some(tokio::time::Instant::now());
        tracing::warn!(
            endpoint = %self.target,
            cause,
            spans,
            "spans dropped, because the collector of [trace] did not accept them; `spans` is their \
             number in this request, forebay_spans_total has the total, and this message appears at \
             most once a minute"
        );
    }
}

/// Failed request to the collector.
struct ExportError {
    /// True if a later request may succeed.
    may_pass: bool,
    cause: String,
}

impl ExportError {
    fn final_one(cause: String) -> Self {
        Self { may_pass: false, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_the_base_or_the_whole_url() {
        for endpoint in
            ["http://127.0.0.1:4318", "http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"]
        {
            let uri = endpoint.parse().expect("a URL");
            assert_eq!(target(&uri).to_string(), "http://127.0.0.1:4318/v1/traces");
        }
    }
}
