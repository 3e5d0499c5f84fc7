//! Span of a load: ids that the origin gets, and the result.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::KeyRef;
use forebay_engine::{Clock, Head, LoadError, Loaded, TierCall};
use forebay_semantics::trace_context::TraceContext;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::ClientRequest;
use crate::record::decisions::hash;
use crate::record::{LoadExchange, LoadTrace, TRACEPARENT};
use crate::stored::head::Answer;

/// Field with the data of other tracers (W3C Trace Context, section 3.3).
const TRACESTATE: &str = "tracestate";

/// Code of a load that ended without a result, because its caller left.
const ABORTED: &str = "aborted";

/// Load whose span has begun. If it is dropped, the load has ended without a result.
pub(crate) struct OpenSpan {
    trace: Arc<LoadTrace>,
    clock: Arc<dyn Clock>,
    /// Time of the begin, on the clock of the engine.
    begun: Duration,
    /// Facts so far; taken at the end.
    exchange: Option<LoadExchange>,
}

impl ClientRequest {
    /// Begins the span of a request to the origin, if requests are traced. Requests may wait for the
    /// load of a key.
    pub(crate) fn begin_span(&self, method: &Method, key: Option<KeyRef<'_>>) -> Option<OpenSpan> {
        let trace = self.trace.clone()?;
        trace.begin(key.map(hash), self.urgency.is_refresh());
        let (clock, begun) = (self.clock.clone(), self.clock.exact());
        let exchange = LoadExchange {
            begun: trace.wall_time(begun),
            took: Duration::ZERO,
            site: (&*self.site.settings.id).into(),
            method: method.clone(),
            authority: self.authority.clone(),
            target: self.target.as_str().into(),
            status: None,
            error: Some(ABORTED),
        };
        Some(OpenSpan { trace, clock, begun, exchange: Some(exchange) })
    }

    /// Adds a lookup in a lower tier to the trace, if requests are traced.
    pub(super) fn note_tier_call(&self, call: TierCall) {
        if let Some(trace) = &self.trace {
            trace.add_tier_call(call, self.clock.exact());
        }
    }

    /// Replaces the ids of the client's trace by those of the load.
    pub(super) fn replace_trace(&self, headers: &mut HeaderMap, context: TraceContext) {
        if let Ok(value) = HeaderValue::try_from(context.to_string()) {
            headers.insert(HeaderName::from_static(TRACEPARENT), value);
        }
        // It belongs to the trace of the client.
        if !self.trace.as_ref().is_some_and(|trace| trace.is_of_client()) {
            headers.remove(TRACESTATE);
        }
    }
}

impl OpenSpan {
    /// Ends the span with the status code of the response, if it is known, or the failure.
    pub(crate) fn end(mut self, result: Result<Option<u16>, &LoadError>) {
        if let Some(exchange) = &mut self.exchange {
            exchange.status = result.unwrap_or_default();
            exchange.error = result.err().map(crate::origin::code);
        }
    }

    /// Ends the span with the result of a load.
    pub(super) fn end_load(self, loaded: &Result<Loaded, LoadError>) {
        let result = match loaded {
            Ok(Loaded::Failed { error, passed }) => {
                let status = status_of(&passed.head);
                return self.end_failed(status, crate::origin::code(error));
            }
            Ok(Loaded::Entry { head, .. }) => Ok(status_of(head)),
            Ok(Loaded::Pass(passed)) => Ok(status_of(&passed.head)),
            Ok(Loaded::Unchanged { .. }) => Ok(Some(StatusCode::NOT_MODIFIED.as_u16())),
            Ok(Loaded::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        self.end(result);
    }

    fn end_failed(mut self, status: Option<u16>, code: &'static str) {
        if let Some(exchange) = &mut self.exchange {
            (exchange.status, exchange.error) = (status, Some(code));
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        exchange.took = self.clock.exact().saturating_sub(self.begun);
        self.trace.end(exchange);
    }
}

fn status_of(head: &Head) -> Option<u16> {
    Answer::status_of(head).map(|status| status.as_u16())
}
