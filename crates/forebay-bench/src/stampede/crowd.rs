//! Crowds against the real binary: what is asked, what the origin says, what came of it.
//!
//! The measurement puts bounds on the times; the tests include this file and look at the counts
//! and the bodies alone.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use forebay_testkit::client::{Client, Reply, Request, Timings, crowd};
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launch, Launched};
use forebay_testkit::origin::{Answer, Cut, Origin, Received};

/// Clients of a crowd.
pub(crate) const CROWD: usize = 500;

/// Time that the origin takes to answer a crowd.
pub(crate) const DELAY: Duration = Duration::from_millis(500);

/// Variants that a crowd asks for.
const VARIANTS: usize = 10;

/// Longer than the lifetime of one second in the cases that expire.
const EXPIRY: Duration = Duration::from_millis(1_500);

/// Size of a slow body: 1 MiB over two seconds.
const SLOW_BODY: usize = 1 << 20;
const SLOW_PIECES: usize = 64;
const SLOW_PAUSE: Duration = Duration::from_micros(31_250);

/// Clients that request a slow body half a second late.
const LATE_FOLLOWERS: usize = 5;
const LATE_BY: Duration = Duration::from_millis(500);

/// Maximum time until a fetched response is found in the cache.
const STORED_MAX: Duration = Duration::from_secs(5);

/// A body that breaks off in its middle.
const BROKEN_BODY: usize = 64 << 10;

/// One thing that a crowd does to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Cold,
    Expired,
    ExpiredWithEtag,
    StaleWhileRevalidate,
    VariantsCold,
    VariantsKnown,
    NoStoreFirst,
    NoStoreMarked,
    Private,
    SetCookie,
    SlowBody,
    LeaderLeaves,
    Truncated,
}

/// Result of one case. Times are from a client's request to the end of its body.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Requests at the origin since the crowd came.
    pub(crate) fetches: u64,
    /// Those of them that were conditional.
    pub(crate) conditional: u64,
    /// Different bodies among the replies.
    pub(crate) distinct: usize,
    /// Replies that are not what their client had to get.
    pub(crate) wrong: usize,
    pub(crate) times: Timings,
    /// Point at which followers join a streaming body.
    pub(crate) joined: Option<Joined>,
}

/// The worst of the followers of a slow body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// From the request to the first byte of the body.
    pub(crate) first_byte: Duration,
    /// From the end of the leader's body to the end of the follower's.
    pub(crate) behind: Duration,
}

impl Case {
    /// Every case, and its name in a table.
    pub(crate) const ALL: [(Self, &'static str); 13] = [
        (Self::Cold, "cold"),
        (Self::Expired, "expired"),
        (Self::ExpiredWithEtag, "expired, with an ETag"),
        (Self::StaleWhileRevalidate, "stale, SWR"),
        (Self::VariantsCold, "10 variants, cold"),
        (Self::VariantsKnown, "10 variants, Vary known"),
        (Self::NoStoreFirst, "no-store, first contact"),
        (Self::NoStoreMarked, "no-store, known"),
        (Self::Private, "private, a cookie each"),
        (Self::SetCookie, "Set-Cookie, a cookie each"),
        (Self::SlowBody, "slow body, 5 join late"),
        (Self::LeaderLeaves, "the first client leaves"),
        (Self::Truncated, "truncated body"),
    ];

    /// The fetches and the different bodies that there must be.
    pub(crate) const fn fetches_and_bodies(self) -> (u64, usize) {
        match self {
            Self::VariantsCold | Self::VariantsKnown => (VARIANTS as u64, VARIANTS),
            Self::NoStoreFirst | Self::NoStoreMarked | Self::Private | Self::SetCookie => {
                (CROWD as u64, CROWD)
            }
            _ => (1, 1),
        }
    }

    /// The fetches that must ask whether what is stored is still good.
    pub(crate) const fn conditional(self) -> u64 {
        matches!(self, Self::ExpiredWithEtag) as u64
    }

    /// Plays the case against a cache of its own.
    pub(crate) async fn play(self, binary: &Path) -> anyhow::Result<Outcome> {
        let ground = Ground::prepare(self, binary).await?;
        match self {
            Self::SlowBody => ground.join_slow_body().await,
            Self::LeaderLeaves => ground.leave_the_crowd().await,
            Self::StaleWhileRevalidate => ground.refresh_behind_the_crowd().await,
            _ => ground.crowd().await,
        }
    }

    /// Request before the crowd, whose response is stored; `None`: nothing is stored.
    fn primer(self) -> Option<Request> {
        let page = Request::get("/page");
        match self {
            Self::Expired
            | Self::ExpiredWithEtag
            | Self::StaleWhileRevalidate
            | Self::NoStoreMarked => Some(page),
            Self::VariantsKnown => Some(page.field("Accept-Language", "another")),
            _ => None,
        }
    }

    fn expires(self) -> bool {
        matches!(self, Self::Expired | Self::ExpiredWithEtag | Self::StaleWhileRevalidate)
    }

    /// The field that tells one client of the crowd from another, where they differ.
    fn identity(self, number: usize) -> Option<(&'static str, String)> {
        match self {
            Self::VariantsCold | Self::VariantsKnown => {
                Some(("Accept-Language", format!("language-{}.", number % VARIANTS)))
            }
            Self::NoStoreFirst | Self::NoStoreMarked => {
                Some(("X-Client", format!("client-{number}.")))
            }
            Self::Private | Self::SetCookie => Some(("Cookie", format!("sid=client-{number}."))),
            _ => None,
        }
    }

    fn request(self, number: usize) -> Request {
        let page = Request::get("/page");
        match self.identity(number) {
            Some((name, value)) => page.field(name, value),
            None => page,
        }
    }

    fn answer(self, asked: &Received) -> Answer {
        let who = ["Accept-Language", "X-Client", "Cookie"];
        let who = who.iter().find_map(|name| asked.fields.first(name)).unwrap_or("everybody");
        let text = format!("Fetch {} is for {who}\n", asked.serial);
        let fresh = |answer: Answer| answer.field("Cache-Control", "max-age=60").delay(DELAY);
        // Only the first response expires: a crowd on a busy machine takes more than a second.
        let lifetime = if asked.serial == 1 { "max-age=1" } else { "max-age=60" };
        let soon = |answer: Answer| answer.field("Cache-Control", lifetime).delay(DELAY);
        match self {
            Self::Cold | Self::LeaderLeaves => fresh(Answer::ok(text)),
            Self::Expired => soon(Answer::ok(text)),
            Self::ExpiredWithEtag if asked.fields.first("if-none-match") == Some("\"v1\"") => {
                soon(Answer::status(304).field("ETag", "\"v1\""))
            }
            Self::ExpiredWithEtag => soon(Answer::ok("version 1").field("ETag", "\"v1\"")),
            Self::StaleWhileRevalidate if asked.serial > 1 => fresh(Answer::ok(text)),
            Self::StaleWhileRevalidate => {
                Answer::ok(text).field("Cache-Control", "max-age=1, stale-while-revalidate=60")
            }
            Self::VariantsCold | Self::VariantsKnown => {
                fresh(Answer::ok(text).field("Vary", "Accept-Language"))
            }
            Self::NoStoreFirst | Self::NoStoreMarked => {
                Answer::ok(text).field("Cache-Control", "no-store").delay(DELAY)
            }
            Self::Private => Answer::ok(text).field("Cache-Control", "private").delay(DELAY),
            Self::SetCookie => fresh(Answer::ok(text).field("Set-Cookie", who)),
            Self::SlowBody => {
                let body = Answer::ok(pattern(SLOW_BODY)).field("Cache-Control", "max-age=60");
                body.drip(SLOW_PIECES, SLOW_PAUSE)
            }
            Self::Truncated => {
                fresh(Answer::ok(pattern(BROKEN_BODY)).truncate(BROKEN_BODY / 2, Cut::Close))
            }
        }
    }

    /// Returns true if a client of the crowd got a wrong response.
    fn is_wrong(self, number: usize, reply: &Reply) -> bool {
        if self == Self::Truncated {
            // How much of it got through is chance; that it is the beginning, and no end, is not.
            return reply.ended_cleanly() || !pattern(BROKEN_BODY).starts_with(reply.body());
        }
        let is_its_own = match self.identity(number) {
            Some((_, value)) => reply.text().ends_with(&format!(" {value}\n")),
            None if self == Self::StaleWhileRevalidate => {
                let status = reply.field("cache-status").unwrap_or_default();
                reply.text().starts_with("Fetch 1 ") && status.ends_with("; detail=stale")
            }
            None if self == Self::SlowBody => reply.body() == pattern(SLOW_BODY),
            None => true,
        };
        let cookie = self.identity(number).filter(|_| self == Self::SetCookie);
        let cookie = cookie.as_ref().map(|(_, value)| value.as_str());
        reply.status != 200
            || !reply.ended_cleanly()
            || !is_its_own
            || reply.field("set-cookie") != cookie
    }
}

/// A cache as its defaults make it, with the case's origin behind it.
struct Ground {
    case: Case,
    origin: Origin,
    cache: Launched,
    /// Requests at the origin before the crowd.
    before: (u64, u64),
    /// Gate that holds background refreshes, for which no client may wait.
    refresh: Gate,
}

impl Ground {
    async fn prepare(case: Case, binary: &Path) -> anyhow::Result<Self> {
        let refresh = Gate::new();
        let origin = Origin::start({
            let refresh = refresh.clone();
            move |asked| match case {
                Case::StaleWhileRevalidate if asked.serial > 1 => case.answer(asked).wait(&refresh),
                _ => case.answer(asked),
            }
        });
        let origin = origin.await?;
        let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--origin"];
        let cache = Launch::binary(binary).args(serve).args([origin.url()]).start().await?;
        if let Some(primer) = case.primer() {
            let reply = Client::connect(cache.address()).await?.ask(&primer).await?;
            ensure!(reply.status == 200, "the first request was answered {}", reply.status_line);
            if case.expires() {
                tokio::time::sleep(EXPIRY).await;
            }
        }
        let before = (origin.counts().requests, origin.counts().conditional);
        Ok(Self { case, origin, cache, before, refresh })
    }

    async fn crowd(self) -> anyhow::Result<Outcome> {
        let replies = crowd(CROWD, self.cache.address(), |number| self.case.request(number));
        let outcome = self.outcome(&replies.await?);
        if self.case == Case::Truncated {
            // Nothing of it may be stored: the next request causes a fetch.
            let mut next = Client::connect(self.cache.address()).await?;
            let next = next.ask(&self.case.request(0)).await?;
            let fetched = self.origin.requests() - self.before.0;
            ensure!(fetched > outcome.fetches, "a truncated body was stored");
            ensure!(!next.ended_cleanly(), "a truncated body ended as if it were whole");
        }
        Ok(outcome)
    }

    /// The first of a crowd leaves when all the others wait for what it has caused.
    async fn leave_the_crowd(self) -> anyhow::Result<Outcome> {
        let address = self.cache.address();
        let mut leader = Client::connect(address).await?;
        leader.send(&self.case.request(0)).await?;
        self.origin.wait_requests(1).await?;
        let followers = crowd(CROWD - 1, address, |number| self.case.request(number + 1));
        let leaving = async {
            self.wait_until_all_wait().await?;
            leader.reset()
        };
        let (replies, left) = tokio::join!(followers, leaving);
        left?;
        ensure!(self.origin.counts().abandoned == 0, "the fetch ended with its first client");
        Ok(self.outcome(&replies?))
    }

    /// A crowd that is answered while nothing new has come yet. Then it comes, and stays.
    async fn refresh_behind_the_crowd(self) -> anyhow::Result<Outcome> {
        let replies = crowd(CROWD, self.cache.address(), |number| self.case.request(number));
        let replies = replies.await?;
        self.origin.wait_requests(self.before.0 + 1).await?;
        let outcome = self.outcome(&replies);
        self.refresh.open();
        self.origin.wait_idle().await?;
        let mut client = Client::connect(self.cache.address()).await?;
        let give_up = Instant::now() + STORED_MAX;
        while !client.ask(&self.case.request(0)).await?.text().starts_with("Fetch 2 ") {
            ensure!(Instant::now() < give_up, "what the refresh brought was not stored");
        }
        ensure!(self.origin.requests() == 2, "there was more than one refresh");
        Ok(outcome)
    }

    /// Waits until all clients wait in the cache, or the origin has answered.
    async fn wait_until_all_wait(&self) -> anyhow::Result<()> {
        let in_flight = "forebay_in_flight{site=\"default\"}";
        while self.origin.counts().in_flight > 0
            && self.cache.metric(in_flight).await? < CROWD as u64
        {}
        Ok(())
    }

    /// A leader, and followers that come when its body has been flowing for a while.
    async fn join_slow_body(self) -> anyhow::Result<Outcome> {
        let address = self.cache.address();
        let leader = Client::connect(address).await?;
        let leader = tokio::spawn(timed_reply(leader, self.case.request(0)));
        self.origin.wait_requests(1).await?;
        tokio::time::sleep(LATE_BY).await;
        let mut followers = tokio::task::JoinSet::new();
        for number in 1..=LATE_FOLLOWERS {
            let client = Client::connect(address).await?;
            followers.spawn(timed_reply(client, self.case.request(number)));
        }
        let (mut replies, mut ends) = (Vec::new(), Vec::new());
        for followed in followers.join_all().await {
            let (reply, end) = followed?;
            replies.push(reply);
            ends.push(end);
        }
        let (leading, leading_end) = leader.await??;
        let last = ends.into_iter().max().context("nobody followed")?;
        let first_bytes = replies.iter().map(|reply| reply.body_after().unwrap_or(Duration::MAX));
        let joined = Joined {
            first_byte: first_bytes.max().unwrap_or_default(),
            behind: last.saturating_duration_since(leading_end),
        };
        let mut outcome = self.outcome(&replies);
        outcome.wrong += usize::from(self.case.is_wrong(0, &leading));
        outcome.joined = Some(joined);
        Ok(outcome)
    }

    fn outcome(&self, replies: &[Reply]) -> Outcome {
        let counts = self.origin.counts();
        let bodies: HashSet<&[u8]> = match self.case {
            Case::Truncated => HashSet::from([&b"the beginning of one"[..]]),
            _ => replies.iter().map(Reply::body).collect(),
        };
        let wrong = replies.iter().enumerate();
        let first = usize::from(self.case == Case::LeaderLeaves);
        let wrong = wrong.filter(|(number, reply)| self.case.is_wrong(number + first, reply));
        // The slow body's leader is a fetch of the case, although it comes before the others.
        let (requests, conditional) = self.before;
        Outcome {
            fetches: counts.requests - requests,
            conditional: counts.conditional - conditional,
            distinct: bodies.len(),
            wrong: wrong.count(),
            times: Timings::of_ends(replies),
            joined: None,
        }
    }
}

/// A reply, and when its end came.
async fn timed_reply(mut client: Client, request: Request) -> anyhow::Result<(Reply, Instant)> {
    let reply = client.ask(&request).await?;
    Ok((reply, Instant::now()))
}

/// Bytes of which no two stretches look alike at once.
fn pattern(length: usize) -> Vec<u8> {
    let word = |number: usize| format!("{number:07x} ").into_bytes();
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(length);
    bytes
}
