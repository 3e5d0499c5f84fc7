//! Requests to the origin on behalf of a client.

use std::time::Duration;

use forebay_engine::{Audience, LoadError};
use forebay_semantics::{CopyFields, FieldSink, cdn_loop, forwarding, hop, validate};
use http::header::{ACCEPT_ENCODING, HOST, HeaderName, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, Version};

use super::{ClientRequest, Received, normalise_fields};
use crate::compress::stored;
use crate::head_writer::HeadWriter;
use crate::origin::{
    BuildRequest, EncodeRequest, EncodedRequest, FetchRequest, OriginBody, Outgoing, UnbuiltGet,
    is_idle_close, no_body,
};
use crate::site::UNCODED;

/// Field with the id of a request, as in the logs.
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Fields of the client that are not copied to a GET for the origin: it has no body to which
/// `Content-Length` and `Expect` (RFC 9110 section 10.1.1) apply.
const NOT_COPIED: [&str; 2] = ["expect", "content-length"];

/// Number of fields that are usually added to a request to the origin: `X-Forwarded-For`, `-Proto` and
/// `-Host`, `X-Request-Id`, `Via` and `CDN-Loop`.
const ADDED_FIELDS: usize = 6;

impl ClientRequest {
    /// Returns the header fields for the origin: without hop-by-hop fields, with `Via` and the forwarding
    /// fields, edited by rules and transforms.
    pub(crate) fn outgoing_fields(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.headers().len() + ADDED_FIELDS);
        self.write_fields(self.headers(), |_| true, &mut headers);
        if let Some(context) = self.trace.as_ref().and_then(|trace| trace.context()) {
            self.replace_trace(&mut headers, context);
        }
        if !self.site.settings.rule_set.is_empty() {
            let values = self.values();
            if !self.rules.edit_origin_request(&self.site, &mut headers, &values) {
                self.changes.fail();
            }
            let (rules, seen) = (&self.rules, self.headers());
            if !rules.transform_origin_request(&self.site, seen, &mut headers, &values) {
                self.changes.fail_transform();
            }
        }
        if self.rules.may_cut_json(&self.site) {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            headers.remove(RANGE);
            headers.remove(IF_RANGE);
        }
        self.write_passage(&mut headers);
        headers
    }

    /// Writes `Host`, those of the client's fields that are end-to-end and that `is_kept` accepts, the
    /// forwarding fields and `X-Request-Id`.
    fn write_fields(
        &self,
        of_client: &impl CopyFields,
        is_kept: impl Fn(&[u8]) -> bool,
        fields: &mut impl FieldSink,
    ) {
        let settings = &self.site.settings;
        // RFC 9110 section 7.2: Host should be the first field.
        match &settings.origin.host {
            Some(host) => fields.add(&HOST, host),
            None => fields.add_text(&HOST, &self.authority),
        }
        let is_kept = |name: &[u8]| !matches!(name, b"host" | b"x-request-id") && is_kept(name);
        let sender = self.peer.sender(settings.is_forwarded_added);
        let host = Some(&*self.authority);
        forwarding::write_forwarded(of_client, is_kept, &sender, host, fields);
        fields.add_text(&X_REQUEST_ID, str::from_utf8(&self.id.digits()).unwrap_or_default());
    }

    /// Adds this cache to `Via`, and its loop marker to `CDN-Loop`.
    fn write_passage(&self, fields: &mut impl FieldSink) {
        hop::add_via(fields, Version::HTTP_11);
        cdn_loop::add(fields, &self.site.loop_marker);
    }

    /// Builds a GET whose response may be stored, without the client's conditions and range. `with`
    /// adds the cache's own.
    pub(super) fn question(&self, with: impl FnOnce(&mut HeaderMap)) -> FetchRequest {
        let mut headers = self.outgoing_fields();
        validate::strip_conditions(&mut headers);
        for name in NOT_COPIED {
            headers.remove(name);
        }
        self.site.ask_without_coding(&mut headers);
        with(&mut headers);
        let (target, interims) = (self.origin_target(), self.interims.clone());
        let urgency = self.urgency.of(&self.fields);
        FetchRequest { method: Method::GET, target, headers, body: no_body(), interims, urgency }
    }

    /// Returns a GET without conditions. It is built now if rules or a trace edit its fields. Otherwise
    /// `encode` or `build` creates it when it is sent. `build` must call
    /// [`question`](Self::question) without conditions, and `encode`
    /// [`encoded_question`](Self::encoded_question).
    pub(super) fn unconditional_question<'a>(
        &self,
        build: &'a BuildRequest<'a>,
        encode: &'a EncodeRequest<'a>,
    ) -> Outgoing<'a> {
        let is_edited =
            !self.site.settings.rule_set.is_empty() || self.rules.may_cut_json(&self.site);
        if is_edited || self.trace.is_some() {
            return Outgoing::built(build);
        }
        let (interims, urgency) = (self.interims.clone(), self.urgency.of(&self.fields));
        Outgoing::Unbuilt(UnbuiltGet { encode, interims, urgency, build })
    }

    /// Encodes the GET of [`question`](Self::question) as bytes of HTTP/1.1. It applies no rules and no
    /// trace: call it only for a request that has neither.
    pub(super) fn encoded_question(&self) -> EncodedRequest {
        let replaces_coding = self.site.settings.compress.is_some();
        let is_kept = |name: &[u8]| {
            let is_replaced = replaces_coding && name == b"accept-encoding";
            let is_dropped = NOT_COPIED.iter().any(|dropped| dropped.as_bytes() == name);
            !is_replaced && !validate::is_condition(name) && !is_dropped
        };
        let mut head = HeadWriter::request(&Method::GET, &self.target);
        self.write_fields(&self.fields, is_kept, &mut head);
        self.write_passage(&mut head);
        if replaces_coding {
            head.add_text(&ACCEPT_ENCODING, UNCODED);
        }
        EncodedRequest::get(head)
    }

    /// Sends a request, and sends it once more if the origin had closed an idle connection.
    pub(super) async fn ask(
        &self,
        build: impl Fn() -> FetchRequest + Send + Sync,
        company: Audience,
    ) -> Result<Received, LoadError> {
        self.ask_repeatably(|| Outgoing::built(&build), company).await
    }

    /// Sends a GET without conditions, like [`ask`](Self::ask).
    pub(super) async fn ask_unconditionally(
        &self,
        company: Audience,
    ) -> Result<Received, LoadError> {
        let (build, encode) = (|| self.question(|_| {}), || self.encoded_question());
        self.ask_repeatably(|| self.unconditional_question(&build, &encode), company).await
    }

    async fn ask_repeatably<'a>(
        &self,
        outgoing: impl Fn() -> Outgoing<'a>,
        company: Audience,
    ) -> Result<Received, LoadError> {
        match self.ask_once(outgoing(), company).await {
            // RFC 9112 section 9.3.1: a safe request may be retried.
            Err(error) if is_idle_close(&error) => self.ask_once(outgoing(), company).await,
            answered => answered,
        }
    }

    /// Sends a request, without that repetition. [`Origin::fetch`](crate::origin::Origin::fetch) may
    /// still retry it.
    pub(super) async fn ask_once(
        &self,
        outgoing: Outgoing<'_>,
        company: Audience,
    ) -> Result<Received, LoadError> {
        self.ask_at(self.clock.exact(), outgoing, company).await
    }

    /// Sends a request, and applies the response rules of the site. If the direct path has already
    /// fetched the response, it returns that one and sends nothing. `sent` is the exact time now.
    async fn ask_at(
        &self,
        sent: Duration,
        outgoing: Outgoing<'_>,
        company: Audience,
    ) -> Result<Received, LoadError> {
        if let Some(fetched) = self.handed.as_ref().and_then(|handed| handed.take(&self.site)) {
            return fetched;
        }
        self.check_request_transforms()?;
        let response = self.site.origin.fetch(outgoing, company).await?;
        let delay = self.clock.exact().saturating_sub(sent);
        self.receive(response.into_http(), delay).await
    }

    /// Prepares a response for its evaluation: normalises its fields, applies the rules and transforms
    /// of the site, and cuts JSON. `delay` is the time from the request to the head.
    pub(super) async fn receive(
        &self,
        mut response: Response<OriginBody>,
        delay: Duration,
    ) -> Result<Received, LoadError> {
        normalise_fields(response.headers_mut(), self.clock.wall());
        self.edit_response(&mut response);
        self.check_response_transforms()?;
        let (mut parts, body) = response.into_parts();
        let body = self.cut_json(&mut parts, body).await?;
        stored::mark(self.site.settings.compress.as_ref(), &mut parts.headers);
        Ok(Received { response: Response::from_parts(parts, body), delay, purges_at_send: None })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::{Arc, OnceLock};

    use forebay_core::Why;
    use forebay_engine::SystemClock;
    use forebay_semantics::RawFields;
    use http::uri::{Authority, PathAndQuery};
    use proptest::prelude::*;

    use super::*;
    use crate::client::peer::{ConnectionInfo, Peer};
    use crate::load::{ClientFields, DecisionRecorder};
    use crate::record::RequestId;
    use crate::rules::{RequestRules, RuleChanges};
    use crate::settings::{CompressSettings, SiteSettings};
    use crate::site::Site;

    /// Fields of clients: kept, replaced, dropped, and named in `Connection`.
    const FIELDS: [(&str, &str); 21] = [
        ("host", "shop.example:80"),
        ("accept", "a"),
        ("accept", "b"),
        ("accept-encoding", "br"),
        ("connection", "keep-alive, x-named, cookie"),
        ("content-length", "0"),
        ("cookie", "c=1"),
        ("expect", "100-continue"),
        ("if-match", "\"t\""),
        ("if-none-match", "\"t\""),
        ("range", "bytes=0-1"),
        ("te", "trailers"),
        ("via", "1.0 other"),
        ("x-forwarded-for", "forged"),
        ("X_Real_IP", "forged"),
        ("Proxy-Authorization", "Basic eA=="),
        ("X-Forwarded-Host", "forged"),
        ("ACCEPT", "c"),
        ("x-named", "n"),
        ("x-request-id", "forged"),
        ("cdn-loop", "other"),
    ];

    fn request(site: Arc<Site>, fields: ClientFields) -> ClientRequest {
        ClientRequest {
            site,
            clock: Arc::new(SystemClock),
            target: PathAndQuery::from_static("/a?b"),
            authority: "shop.example".into(),
            fields,
            peer: Peer::of_connection(&ConnectionInfo::from(IpAddr::from(Ipv4Addr::LOCALHOST))),
            interims: Default::default(),
            rules: RequestRules::default(),
            changes: RuleChanges::default(),
            id: RequestId::new(7),
            recorder: DecisionRecorder {
                decisions: Arc::default(),
                ended_loads: Arc::default(),
                why: Why::UriMiss,
            },
            urgency: Default::default(),
            trace: None,
            origin_time: OnceLock::new(),
            handed: None,
        }
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        headers.iter().map(line).collect()
    }

    proptest! {
        #[test]
        fn an_encoded_request_has_the_fields_of_a_built_one(
            fields in prop::collection::vec(prop::sample::select(&FIELDS[..]), 0..8),
            compresses: bool,
            is_forwarded_added: bool,
            host in prop::option::of(Just("origin.example")),
        ) {
            let mut settings = SiteSettings::new("s", Authority::from_static("127.0.0.1:1"));
            settings.compress = compresses.then(CompressSettings::default);
            settings.is_forwarded_added = is_forwarded_added;
            settings.origin.host = host.map(HeaderValue::from_static);
            let head: String = fields.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            let slices = head.lines().filter_map(|line| line.split_once('='));
            let slices = slices.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let raw = RawFields::copied(head.as_bytes(), slices);
            let site = Site::new(settings);
            let requests = [
                request(site.clone(), raw.to_map().into()),
                request(site.clone(), raw.clone().into()),
                request(site, raw.into()),
            ];
            // That of the last one is encoded first, before any parsed form is made.
            let encoded = |request: &ClientRequest| {
                let encoded = request.encoded_question();
                let text = str::from_utf8(encoded.bytes()).unwrap().strip_suffix("\r\n\r\n");
                text.unwrap().to_owned()
            };
            let texts = [encoded(&requests[0]), encoded(&requests[2])];
            let built = [&requests[0], &requests[1]].map(|request| {
                let mut built = lines(&request.question(|_| {}).headers);
                built.sort_unstable();
                built
            });
            prop_assert_eq!(&built[0], &built[1]);
            for text in &texts {
                let mut encoded: Vec<_> = text.lines().skip(1).map(str::to_owned).collect();
                encoded.sort_unstable();
                prop_assert_eq!(&encoded, &built[0]);
            }
            let host = host.unwrap_or("shop.example");
            let begin = format!("GET /a?b HTTP/1.1\r\nhost: {host}\r\n");
            prop_assert!(texts.iter().all(|text| text.starts_with(&begin)), "{texts:?}");
        }
    }
}
