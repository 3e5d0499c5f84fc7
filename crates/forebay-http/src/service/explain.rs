//! Explanations of requests: the expected course, the stored entries, and the reasons against storing.
//!
//! An explanation changes nothing: no use is counted, no random number drawn, no lease requested, and
//! no load started. The steps are those of [`Service::handle`], with the functions that it uses.
//!
//! | file | contents |
//! |---|---|
//! | `forecast.rs` | expected course of a request |
//! | `findings.rs` | causes and objections, with the field that decided |
//! | `key.rs` | key, and its derivation from the URL |
//! | `report.rs` | stored entries, state of the key, last decisions |

mod findings;
mod forecast;
mod key;
mod report;

use std::net::IpAddr;

use forebay_core::{Demand, Key};
use forebay_engine::{Engine, LoadError, Lookup, TierReport};
use forebay_semantics::{PeerAddress, Scheme};
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Version};

use self::forecast::Course;
use crate::client::credentials;
use crate::client::peer::{ConnectionInfo, Role};
use crate::explanation::{Explanation, LiveReport};
use crate::load::ClientRequest;
use crate::service::Service;
use crate::site::Site;
use crate::stored::head::Answer;

/// Request to explain.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Scheme of the connection.
    pub scheme: Scheme,
    /// Host, with an optional port.
    pub authority: String,
    /// Path and query.
    pub path: PathAndQuery,
    /// Method.
    pub method: Method,
    /// Header fields; `Host` is the authority unless it is among them.
    pub headers: HeaderMap,
    /// Address of the client.
    pub client: IpAddr,
}

/// Response of an origin for a report, or the error that the request got.
#[derive(Debug)]
pub struct LiveResponse(Result<Answer, LoadError>);

/// Facts about a request that belongs to a site and is looked up.
struct Subject<'a> {
    engine: &'a Engine,
    site: &'a Site,
    request: &'a ClientRequest,
    key: Key,
    demand: Demand,
    tiers: Vec<TierReport>,
}

impl Subject<'_> {
    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            key: self.key.borrowed(),
            demand: &self.demand,
            select: self.request,
            credentials: credentials(self.request.headers()),
            coalesce: self.request.rules.coalesce(self.site),
        }
    }
}

impl ExplainRequest {
    fn parts(&self) -> Parts {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = self.path.clone().into();
        let mut parts = request.into_parts().0;
        parts.headers = self.headers.clone();
        if !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(&self.authority)
        {
            parts.headers.insert(HOST, host);
        }
        parts
    }

    fn connection(&self) -> ConnectionInfo {
        ConnectionInfo {
            peer: PeerAddress::from(self.client),
            scheme: self.scheme,
            certificate: None,
            role: Role::Serve,
            sites: None,
        }
    }

    /// Returns the URL of the request.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.path)
    }
}

impl Service {
    /// Explains a request at this moment. Lower tiers are read within their time limit.
    pub async fn explain(&self, request: &ExplainRequest) -> Explanation {
        self.explain_with(request, None).await
    }

    /// Sends the GET that a load would send for a request, through the limits of the site. The body
    /// is dropped, and nothing is stored. `None` if the request belongs to no site, or is refused.
    pub async fn ask_for_explanation(&self, request: &ExplainRequest) -> Option<LiveResponse> {
        let parts = request.parts();
        let table = self.site_table.load_full();
        let step = self.next_step(&table, &parts, &request.connection());
        let client_request = step.client_request?;
        Some(LiveResponse(client_request.probe().await))
    }

    /// Explains a request, with the response of the origin that was received for it.
    pub async fn explain_with(
        &self,
        request: &ExplainRequest,
        live: Option<LiveResponse>,
    ) -> Explanation {
        let parts = request.parts();
        let table = self.site_table.load_full();
        let step = self.next_step(&table, &parts, &request.connection());
        let mut explanation = Explanation {
            url: request.url(),
            method: request.method.to_string(),
            site: step.site.as_ref().map(|site| site.settings.id.to_string()),
            key: step.key,
            ..Explanation::default()
        };
        let (Some(site), Some(client_request)) = (&step.site, &step.client_request) else {
            explanation.would = step.course.would();
            return explanation;
        };
        let mut subject = Subject {
            engine: &self.engine,
            site,
            request: client_request,
            key: step.lookup_key,
            demand: step.demand,
            tiers: Vec::new(),
        };
        let tiers = self.engine.inspect_tiers(&subject.lookup()).await;
        subject.tiers = tiers;
        let course = match step.course {
            Course::Looked(miss) => subject.course_of_miss(&miss, &parts.method),
            course => course,
        };
        let decisions = self.metrics.decisions().of(subject.key.borrowed());
        explanation.stored = subject.stored();
        explanation.now = subject.now(&course);
        explanation.decisions = subject.decisions(&decisions);
        explanation.storable = subject.storable(&decisions, live.as_ref());
        explanation.would = course.would();
        if explanation.would.why.is_some() {
            let objections = &explanation.storable.objections;
            explanation.would.causes = subject.causes(&course, &decisions, objections);
        }
        explanation.live = live.map(|live| subject.live(live));
        explanation
    }
}

impl Subject<'_> {
    fn live(&self, LiveResponse(live): LiveResponse) -> LiveReport {
        match live {
            Ok(answer) => self.live_report(&answer),
            Err(error) => LiveReport { error: Some(error.to_string()), ..LiveReport::default() },
        }
    }
}
