//! Budgets of origins: the script that grants allowances.

use std::time::Duration;

use forebay_core::{Allowance, BudgetClaim, BudgetReply, BudgetRequest};
use forebay_engine::{OriginBudgets, TierError};
use forebay_redis::Redis;

use crate::fixture::{Fixture, server, settings};

const LEASE: Duration = Duration::from_secs(600);

fn slots(slots: u64) -> Allowance {
    Allowance { slots, rate: 1_000 * slots }
}

fn request(asked: u64, held: u64, wanted: u64) -> BudgetRequest {
    BudgetRequest {
        asked: slots(asked),
        claim: BudgetClaim { held: slots(held), wanted: slots(wanted) },
        total: slots(64),
        epoch: 0,
    }
}

async fn exchange(
    tier: &Redis,
    member: &str,
    request: BudgetRequest,
) -> Result<BudgetReply, TierError> {
    tier.exchange("a site", member, request, LEASE).await
}

#[tokio::test]
async fn the_sum_of_all_allowances_is_the_budget() {
    let server = server().await;
    let tier = Fixture::new(settings(&server)).await.tier;
    let first = exchange(&tier, "b", request(40, 0, 40)).await.unwrap();
    assert_eq!((first.granted, first.others.len(), first.position), (slots(40), 0, 0));
    let second = exchange(&tier, "a", request(40, 0, 64)).await.unwrap();
    assert_eq!(second.granted, slots(24), "the rest");
    let claim = BudgetClaim { held: slots(40), wanted: slots(40) };
    assert_eq!((second.others, second.position), (vec![claim], 0));
    let first = exchange(&tier, "b", request(32, 32, 40)).await.unwrap();
    assert_eq!((first.granted, first.position), (slots(32), 1));
    assert_eq!(exchange(&tier, "a", request(64, 24, 64)).await.unwrap().granted, slots(32));
    // What a member uses is never denied; others get nothing then.
    assert_eq!(exchange(&tier, "c", request(64, 10, 64)).await.unwrap().granted, slots(10));
    assert_eq!(exchange(&tier, "d", request(64, 0, 64)).await.unwrap().granted, slots(0));
    tier.leave("a site", "a").await;
    assert_eq!(exchange(&tier, "d", request(64, 0, 64)).await.unwrap().granted, slots(22));
    let other = tier.exchange("other", "d", request(64, 0, 64), LEASE).await.unwrap();
    assert_eq!(other.granted, slots(64), "each site has a budget of its own");
    let names = server.ask(&["KEYS", "forebay:b:*"]).await.unwrap().text();
    assert!(names.contains("forebay:b:{a%20site}"), "{names}");
}

#[tokio::test]
async fn a_claim_ends_with_its_lease() {
    let server = server().await;
    let tier = Fixture::new(settings(&server)).await.tier;
    let short = Duration::from_millis(50);
    assert_eq!(
        tier.exchange("s", "a", request(64, 0, 64), short).await.unwrap().granted,
        slots(64)
    );
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(
        tier.exchange("s", "b", request(64, 0, 64), short).await.unwrap().granted,
        slots(64)
    );
}

#[tokio::test]
async fn an_emptied_server_grants_no_more_than_was_held_until_all_have_come_back() {
    let server = server().await;
    let tier = Fixture::new(settings(&server)).await.tier;
    let known = BudgetRequest { epoch: 1, ..request(48, 16, 64) };
    let lease = Duration::from_millis(200);
    let first = tier.exchange("s", "a", known, lease).await.unwrap();
    assert_eq!((first.granted, first.is_complete), (slots(16), false));
    let same = BudgetRequest { epoch: first.epoch, ..request(20, 16, 64) };
    assert_eq!(tier.exchange("s", "a", same, lease).await.unwrap().granted, slots(20));
    tokio::time::sleep(lease + Duration::from_millis(10)).await;
    let later = tier.exchange("s", "a", known, lease).await.unwrap();
    assert_eq!((later.granted, later.is_complete, later.epoch), (slots(48), true, first.epoch));
}

#[tokio::test]
async fn foreign_data_is_an_error_and_stays() {
    let server = server().await;
    let tier = Fixture::new(settings(&server)).await.tier;
    server.ask(&["SET", "forebay:b:{s}", "text"]).await.unwrap();
    assert!(tier.exchange("s", "a", request(64, 0, 64), LEASE).await.is_err());
    assert_eq!(server.ask(&["GET", "forebay:b:{s}"]).await.unwrap().text(), "text");
    // Claims that cannot be read do not count.
    server.ask(&["HSET", "forebay:b:{t}", "x", "none", "y", "9 9"]).await.unwrap();
    let reply = tier.exchange("t", "a", request(64, 0, 64), LEASE).await.unwrap();
    assert_eq!((reply.granted, reply.others.len()), (slots(64), 0));
}
