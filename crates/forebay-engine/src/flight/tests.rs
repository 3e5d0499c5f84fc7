use forebay_core::KeyBuf;
use futures_util::FutureExt;

use super::*;

fn key(name: &str) -> Key {
    KeyBuf::new("test").part(name.as_bytes()).borrowed().to_key()
}

fn board(flights: &Arc<Flights>, name: &str) -> Boarding {
    let key = key(name);
    let key = key.borrowed();
    flights.board(Boarder { primary: key, key, passed_over: None }, Position::default)
}

fn lead(flights: &Arc<Flights>, name: &str) -> Seat {
    match board(flights, name) {
        Boarding::Lead(seat) => seat,
        Boarding::Follow(_) => panic!("{name} is flying already"),
    }
}

fn follow(flights: &Arc<Flights>, name: &str) -> Follower {
    match board(flights, name) {
        Boarding::Follow(follower) => follower,
        Boarding::Lead(_) => panic!("{name} is not flying"),
    }
}

#[test]
fn one_leads_the_others_follow_and_all_are_told() {
    let flights = Flights::new();
    let seat = lead(&flights, "a");
    let mut followers: Vec<_> = (0..3).map(|_| follow(&flights, "a")).collect();
    let _other = lead(&flights, "b");
    assert!(followers.iter_mut().all(|follower| follower.now_or_never().is_none()));
    seat.land(Landed::Failed(LoadError::NotCached));
    for follower in &mut followers {
        assert!(matches!(follower.now_or_never(), Some(Landed::Failed(LoadError::NotCached))));
    }
}

#[test]
fn a_dropped_seat_is_free_for_the_next() {
    let flights = Flights::new();
    let seat = lead(&flights, "a");
    let mut follower = follow(&flights, "a");
    drop(seat);
    assert!(matches!((&mut follower).now_or_never(), Some(Landed::Abandoned)));
    let _next = lead(&flights, "a");
    assert_eq!(flights.count(), 1);
}

#[test]
fn a_cut_flight_stores_nothing_and_is_not_boarded() {
    let flights = Flights::new();
    let seat = lead(&flights, "a");
    let mut aboard = follow(&flights, "a");
    flights.cut(key("a").borrowed(), || ());
    let next = lead(&flights, "a");
    assert_eq!(seat.unless_cut(|| ()), None);
    assert_eq!(next.unless_cut(|| ()), Some(()));
    seat.land(Landed::Private);
    assert!(matches!((&mut aboard).now_or_never(), Some(Landed::Private)));
    drop(seat);
    assert_eq!(flights.count(), 1, "the old flight's end leaves the new one on the board");
}

#[test]
fn a_flight_alone_is_seen_by_purges_and_boarded_by_nobody() {
    let flights = Flights::new();
    let key = key("a");
    let alone = flights.alone(key.borrowed(), key.borrowed(), Position::default);
    let _seat = lead(&flights, "a");
    flights.cut(key.borrowed(), || ());
    assert_eq!(alone.unless_cut(|| ()), None);
}

#[test]
fn departures_are_numbered_in_their_order() {
    let flights = Flights::new();
    let before = flights.newest();
    let seat = lead(&flights, "a");
    assert!(seat.flight().number > before);
    assert_eq!(seat.flight().number, flights.newest());
}
