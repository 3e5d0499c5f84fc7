use futures_util::FutureExt;

use super::*;
use crate::runtime::clock::SystemClock;

const ROOM: u64 = 1 << 20;

fn asks(in_flight: &Arc<InFlight>, bytes: u64) -> Waiting {
    in_flight.queue(Want::More(bytes)).expect("not too many wait")
}

fn granted(waiting: &mut Waiting) -> Option<Charged> {
    waiting.now_or_never()
}

fn load(in_flight: &Arc<InFlight>) -> Waiting {
    in_flight.queue(Want::Load).expect("not too many wait")
}

#[test]
fn what_fits_is_granted_at_once_and_given_back_at_the_end() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let room = granted(&mut asks(&in_flight, ROOM)).expect("it fits");
    assert_eq!((in_flight.bytes(), in_flight.is_crowded()), (ROOM, true));
    drop(room);
    assert_eq!((in_flight.bytes(), in_flight.is_crowded()), (0, false));
}

#[test]
fn what_bodies_in_flight_take_is_taken_from_the_idle_segments() {
    let in_flight = InFlight::new(16 * ROOM, Arc::new(SystemClock));
    let charged = |in_flight: &Arc<InFlight>| in_flight.charge(8 * ROOM);
    let granted = |in_flight: &Arc<InFlight>| granted(&mut asks(in_flight, 8 * ROOM)).unwrap();
    for take in [&charged as &dyn Fn(&Arc<InFlight>) -> Charged, &granted] {
        in_flight.idle.fill();
        assert_eq!(in_flight.idle.count(), 32);
        let taken = take(&in_flight);
        assert_eq!(in_flight.idle.count(), 16);
        drop(taken);
    }
}

#[test]
fn loads_start_in_the_order_of_their_coming() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let held = in_flight.charge(ROOM);
    let mut loads: Vec<_> = (0..3).map(|_| load(&in_flight)).collect();
    assert!(loads.iter().all(Waiting::waits));
    assert!(loads.iter_mut().all(|load| granted(load).is_none()));
    assert_eq!((in_flight.counts().waiting, in_flight.counts().waits), (3, 3));
    drop(loads.remove(1));
    drop(held);
    let rooms: Vec<_> = loads.iter_mut().filter_map(granted).collect();
    assert_eq!((rooms.len(), in_flight.bytes()), (2, 2 * LOAD_ROOM));
    assert_eq!(in_flight.counts().waiting, 0);
    assert!(!load(&in_flight).waits());
}

#[test]
fn a_load_does_not_overtake_one_that_waits_though_it_would_fit() {
    let in_flight = InFlight::new(2 * LOAD_ROOM, Arc::new(SystemClock));
    let held = in_flight.charge(2 * LOAD_ROOM);
    let mut first = load(&in_flight);
    let other = in_flight.charge(1);
    drop(held);
    // There is memory for one load.
    let mut second = load(&in_flight);
    assert!(granted(&mut second).is_none());
    let room = granted(&mut first).expect("it was first");
    drop((room, other));
    assert!(granted(&mut second).is_some());
}

#[test]
fn one_body_at_a_time_goes_beyond_the_bound_and_the_next_one_after_it() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let held = in_flight.charge(ROOM);
    let mut one = asks(&in_flight, ROOM);
    let mut other = asks(&in_flight, ROOM);
    let mut beyond = granted(&mut one).expect("one may");
    assert!(granted(&mut other).is_none());
    assert_eq!(in_flight.bytes(), 2 * ROOM);
    beyond.stay_within();
    let room = granted(&mut other).expect("it is its turn");
    assert_eq!(in_flight.bytes(), 3 * ROOM);
    drop((held, beyond, room));
    assert_eq!((in_flight.bytes(), in_flight.is_crowded()), (0, false));
}

#[test]
fn what_has_grown_leaves_room_for_those_who_begin_and_does_not_hold_them_up() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let held = in_flight.charge(ROOM - ROOM / BEGINNERS_SHARE);
    let beyond = granted(&mut asks(&in_flight, 1)).expect("one may");
    let mut grows = asks(&in_flight, 1);
    assert!(granted(&mut grows).is_none(), "the rest is not for it");
    assert!(granted(&mut load(&in_flight)).is_some());
    let mut first = in_flight.queue(Want::First(ROOM / BEGINNERS_SHARE / 2)).expect("few wait");
    assert!(granted(&mut first).is_some());
    drop(held);
    assert!(granted(&mut grows).is_some());
    drop(beyond);
}

#[test]
fn none_goes_beyond_the_bound_for_want_of_room_that_readers_hold() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let held = in_flight.charge(ROOM).unsettle();
    let mut grows = asks(&in_flight, 1);
    assert!(granted(&mut grows).is_none());
    drop(held);
    assert!(granted(&mut grows).is_some());
    assert_eq!(in_flight.bytes(), 0);
}

#[test]
fn who_goes_away_gives_back_its_place_and_what_it_was_granted() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let held = in_flight.charge(ROOM);
    let (waits, stays) = (load(&in_flight), load(&in_flight));
    drop(waits);
    drop(held);
    assert_eq!(in_flight.bytes(), LOAD_ROOM, "it was granted to the one that stays");
    drop(stays);
    assert_eq!(in_flight.bytes(), 0);
}

#[test]
fn where_there_is_no_room_at_all_one_goes_at_a_time() {
    let in_flight = InFlight::new(0, Arc::new(SystemClock));
    let mut one = load(&in_flight);
    let mut other = load(&in_flight);
    let room = granted(&mut one).expect("nothing is held");
    assert!(granted(&mut other).is_none());
    drop(room);
    assert!(granted(&mut other).is_some());
}

#[test]
fn too_many_are_not_let_wait() {
    let in_flight = InFlight::new(ROOM, Arc::new(SystemClock));
    let _held = in_flight.charge(ROOM);
    let waiting: Vec<_> = (0..WAITING_MAX).map(|_| load(&in_flight)).collect();
    assert!(in_flight.queue(Want::Load).is_err());
    drop(waiting);
    assert!(in_flight.queue(Want::Load).is_ok());
}
