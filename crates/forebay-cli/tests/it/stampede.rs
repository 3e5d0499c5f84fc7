//! Crowds of 500 clients: number of origin requests, and the response of each client. Exact
//! timings are measured elsewhere.

#[path = "../../../forebay-bench/src/stampede/crowd.rs"]
mod crowd;

use std::path::Path;
use std::time::Duration;

use forebay_testkit::client::{Client, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::origin::{Answer, Origin};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::world::{BINARY, serve};
use crowd::Case;

/// Upper limit of every case, far above the expected time, for a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(10);

async fn holds(case: Case) -> anyhow::Result<()> {
    // Both ends of a thousand connections are in this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let outcome = case.play(Path::new(BINARY)).await?;
    assert_eq!((outcome.fetches, outcome.distinct), case.fetches_and_bodies(), "{outcome:?}");
    assert_eq!((outcome.conditional, outcome.wrong), (case.conditional(), 0), "{outcome:?}");
    let joined = outcome.joined.map(|joined| joined.first_byte.max(joined.behind));
    let longest = outcome.times.max().max(joined.unwrap_or_default());
    assert!(longest < WAIT_MAX, "{outcome:?}");
    Ok(())
}

/// Makes one test per case, with the name of the case.
macro_rules! cases {
    ($($name:ident: $case:ident)*) => {
        $(#[tokio::test]
        async fn $name() -> anyhow::Result<()> {
            holds(Case::$case).await
        })*

        #[test]
        fn every_case_is_tested() {
            assert_eq!([$(Case::$case),*], Case::ALL.map(|(case, _)| case));
        }
    };
}

cases! {
    a_cold_key_is_fetched_once: Cold
    an_expired_key_is_fetched_once: Expired
    an_expired_key_with_a_validator_is_asked_about_once: ExpiredWithEtag
    a_stale_key_is_served_at_once_and_fetched_once: StaleWhileRevalidate
    each_variant_is_fetched_once: VariantsCold
    each_variant_is_fetched_once_where_vary_is_known: VariantsKnown
    no_store_is_fetched_for_each: NoStoreFirst
    no_store_is_fetched_for_each_where_that_is_known: NoStoreMarked
    private_answers_are_their_clients_own: Private
    cookies_are_their_clients_own: SetCookie
    a_slow_body_is_fetched_once: SlowBody
    a_fetch_outlives_its_first_client: LeaderLeaves
    a_truncated_body_is_never_whole: Truncated
}

#[tokio::test]
async fn a_follower_reads_the_part_of_the_body_that_has_arrived() -> anyhow::Result<()> {
    let gate = Gate::new();
    let body = "the first half and the second half";
    let answer = Answer::ok(body).field("Cache-Control", "max-age=60").hold_at(14, &gate);
    let origin = Origin::always(answer).await?;
    let cache = serve(&origin).await?;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(cache.address()).await?;
        client.send(&Request::get("/slow")).await?;
        let mut reply = client.head().await?;
        client.read_body_until(&mut reply, 14).await?;
        assert_eq!(reply.text(), "the first half");
        clients.push((client, reply));
    }
    gate.open();
    for (mut client, mut reply) in clients {
        client.read_body(&mut reply).await?;
        assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), (body, true));
    }
    assert_eq!(origin.requests(), 1);
    Ok(())
}
