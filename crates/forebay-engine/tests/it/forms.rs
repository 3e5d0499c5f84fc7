//! Derived forms of entries in memory.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Purge, Reach};
use forebay_engine::{
    Body, DerivedForm, DerivedForms, Entry, FormAdded, FormRequests, Head, Limits, NewEntry,
};

use crate::world::{MEMORY, World, key};

/// Larger than a segment of a body.
const LONG: usize = 300_000;

async fn put(world: &World, name: &str, length: usize) -> FormRequests {
    let forms = DerivedForms::default();
    let requests = forms.requests().clone();
    let head = Head::of_slice(b"head").with_forms(forms);
    let entry = NewEntry { meta: world.fresh(60), head, body: Bytes::from(vec![1; length]) };
    assert!(world.engine.put(key(name).borrowed(), entry, ()).await);
    requests
}

fn form(length: usize) -> DerivedForm {
    let body = Body::whole(Bytes::from(vec![2; length]));
    DerivedForm { head: Head::of_slice(b"form"), body }
}

fn add(world: &World, name: &str, requests: &FormRequests, length: usize) -> FormAdded {
    let make = |_: &Entry| Some(form(length));
    world.engine.add_form(key(name).borrowed(), &(), requests, 0, make)
}

fn stored(world: &World, name: &str) -> Option<Arc<Entry>> {
    world.engine.memory().get(key(name).borrowed())
}

#[tokio::test]
async fn a_form_is_charged_and_leaves_memory_with_its_entry() {
    let world = World::new();
    let requests = put(&world, "a", LONG).await;
    let before = world.engine.memory().bytes();
    assert_eq!(add(&world, "a", &requests, LONG), FormAdded::Added);
    let grown = world.engine.memory().bytes() - before;
    assert!((LONG as u64..LONG as u64 + 2_000).contains(&grown), "{grown}");
    let entry = stored(&world, "a").expect("the entry");
    let forms: &DerivedForms = entry.head.view().expect("forms");
    let mut reader = forms.get(0).expect("the form").body.reader();
    let first = reader.next().await.expect("a piece").expect("of a whole body");
    drop(entry);
    assert!(world.purge(&Purge::Key(key("a")), Reach::Hard).await);
    assert_eq!(world.engine.memory().bytes(), 0);
    let held = world.engine.traffic().in_flight_bytes;
    assert!((LONG as u64..LONG as u64 + 2_000).contains(&held), "charged to its reader: {held}");
    let rest = reader.collect().await.expect("the rest");
    assert_eq!(first.len() + rest.len(), LONG);
    assert_eq!(world.engine.traffic().in_flight_bytes, 0);
    assert_eq!(add(&world, "a", &requests, 9), FormAdded::Gone);
}

#[tokio::test]
async fn a_form_of_another_body_is_not_added() {
    let world = World::new();
    let old = put(&world, "a", 9).await;
    let new = put(&world, "a", 9).await;
    assert_eq!(add(&world, "a", &old, 9), FormAdded::Gone);
    assert!(world.engine.entry_with_forms(key("a").borrowed(), &(), &old).is_none());
    assert_eq!(add(&world, "a", &new, 9), FormAdded::Added);
    let none = |_: &Entry| None;
    let again = world.engine.add_form(key("a").borrowed(), &(), &new, 1, none);
    assert_eq!(again, FormAdded::Gone);
}

#[tokio::test]
async fn a_form_that_does_not_fit_leaves_the_entry_as_it_is() {
    let limits = Limits { object_max: 10_000, ..Limits::of(MEMORY) };
    let world = World::within(limits);
    let requests = put(&world, "a", 6_000).await;
    assert_eq!(add(&world, "a", &requests, 6_000), FormAdded::TooLarge);
    let entry = stored(&world, "a").expect("the entry stays");
    assert!(entry.head.view::<DerivedForms>().is_some_and(|forms| forms.get(0).is_none()));
    assert_eq!(add(&world, "a", &requests, 2_000), FormAdded::Added);
}
