//! Runs of transforms: each call is isolated, so that a panic ends one request only.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use forebay_core::Demand;
use forebay_engine::{Clock as _, SystemClock};
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};

use super::{
    Active, FieldEdit, KeyedView, LookupOptions, Next, RequestEdit, RequestView, ResponseEdit,
    TransformError, Transforms,
};

/// Number of the transform that failed. The reason is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransformFailed(pub(crate) usize);

/// Request as transforms see it.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    pub(crate) target: &'a str,
    pub(crate) client: Option<IpAddr>,
}

impl<'a> Asked<'a> {
    const fn view(self, headers: &'a HeaderMap) -> RequestView<'a> {
        let Self { scheme, host, target, client } = self;
        RequestView { scheme, host, target, headers, client }
    }
}

/// Calls one method of a transform.
fn call<T>(
    number: usize,
    active: &Active,
    phase: &'static str,
    method: impl FnOnce() -> Result<T, TransformError>,
) -> Result<T, TransformFailed> {
    let reason = match catch_unwind(AssertUnwindSafe(method)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked".to_owned(),
    };
    let name = active.transform.name();
    let Some(suppressed) = active.warnings.admit(phase, SystemClock.now()) else {
        return Err(TransformFailed(number));
    };
    tracing::warn!(
        transform = name,
        phase,
        reason,
        suppressed,
        "transform failed; its request gets an error response, and nothing is stored"
    );
    Err(TransformFailed(number))
}

impl Transforms {
    /// Runs the phase `client_request`. `headers` are edited.
    pub(crate) fn client_request(
        &self,
        asked: Asked<'_>,
        method: &Method,
        headers: &mut HeaderMap,
    ) -> Result<Next, TransformFailed> {
        let mut next = Next::Continue;
        for (n, active) in self.0.iter().enumerate() {
            let seen = headers.clone();
            let fields = FieldEdit { headers, is_stored: false };
            let inputs = &active.inputs;
            let mut edit = RequestEdit { method, request: asked.view(&seen), fields, inputs };
            let run = || Ok(active.transform.client_request(&mut edit));
            match call(n, active, "client_request", run)? {
                Next::Continue => {}
                Next::Bypass => next = Next::Bypass,
                Next::Respond(response) => return Ok(Next::Respond(response)),
            }
        }
        Ok(next)
    }

    /// Runs the phase `cache_request`.
    pub(crate) fn cache_request(
        &self,
        asked: Asked<'_>,
        headers: &HeaderMap,
        demand: &mut Demand,
        of_site: &Demand,
    ) -> Result<(), TransformFailed> {
        let (view, mut options) = (asked.view(headers), LookupOptions::default());
        for (n, active) in self.0.iter().enumerate() {
            let set = || {
                active.transform.cache_request(&view, &mut options);
                Ok(())
            };
            call(n, active, "cache_request", set)?;
        }
        if options.ignores_client_cache_control {
            *demand = Demand {
                no_store: demand.no_store,
                only_if_cached: demand.only_if_cached,
                max_stale: demand.max_stale,
                soft_timeout: demand.soft_timeout,
                beta: demand.beta,
                stale_if_unreachable: demand.stale_if_unreachable,
                ..of_site.clone()
            };
        }
        if options.soft_timeout.is_some() {
            demand.soft_timeout = options.soft_timeout;
        }
        Ok(())
    }

    /// Runs the phase `origin_request`. `seen` has the fields of the client.
    pub(crate) fn origin_request(
        &self,
        asked: Asked<'_>,
        seen: &HeaderMap,
        headers: &mut HeaderMap,
    ) -> Result<(), TransformFailed> {
        self.0.iter().enumerate().try_for_each(|(n, active)| {
            let view = KeyedView { request: asked.view(seen), inputs: &active.inputs };
            let mut fields = FieldEdit { headers, is_stored: false };
            let run = || active.transform.origin_request(&view, &mut fields);
            call(n, active, "origin_request", run)
        })
    }

    /// Runs the phase `origin_response`. Returns false if the response may not be stored.
    pub(crate) fn origin_response(
        &self,
        asked: Asked<'_>,
        seen: &HeaderMap,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Result<bool, TransformFailed> {
        let mut may_store = true;
        for (n, active) in self.0.iter().enumerate() {
            let view = KeyedView { request: asked.view(seen), inputs: &active.inputs };
            let fields = FieldEdit { headers, is_stored: true };
            let mut edit = ResponseEdit { status, fields, is_stored: true };
            let run = || active.transform.origin_response(&view, &mut edit);
            call(n, active, "origin_response", run)?;
            may_store &= edit.is_stored;
        }
        Ok(may_store)
    }

    /// Runs the phases `cache_response`, if the response is from storage, and `client_response`.
    pub(crate) fn client_response(
        &self,
        asked: Asked<'_>,
        seen: &HeaderMap,
        headers: &mut HeaderMap,
        is_stored: bool,
    ) -> Result<(), TransformFailed> {
        let view = asked.view(seen);
        for (n, active) in self.0.iter().enumerate().filter(|_| is_stored) {
            let mut fields = FieldEdit { headers, is_stored: false };
            let run = || {
                active.transform.cache_response(&view, &mut fields);
                Ok(())
            };
            call(n, active, "cache_response", run)?;
        }
        for (n, active) in self.0.iter().enumerate() {
            let mut fields = FieldEdit { headers, is_stored: false };
            let run = || {
                active.transform.client_response(&view, &mut fields);
                Ok(())
            };
            call(n, active, "client_response", run)?;
        }
        Ok(())
    }
}

/// Returns the response of a transform as the client gets it.
pub(crate) fn safe(mut response: Response<Bytes>) -> Response<Bytes> {
    let fixed = |name: &http::HeaderName| forebay_rules::edit::is_fixed(name.as_str());
    let names: Vec<_> = response.headers().keys().filter(|name| fixed(name)).cloned().collect();
    for name in names {
        response.headers_mut().remove(name);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use forebay_rules::RuleSet;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber, subscriber};

    use super::*;
    use crate::transform::{Transform, TransformResult};

    const FAILURES: usize = 1_000;

    /// Maximum number of warnings: those of ten seconds, which the failures do not take.
    const WARNINGS_MAX: usize = 100;

    struct Failing;

    impl Transform for Failing {
        fn name(&self) -> &'static str {
            "failing"
        }

        fn origin_request(&self, _: &KeyedView<'_>, _: &mut FieldEdit<'_>) -> TransformResult {
            Err(TransformError::new("no"))
        }
    }

    /// Counts messages.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Subscriber for Counter {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn failures_in_quick_succession_are_not_all_logged() {
        let (transforms, _) =
            Transforms::new(vec![Arc::new(Failing)], &RuleSet::empty()).expect("one transform");
        let asked = Asked { scheme: "http", host: "h", target: "/", client: None };
        let (seen, counter) = (HeaderMap::new(), Counter::default());
        subscriber::with_default(counter.clone(), || {
            for _ in 0..FAILURES {
                let failed = transforms.origin_request(asked, &seen, &mut HeaderMap::new());
                assert_eq!(failed, Err(TransformFailed(0)));
            }
        });
        let warnings = counter.0.load(Ordering::Relaxed);
        assert!((1..=WARNINGS_MAX).contains(&warnings), "{warnings}");
    }
}
