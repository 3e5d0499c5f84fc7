//! Benchmarks of the HTTP front end: guard, key, service and connection of a hit.

use forebay_http::normalise_authority;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use forebay_core::{Purge, Reach};
use forebay_engine::{Engine, Limits, SystemClock};
use forebay_http::edge::connection::Connections;
use forebay_http::request_guard::{ClientTimeouts, GuardCounters, Phase, Scanner};
use forebay_http::{
    CompressSettings, ConnectionInfo, Metrics, Service, Site, SiteSettings, Sites, key,
};
use forebay_rules::RuleSet;
use forebay_semantics::Scheme;
use forebay_semantics::coding::media_types::{MediaTypePattern, MediaTypes};
use forebay_testkit::origin::{Answer, Origin};
use futures_util::FutureExt as _;
use http::header::{CACHE_STATUS, CONTENT_ENCODING, HeaderName};
use http::{HeaderValue, Request};
use http_body::Body as _;
use http_body_util::Empty;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::replay::Replay;
use crate::rule_mix;
use crate::{Run, measured};

const MEMORY: u64 = 64 << 20;
pub(crate) const BODY: usize = 1_024;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Number of hits of a response, 10 ms apart, while its form is made.
const FORM_WAITS: usize = 1_000;

const HOST: &str = "shop.example";
const TARGET: &str = "/products/0042?lang=en";

/// Request head as programs send it: browsers send more fields, load generators fewer.
pub(crate) const HEAD: &str = "GET /products/0042?lang=en HTTP/1.1\r\n\
                    Host: shop.example\r\n\
                    User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n\
                    Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n\
                    Accept-Language: en-GB,en;q=0.5\r\n\
                    Accept-Encoding: gzip, deflate, br\r\n\
                    Connection: keep-alive\r\n\r\n";

/// Service with its runtime, mostly with one response in memory.
pub(crate) struct Filled {
    runtime: Runtime,
    pub(crate) service: Arc<Service>,
}

impl Filled {
    /// Creates a service without responses, in front of this origin.
    pub(crate) fn empty(origin: SocketAddr) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let service = service(origin, RuleSet::empty(), None)?;
        drop(entered);
        Ok(Self { runtime, service })
    }

    /// Fills the memory tier by a fetch, so that the response is stored in the normal way.
    fn new() -> Result<Self> {
        Self::with(RuleSet::empty(), None, vec![b'x'; BODY])
    }

    fn with(rules: RuleSet, compress: Option<CompressSettings>, body: Vec<u8>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let service = runtime.block_on(async {
            let answer = Answer::ok(body)
                .field("Content-Type", "application/octet-stream")
                .field("Cache-Control", "max-age=3600")
                .field("ETag", "\"33a64df551425fcc\"");
            let origin = Origin::always(answer).await?;
            let service = service(origin.address(), rules, compress)?;
            ensure!(
                service.handle(request()?, &connection_info()).await.status() == 200,
                "the first answer"
            );
            while service.engine().traffic().flights > 0 {
                tokio::task::yield_now().await;
            }
            let hit = service.handle(request()?, &connection_info()).await;
            let status = hit.headers().get(CACHE_STATUS).context("no Cache-Status")?.to_str()?;
            ensure!(status.starts_with("forebay; hit"), "the second answer: {status}");
            anyhow::Ok(service)
        })?;
        Ok(Self { runtime, service })
    }

    /// Fills the memory tier with a response of which clients get a form of about 1 KiB, and returns
    /// the length of the form.
    fn with_form() -> Result<(Self, usize)> {
        // Hexadecimal digits of no pattern: half as long in a coding.
        let mut state = 1_u64;
        let digits = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b"0123456789abcdef"[usize::try_from(state >> 60).unwrap_or_default()]
        });
        let compress = CompressSettings {
            types: MediaTypes::new(MediaTypePattern::parse("application/octet-stream")),
            ..CompressSettings::default()
        };
        let body = digits.take(2 * BODY).collect();
        let filled = Self::with(RuleSet::empty(), Some(compress), body)?;
        for _ in 0..FORM_WAITS {
            let hit = filled.service.handle(request()?, &connection_info()).now_or_never();
            let hit = hit.context("a hit is ready at the first poll")?;
            if hit.headers().contains_key(CONTENT_ENCODING) {
                let length = hit.body().size_hint().exact().context("a complete body")?;
                return Ok((filled, usize::try_from(length)?));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("no form was made")
    }
}

/// Describes a connection from the loopback address.
fn connection_info() -> ConnectionInfo {
    PEER.into()
}

fn service(
    origin: SocketAddr,
    rules: RuleSet,
    compress: Option<CompressSettings>,
) -> Result<Arc<Service>> {
    let metrics = Arc::new(Metrics::new());
    let engine = Engine::new(Limits::of(MEMORY), Arc::new(SystemClock), metrics.clone());
    let sites = Sites::new(vec![site(origin, rules, compress)?]);
    Ok(Arc::new(Service::new(sites, engine, metrics)))
}

fn site(
    origin: SocketAddr,
    rules: RuleSet,
    compress: Option<CompressSettings>,
) -> Result<Arc<Site>> {
    let authority = origin.to_string().parse()?;
    let fetch_timeout = Duration::from_secs(60);
    let rule_set = Arc::new(rules);
    let settings = SiteSettings::new("default", authority);
    Ok(Site::new(SiteSettings { fetch_timeout, rule_set, compress, ..settings }))
}

/// Returns the request as hyper passes it on: its target and values are slices of one buffer.
fn request() -> Result<Request<Empty<Bytes>>> {
    let head = Bytes::copy_from_slice(HEAD.as_bytes());
    let slice = |part: &str| head.slice_ref(&head[offset(part)..][..part.len()]);
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = http::Uri::from_maybe_shared(slice(TARGET))?;
    for line in HEAD.lines().skip(1).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").context("a field without a colon")?;
        let name = HeaderName::from_bytes(name.as_bytes())?;
        request.headers_mut().append(name, HeaderValue::from_maybe_shared(slice(value))?);
    }
    Ok(request)
}

/// Returns the offset of a part of the head.
fn offset(part: &str) -> usize {
    HEAD.find(part).unwrap_or_default()
}

/// Case: the guard scans one head.
pub(crate) fn guard_scan(times: usize) -> Result<Run> {
    Ok(Box::new(move || {
        let mut scanner = Scanner::default();
        let is_good = |_: &usize| {
            scanner.feed(black_box(HEAD.as_bytes())).is_ok() && scanner.phase() == Phase::Idle
        };
        measured(|| (0..times).filter(is_good).count())
    }))
}

/// Case: the normalised authority and target of one request, and its key.
pub(crate) fn key(times: usize) -> Result<Run> {
    // Creating a site needs a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let site = {
        let _entered = runtime.enter();
        site((Ipv4Addr::LOCALHOST, 1).into(), RuleSet::empty(), None)?
    };
    let wanted = key::primary(&site, Scheme::Http, HOST, TARGET).borrowed().to_key();
    Ok(Box::new(move || {
        let is_made = |_: &usize| {
            let authority = normalise_authority(Scheme::Http, black_box(HOST));
            let target = key::target(&site, black_box(TARGET));
            authority.zip(target).is_some_and(|(authority, target)| {
                let key = key::primary(&site, Scheme::Http, &authority, &target);
                black_box(key.borrowed().bytes()).len() == wanted.size()
            })
        };
        measured(|| (0..times).filter(is_made).count())
    }))
}

/// Case: the service answers a parsed request with a stored body of 1 KiB; request and response are
/// dropped.
pub(crate) fn answer(times: usize) -> Result<Run> {
    answered(times, Filled::new()?)
}

/// Case: like [`answer`], in a site with 100 rules.
pub(crate) fn answer_rules(times: usize) -> Result<Run> {
    answered(times, Filled::with(rule_mix::rules(100, 40)?, None, vec![b'x'; BODY])?)
}

fn answered(times: usize, filled: Filled) -> Result<Run> {
    let Filled { runtime, service } = filled;
    let connection_info = connection_info();
    Ok(Box::new(move || {
        let _entered = runtime.enter();
        let is_answered = |request| {
            // A hit is ready at the first poll.
            let answered = service.handle(request, &connection_info).now_or_never();
            answered.is_some_and(|response| response.status() == 200)
        };
        let requests = (0..times).filter_map(|_| request().ok());
        requests.filter_map(|request| measured(|| is_answered(request)).then_some(())).count()
    }))
}

/// Case: a direct hit, from the bytes of the request to the bytes of the response, by the guard
/// without hyper and without a kernel.
pub(crate) fn connection(times: usize) -> Result<Run> {
    connected(times, Filled::new()?)
}

/// Case: like [`connection`], with a response that is older than 64 purges by expression and 1,000 by
/// tag, none of which applies to it.
pub(crate) fn connection_purged(times: usize) -> Result<Run> {
    let filled = Filled::new()?;
    filled.runtime.block_on(async {
        for number in 0..64 {
            let expression = format!("^/other{number}/[0-9]+$");
            filled.service.purge_path_regex(&expression, None, Reach::Hard).await?;
        }
        for number in 0..1_000 {
            let tag = Purge::Tag(format!("tag{number}").into());
            filled.service.engine().purge(&tag, Reach::Hard).await;
        }
        anyhow::Ok(())
    })?;
    connected(times, filled)
}

/// Case: like [`connection`], with a derived form of the response.
pub(crate) fn connection_form(times: usize) -> Result<Run> {
    connected(times, Filled::with_form()?.0)
}

/// Case: like [`connection`], with a body of the length of that form, in a site that does not
/// compress.
pub(crate) fn connection_plain(times: usize) -> Result<Run> {
    let (_, length) = Filled::with_form()?;
    connected(times, Filled::with(RuleSet::empty(), None, vec![b'x'; length])?)
}

fn connected(times: usize, filled: Filled) -> Result<Run> {
    let answers = Arc::new(AtomicUsize::new(0));
    let replay = Replay::new(Bytes::from_static(HEAD.as_bytes()), None, times, answers.clone());
    let mut served = served(filled, replay);
    Ok(Box::new(move || {
        measured(&mut served);
        answers.load(Ordering::Relaxed)
    }))
}

/// Returns a function that serves a connection until its client closes it.
pub(crate) fn served(filled: Filled, client: Replay) -> impl FnMut() {
    let Filled { runtime, service } = filled;
    let (stop, stopped) = watch::channel(false);
    let counters = Arc::new(GuardCounters::default());
    let connections =
        Connections { service, timeouts: ClientTimeouts::default(), counters, stop: stopped };
    let mut served = Box::pin(async move {
        connections.serve(client, connection_info()).await;
        drop(stop);
    });
    move || runtime.block_on(&mut served)
}
