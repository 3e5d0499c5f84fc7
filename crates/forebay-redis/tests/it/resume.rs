//! A process that resumes at a saved bus position receives all purges since then, or a gap.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Purge, Reach};
use forebay_engine::Bus;
use forebay_engine::bus::{Bookmark, Listener, Notice};
use forebay_redis::Settings;
use forebay_testkit::redis::{RedisLaunch, RedisServer};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::fixture::{Fixture, key, number, server, wait_number};
use crate::leases::sharing;

const SOON: Duration = Duration::from_secs(10);
const BUS: &str = "forebay:{bus}";

/// Notices of a process that starts at a saved position.
#[derive(Default)]
struct Received {
    from: Option<Bookmark>,
    all: watch::Sender<Vec<Notice>>,
}

impl Listener for Received {
    fn hear(&self, notice: Notice) {
        self.all.send_modify(|all| all.push(notice));
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.from.clone()
    }
}

impl Received {
    async fn until(&self, is_so: impl Fn(&[Notice]) -> bool) {
        let mut all = self.all.subscribe();
        let waited = timeout(SOON, all.wait_for(|all| is_so(all))).await;
        assert!(waited.is_ok(), "{:?}", self.all.borrow());
    }

    /// Returns the notices before the bus was connected.
    fn before_connected(&self) -> Vec<Notice> {
        let all = self.all.borrow();
        all.iter().take_while(|notice| **notice != Notice::Connected).cloned().collect()
    }

    fn reached(&self) -> Option<Bookmark> {
        self.all.borrow().iter().rev().find_map(|notice| match notice {
            Notice::Reached(bookmark) => Some(bookmark.clone()),
            _ => None,
        })
    }
}

struct Process {
    fixture: Fixture,
    received: Arc<Received>,
}

impl Process {
    /// Starts a process and waits until its position is known.
    async fn begin(settings: Settings, from: Option<Bookmark>) -> Self {
        let fixture = Fixture::clustered(settings).await;
        let received = Arc::new(Received { from, ..Received::default() });
        fixture.tier.listen(received.clone());
        received.until(|all| matches!(all.last(), Some(Notice::Reached(_)))).await;
        Self { fixture, received }
    }

    /// Ends the process and returns its position.
    async fn end(self) -> Bookmark {
        self.received.reached().expect("it was told")
    }

    async fn publish(&self, what: &Purge, reach: Reach) {
        self.fixture.tier.publish(what, reach).await.unwrap();
    }
}

fn tag(name: &str) -> Purge {
    Purge::Tag(name.into())
}

fn purged(what: &Purge, reach: Reach) -> Notice {
    Notice::Purged { what: what.clone(), reach }
}

async fn pair(server: &RedisServer) -> (Process, Bookmark) {
    let left = Process::begin(sharing(server), None).await.end().await;
    (Process::begin(sharing(server), None).await, left)
}

#[tokio::test]
async fn missed_purges_are_received_before_the_connection_is_reported() {
    let server = server().await;
    let (one, left) = pair(&server).await;
    let all = [
        (Purge::Key(key("/a").borrowed().to_key()), Reach::Hard),
        (tag("red"), Reach::Soft),
        (Purge::Prefix { site: "site".into(), prefix: "/a".into() }, Reach::Hard),
        (Purge::Site("site".into()), Reach::Soft),
        (Purge::All, Reach::Hard),
    ];
    for (what, reach) in &all {
        one.publish(what, *reach).await;
    }
    // Includes a request of another program.
    server.ask(&["XADD", BUS, "*", "kind", "tag", "what", "blue"]).await.unwrap();
    for number in 0..600 {
        one.publish(&tag(&number.to_string()), Reach::Hard).await;
    }
    let again = Process::begin(sharing(&server), Some(left)).await;
    let told = again.received.before_connected();
    let mut expected: Vec<_> = all.iter().map(|(what, reach)| purged(what, *reach)).collect();
    expected.push(purged(&tag("blue"), Reach::Hard));
    expected.extend((0..600).map(|number| purged(&tag(&number.to_string()), Reach::Hard)));
    assert_eq!(told, expected);
    // And from there on.
    let later = Process::begin(sharing(&server), Some(again.end().await)).await;
    assert_eq!(later.received.before_connected(), []);
    one.publish(&tag("last"), Reach::Soft).await;
    later.received.until(|all| all.contains(&purged(&tag("last"), Reach::Soft))).await;
    assert!(!later.received.all.borrow().contains(&Notice::Gap));
}

/// An empty bus is given a first entry, which distinguishes it from one created after a loss.
#[tokio::test]
async fn a_bus_that_is_quiet_can_be_gone_on_from() {
    let server = server().await;
    let (one, left) = pair(&server).await;
    assert_eq!(number(&server, &["XLEN", BUS]).await, 1);
    let again = Process::begin(sharing(&server), Some(left)).await;
    assert_eq!((again.received.before_connected(), one.fixture.tier.counts().foreign), (vec![], 0));
}

#[tokio::test]
async fn missing_bus_entries_are_a_gap_at_resume() {
    for commands in [
        &[&["FLUSHALL"][..]] as &[&[&str]],
        &[&["DEL", BUS]],
        &[&["XTRIM", BUS, "MAXLEN", "2"]],
        &[&["FLUSHALL"], &["XADD", BUS, "*", "kind", "tag", "what", "blue"]],
        &[&["SET", BUS, "garbage"], &["DEL", BUS]],
    ] {
        for is_quiet in [true, false] {
            let server = server().await;
            let (one, left) = pair(&server).await;
            for number in 0..4 {
                one.publish(&tag(&number.to_string()), Reach::Hard).await;
            }
            drop(one);
            for command in commands {
                server.ask(command).await.unwrap();
            }
            if !is_quiet {
                let one = Process::begin(sharing(&server), None).await;
                one.publish(&tag("later"), Reach::Hard).await;
            }
            let again = Process::begin(sharing(&server), Some(left)).await;
            let told = again.received.before_connected();
            assert!(told.contains(&Notice::Gap), "{commands:?} {is_quiet} {told:?}");
            // The next process can resume at its position.
            let later = Process::begin(sharing(&server), Some(again.end().await)).await;
            assert_eq!(later.received.before_connected(), [], "{commands:?} {is_quiet}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_another_one_is_a_gap() {
    let master = server().await;
    let replica = RedisLaunch::new().replica_of(&master).start().await.unwrap();
    let (one, left) = pair(&master).await;
    one.publish(&tag("red"), Reach::Hard).await;
    wait_number(&replica, &["XLEN", BUS], 2).await;
    replica.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    // All entries exist, but others may have been lost.
    let again = Process::begin(sharing(&replica), Some(left.clone())).await;
    assert_eq!(again.received.before_connected(), [Notice::Gap]);
    // A position of another namespace is not used.
    let other = Settings { namespace: "elsewhere".into(), ..sharing(&master) };
    let again = Process::begin(other, Some(left)).await;
    assert_eq!(again.received.before_connected(), [Notice::Gap]);
}

/// The process's own last purges may not have been carried out in its other tiers.
#[tokio::test]
async fn purges_of_the_earlier_process_are_received_by_the_next() {
    let server = server().await;
    let one = Process::begin(sharing(&server), None).await;
    let left = one.received.reached().unwrap();
    one.publish(&tag("red"), Reach::Hard).await;
    one.received.until(|_| one.received.reached().as_ref() != Some(&left)).await;
    assert!(!one.received.all.borrow().contains(&purged(&tag("red"), Reach::Hard)));
    let again = Process::begin(sharing(&server), Some(left)).await;
    assert_eq!(again.received.before_connected(), [purged(&tag("red"), Reach::Hard)]);
}
