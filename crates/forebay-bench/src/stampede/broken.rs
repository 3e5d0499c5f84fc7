//! An answer that has expired, and an origin that does not bring a new one: what clients get
//! instead, by what has happened to the origin and by what the answer had said about that.
//!
//! | origin | nothing said | `stale-if-error` | `must-revalidate` |
//! |---|---|---|---|
//! | answers 503 | the 503 | the old answer (RFC 5861 section 4) | the 503 |
//! | refuses connections | the old answer | the old answer | 504 |
//! | hangs | the old answer, at the soft timeout | the same | 504, at `fetch_timeout` |
//!
//! A cache that cannot reach the origin is disconnected (RFC 9111 section 4.2.4), and may
//! serve what is stale where nothing forbids it; where something does, section 5.2.2.2 wants 504.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use forebay_testkit::client::{Client, Reply, Request, Timings, crowd};
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::{Answer, Origin, Received};

/// Clients that come at once.
pub(crate) const CLIENTS: usize = 50;

/// Time that the origin takes for an error: long enough that all clients have arrived, and well
/// below the soft timeout.
pub(crate) const ERROR_DELAY: Duration = Duration::from_millis(300);

/// Time after which a stale response is served while the fetch continues: the default of
/// a site.
pub(crate) const SOFT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which a fetch is aborted. Longer than the soft timeout, to show that
/// it does not cause the response.
pub(crate) const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest time for which a key is left alone once two loads for it have failed in a row.
const BACK_OFF_MIN: Duration = Duration::from_millis(50);

/// Longer than the lifetime of one second.
const EXPIRY: Duration = Duration::from_millis(1_500);

/// Metric of loads without a connection to the origin.
const UNREACHABLE: &str = "forebay_loads_total{site=\"broken\",result=\"unreachable\"}";

/// Response while the origin works.
const OLD: &str = "the old answer\n";

/// Failure of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breakage {
    /// It answers 503.
    Error,
    /// Nobody listens at its address.
    Refused,
    /// It accepts, reads, and says nothing.
    Hangs,
}

/// Directive of the stored response about stale use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    StaleIfError,
    MustRevalidate,
}

/// One field of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) breakage: Breakage,
    pub(crate) said: Said,
}

/// Result of one case.
#[derive(Debug)]
pub(crate) struct Got {
    /// Number of replies by status and `Cache-Status`, without its times.
    pub(crate) replies: BTreeMap<(u16, String), usize>,
    /// Replies that were the old answer.
    pub(crate) stale: usize,
    /// Replies that are not what they had to be.
    pub(crate) wrong: usize,
    /// Fetches since the crowd came; where the origin is gone, failed connections.
    pub(crate) fetches: u64,
    pub(crate) times: Timings,
}

impl Broken {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let breakages = [Breakage::Error, Breakage::Refused, Breakage::Hangs];
        let said = [Said::Nothing, Said::StaleIfError, Said::MustRevalidate];
        let row = move |breakage| said.map(|said| Self { breakage, said });
        breakages.into_iter().flat_map(row)
    }

    /// The status that every client must get; 200 is the old answer.
    pub(crate) const fn status(self) -> u16 {
        match (self.breakage, self.said) {
            (Breakage::Error, Said::Nothing | Said::MustRevalidate) => 503,
            (Breakage::Refused | Breakage::Hangs, Said::MustRevalidate) => 504,
            _ => 200,
        }
    }

    /// Returns the maximum number of fetches. If the origin is gone, a fetch ends sooner than a
    /// crowd has come; the first failure causes no back-off, each further one does.
    pub(crate) fn fetches_max(self, took: Duration) -> u64 {
        if self.breakage != Breakage::Refused {
            return 1;
        }
        let again = took.as_millis() / BACK_OFF_MIN.as_millis();
        2 + u64::try_from(again).unwrap_or_default()
    }

    /// Plays it against a cache and an origin of its own.
    pub(crate) async fn play(self, binary: &Path) -> anyhow::Result<Got> {
        let origin = Origin::start(move |asked| self.answer(asked)).await?;
        let cache = self.serve(&origin, binary).await?;
        let page = Request::get("/page");
        let primer = Client::connect(cache.address()).await?.ask(&page).await?;
        ensure!(primer.text() == OLD, "the first request was answered {}", primer.status_line);
        tokio::time::sleep(EXPIRY).await;
        if self.breakage == Breakage::Refused {
            origin.shut().await?;
        }
        let replies = crowd(CLIENTS, cache.address(), |_| page.clone()).await?;
        let fetches = match self.breakage {
            Breakage::Refused => cache.metric(UNREACHABLE).await?,
            Breakage::Error | Breakage::Hangs => origin.requests() - 1,
        };
        Ok(self.got(&replies, fetches))
    }

    fn got(self, replies: &[Reply], fetches: u64) -> Got {
        let mut kinds = BTreeMap::new();
        for reply in replies {
            *kinds.entry((reply.status, timeless(reply))).or_default() += 1;
        }
        Got {
            replies: kinds,
            stale: replies.iter().filter(|reply| is_old(reply)).count(),
            wrong: replies.iter().filter(|reply| self.is_wrong(reply)).count(),
            fetches,
            times: Timings::of_ends(replies),
        }
    }

    fn is_wrong(self, reply: &Reply) -> bool {
        let cache = reply.field("cache-status").unwrap_or_default();
        let says = if self.status() == 200 { "forebay; hit; ttl=" } else { "forebay; fwd=stale" };
        reply.status != self.status()
            || is_old(reply) != (self.status() == 200)
            || !reply.ended_cleanly()
            || !cache.starts_with(says)
            || (self.status() == 200 && !cache.contains("; detail="))
    }

    async fn serve(self, origin: &Origin, binary: &Path) -> anyhow::Result<Launched> {
        let mut text = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
             [[site]]\nid = \"broken\"\norigin = \"{}\"\n",
            origin.url()
        );
        if self.status() == 504 {
            writeln!(text, "fetch_timeout = \"{}s\"", FETCH_TIMEOUT.as_secs())?;
        }
        Launch::binary(binary).args(["serve"]).config(&text)?.start().await
    }

    fn answer(self, asked: &Received) -> Answer {
        if asked.serial == 1 {
            return Answer::ok(OLD).field("Cache-Control", self.said.cache_control());
        }
        match self.breakage {
            Breakage::Error => Answer::status(503).body("out of order\n").delay(ERROR_DELAY),
            Breakage::Refused | Breakage::Hangs => Answer::hang(),
        }
    }
}

impl Said {
    const fn cache_control(self) -> &'static str {
        match self {
            Self::Nothing => "max-age=1",
            Self::StaleIfError => "max-age=1, stale-if-error=60",
            Self::MustRevalidate => "max-age=1, must-revalidate",
        }
    }
}

/// Returns true for the stale response with an `Age`.
fn is_old(reply: &Reply) -> bool {
    let age = reply.field("age").and_then(|age| age.parse::<u64>().ok());
    reply.text() == OLD && age.is_some_and(|age| age >= 1)
}

/// The `Cache-Status` of a reply without its `ttl`, which is a matter of when one looks.
fn timeless(reply: &Reply) -> String {
    let status = reply.field("cache-status").unwrap_or("none");
    let parts = status.split("; ").filter(|part| !part.starts_with("ttl="));
    parts.collect::<Vec<_>>().join("; ")
}
