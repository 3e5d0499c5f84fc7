use bytes::Bytes;
use forebay_core::{KeyBuf, Lifetime, Meta, Timestamp};
use futures_util::FutureExt;

use super::waiting::Waiting;
use super::*;
use crate::entry::Head;
use crate::entry::body::Body;
use crate::entry::in_flight::InFlight;
use crate::runtime::clock::SystemClock;

fn key(name: &str) -> Key {
    KeyBuf::new("test").part(name.as_bytes()).borrowed().to_key()
}

fn join_request(key: KeyRef<'_>) -> JoinRequest<'_> {
    JoinRequest { primary: key, key, passed_over: None, now: Duration::ZERO }
}

fn join(flights: &Arc<Flights>, name: &str) -> Role {
    let key = key(name);
    flights.join(join_request(key.borrowed()), Position::default)
}

fn lead(flights: &Arc<Flights>, name: &str) -> LeaderGuard {
    match join(flights, name) {
        Role::Lead(leader) => leader,
        Role::Follow(_) | Role::Full => panic!("{name} is in progress already"),
    }
}

fn follow(flights: &Arc<Flights>, name: &str) -> Follower {
    match join(flights, name) {
        Role::Follow(follower) => follower,
        Role::Lead(_) | Role::Full => panic!("{name} is not in progress"),
    }
}

#[test]
fn one_leads_the_others_follow_and_all_are_told() {
    let flights = Flights::new();
    let leader = lead(&flights, "a");
    let mut followers: Vec<_> = (0..3).map(|_| follow(&flights, "a")).collect();
    let _other = lead(&flights, "b");
    assert!(followers.iter_mut().all(|follower| follower.now_or_never().is_none()));
    leader.announce(FlightResult::Failed(LoadError::NotCached));
    for follower in &mut followers {
        assert!(matches!(
            follower.now_or_never(),
            Some(FlightResult::Failed(LoadError::NotCached))
        ));
    }
}

#[test]
fn a_dropped_leader_makes_way_for_the_next() {
    let flights = Flights::new();
    let leader = lead(&flights, "a");
    let mut follower = follow(&flights, "a");
    drop(leader);
    assert!(matches!((&mut follower).now_or_never(), Some(FlightResult::Abandoned)));
    let _next = lead(&flights, "a");
    assert_eq!(flights.count(), 1);
}

#[test]
fn a_cut_flight_stores_nothing_and_is_not_joined() {
    let flights = Flights::new();
    let leader = lead(&flights, "a");
    let mut before = follow(&flights, "a");
    flights.purge(key("a").borrowed(), || ());
    let next = lead(&flights, "a");
    assert_eq!(leader.unless_purged(|| ()), None);
    assert_eq!(next.unless_purged(|| ()), Some(()));
    leader.announce(FlightResult::Private);
    assert!(matches!((&mut before).now_or_never(), Some(FlightResult::Private)));
    drop(leader);
    assert_eq!(flights.count(), 1, "the old flight's end leaves the new one in the table");
}

#[test]
fn a_load_about_to_fail_gets_no_further_followers() {
    let flights = Flights::new();
    let leader = lead(&flights, "a");
    let mut before = follow(&flights, "a");
    Waiting::new(leader.flight().clone(), false).close();
    let _next = lead(&flights, "a");
    leader.announce(FlightResult::Failed(LoadError::NotCached));
    assert!(matches!((&mut before).now_or_never(), Some(FlightResult::Failed(_))));
}

#[test]
fn a_flight_alone_is_seen_by_purges_and_joined_by_nobody() {
    let flights = Flights::new();
    let key = key("a");
    let alone = flights.lead_alone(join_request(key.borrowed()), Position::default);
    let _leader = lead(&flights, "a");
    flights.purge(key.borrowed(), || ());
    assert_eq!(alone.unless_purged(|| ()), None);
}

#[test]
fn starts_are_numbered_in_their_order() {
    let flights = Flights::new();
    let before = flights.newest();
    let leader = lead(&flights, "a");
    assert!(leader.flight().number > before);
    assert_eq!(leader.flight().number, flights.newest());
}

#[test]
fn nobody_joins_between_the_cut_and_the_removal_nor_while_something_is_stored() {
    let flights = Flights::new();
    let key = key("a");
    let is_locked = || flights.shard(key.borrowed()).try_lock().is_none();
    assert!(flights.purge(key.borrowed(), is_locked));
    assert_eq!(lead(&flights, "a").unless_purged(is_locked), Some(true));
    assert!(!is_locked());
}

#[test]
fn a_purge_of_many_cuts_those_it_reaches_and_leaves_the_others_in_the_table() {
    let flights = Flights::new();
    let (old, other) = (lead(&flights, "old"), lead(&flights, "other"));
    let mut before = follow(&flights, "old");
    flights.purge_where(|flight| flight.number == old.flight().number);
    assert_eq!((old.unless_purged(|| ()), other.unless_purged(|| ())), (None, Some(())));
    let _next = lead(&flights, "old");
    let _still = follow(&flights, "other");
    old.announce(FlightResult::Private);
    assert!(matches!((&mut before).now_or_never(), Some(FlightResult::Private)));
}

#[test]
fn a_flight_that_was_passed_over_is_not_joined_again_by_the_same_caller() {
    let flights = Flights::new();
    let key = key("a");
    let key = key.borrowed();
    let first = lead(&flights, "a");
    let request = JoinRequest { passed_over: Some(first.flight()), ..join_request(key) };
    let Role::Lead(second) = flights.join(request, Position::default) else {
        panic!("the first is not for this one");
    };
    let Role::Follow(follower) = flights.join(request, Position::default) else {
        panic!("the second is");
    };
    assert!(Arc::ptr_eq(follower.flight(), second.flight()));
    assert!(Arc::ptr_eq(follow(&flights, "a").flight(), second.flight()), "the newest is joined");
}

fn flowing() -> (crate::entry::body::FlowWriter, Arc<Entry>) {
    let (writer, flow) = Flow::new(&InFlight::new(0, Arc::new(SystemClock)), 0);
    let meta = Meta::new(Timestamp::default(), Lifetime::default());
    (writer, Arc::new(Entry::new(meta, Head::default(), Body::flowing(flow))))
}

#[test]
fn a_body_does_not_flow_past_followers_that_have_yet_to_wake() {
    let flights = Flights::new();
    let leader = lead(&flights, "a");
    let [mut wakes, mut goes] = [(); 2].map(|()| follow(&flights, "a"));
    assert!((&mut wakes).now_or_never().is_none());
    assert!((&mut goes).now_or_never().is_none());
    let (writer, entry) = flowing();
    let mut reader = entry.body.reader();
    leader.announce(FlightResult::Shared(entry, None));
    writer.push(Bytes::from_static(b"one"));
    writer.push(Bytes::from_static(b"two"));
    assert!(matches!(reader.next().now_or_never(), Some(Some(Ok(_)))));
    drop(goes);
    let Some(FlightResult::Shared(entry, _)) = (&mut wakes).now_or_never() else {
        panic!("not told")
    };
    let mut follower = entry.body.reader();
    assert_eq!(follower.next().now_or_never(), Some(Some(Ok(Bytes::from_static(b"one")))));
    let late = follow(&flights, "a").now_or_never();
    assert!(matches!(late, Some(FlightResult::Abandoned)), "now the first byte is gone: {late:?}");
}

#[test]
fn a_follower_that_goes_away_leaves_no_waker_behind() {
    let flights = Flights::new();
    let leader = lead(&flights, "a");
    let mut stays = follow(&flights, "a");
    assert!((&mut stays).now_or_never().is_none());
    for _ in 0..1_000 {
        assert!(follow(&flights, "a").now_or_never().is_none());
    }
    assert_eq!(leader.flight().state.lock().followers.count(), 1);
}
