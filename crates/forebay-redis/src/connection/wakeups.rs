//! Callers that wait for loads of other instances, and the messages that wake them.
//!
//! Each instance subscribes to one channel on its main connection. A message names a hash of
//! leases, a field within it, and the lease that it is about. Its content is untrusted: a value in
//! it is verified like one that was read.
//!
//! Messages and the bus are not ordered relative to each other. A message about an ended lease can
//! arrive after the purge of the value that it carries. A waiter therefore accepts a value only
//! from the lease that it found when it began to wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Vary;
use forebay_engine::Credentials;
use forebay_engine::lease::Release;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::counts::{Counters, count};

/// Maximum bytes of a message: more than a small value with its names.
const MESSAGE_MAX: usize = 16 << 10;

/// Maximum number of selecting fields in an outcome.
const FIELDS_MAX: usize = 256;

/// Maximum bytes of an outcome: all names of selecting fields together.
const OUTCOME_MAX: usize = 8 << 10;

/// Maximum number of awaited leases. Callers beyond it load for themselves.
const WAITING_MAX: usize = 65_536;

/// Digest in a message that concerns the key and no particular lease.
const NO_LEASE: LeaseDigest = [b'0'; 16];

/// Content of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// The entry was stored. A small value is included, with its remaining TTL.
    Filled(Option<(Duration, Bytes)>),
    Released(Release),
    Again,
}

/// A field in a hash of leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseKey {
    pub(crate) leases: Box<str>,
    pub(crate) field: Vec<u8>,
}

/// Digest of a lease's token, which waiters know it by.
pub(crate) type LeaseDigest = [u8; 16];

type Waiting = HashMap<LeaseKey, SmallVec<[(u64, oneshot::Sender<(LeaseDigest, Wakeup)>); 1]>>;

#[derive(Default)]
pub(crate) struct Wakeups {
    waiting: Mutex<Waiting>,
    next_number: AtomicU64,
    counters: Arc<Counters>,
}

/// A registered waiter; dropping it ends the registration.
pub(crate) struct Waiter {
    wakeups: Arc<Wakeups>,
    lease_key: LeaseKey,
    number: u64,
    pub(crate) woken: oneshot::Receiver<(LeaseDigest, Wakeup)>,
}

impl Wakeups {
    pub(crate) fn new(counters: &Arc<Counters>) -> Arc<Self> {
        Arc::new(Self { counters: counters.clone(), ..Self::default() })
    }

    /// Registers a waiter. This must precede the request to Redis, or a message in between would be
    /// missed. `None` if too many leases are awaited.
    pub(crate) fn wait(self: &Arc<Self>, lease_key: LeaseKey) -> Option<Waiter> {
        let (sender, woken) = oneshot::channel();
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX && !waiting.contains_key(&lease_key) {
            return None;
        }
        waiting.entry(lease_key.clone()).or_default().push((number, sender));
        drop(waiting);
        Some(Waiter { wakeups: self.clone(), lease_key, number, woken })
    }

    /// Wakes all waiters, because messages may have been missed.
    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for (_, sender) in waiting.into_values().flatten() {
            // The waiter may have stopped waiting.
            let _ = sender.send((NO_LEASE, Wakeup::Again));
        }
    }

    /// Handles a push message of a connection.
    pub(crate) fn receive(&self, info: &PushInfo) {
        match (&info.kind, &info.data[..]) {
            (PushKind::Disconnection, _) => self.wake_all(),
            (PushKind::Message, [_, Value::BulkString(message)]) => self.receive_message(message),
            _ => {}
        }
    }

    fn receive_message(&self, message: &[u8]) {
        let Some((lease_key, wakeup)) = parse(message) else {
            return count(&self.counters.foreign);
        };
        let waiting = self.waiting.lock().remove(&lease_key);
        for (_, sender) in waiting.into_iter().flatten() {
            count(&self.counters.woken);
            let _ = sender.send(wakeup.clone());
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.wakeups.waiting.lock();
        let Some(same) = waiting.get_mut(&self.lease_key) else { return };
        same.retain(|(number, _)| *number != self.number);
        if same.is_empty() {
            waiting.remove(&self.lease_key);
        }
    }
}

fn parse(message: &[u8]) -> Option<(LeaseKey, (LeaseDigest, Wakeup))> {
    if message.len() > MESSAGE_MAX {
        return None;
    }
    let (kind, rest) = message.split_first()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (leases, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let (length, rest) = rest.split_first()?;
    let (field, rest) = rest.split_at_checked(usize::from(*length))?;
    let (name, rest) = rest.split_first_chunk::<16>()?;
    let leases = std::str::from_utf8(leases).ok()?.into();
    let wakeup = match kind {
        b'A' if rest.is_empty() => Wakeup::Again,
        b'R' => Wakeup::Released(decode_outcome(rest)?),
        b'F' if rest.is_empty() => Wakeup::Filled(None),
        b'F' => Wakeup::Filled(Some(parse_value(rest)?)),
        _ => return None,
    };
    Some((LeaseKey { leases, field: field.to_vec() }, (*name, wakeup)))
}

/// Parses the remaining TTL in decimal milliseconds, a space, and the value.
fn parse_value(rest: &[u8]) -> Option<(Duration, Bytes)> {
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let left = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    Some((Duration::from_millis(left), Bytes::copy_from_slice(&rest[space + 1..])))
}

/// Encodes an outcome for a message.
pub(crate) fn encode_outcome(outcome: &Release) -> Vec<u8> {
    match outcome {
        Release::Pass { remember, credentials } => {
            let millis = u64::try_from(remember.as_millis()).unwrap_or(u64::MAX);
            let presented = u8::from(*credentials == Credentials::Presented);
            [&[b'P', presented][..], &millis.to_le_bytes()].concat()
        }
        Release::Failed => vec![b'F'],
        Release::Vary(vary) => {
            let names: Vec<&str> = vary.names().collect();
            let text = names.join("\n");
            // Too many names for a message; the waiter asks Redis instead.
            let is_short = text.len() < OUTCOME_MAX && names.len() <= FIELDS_MAX;
            if is_short { [b"V", text.as_bytes()].concat() } else { vec![b'A'] }
        }
        Release::Abandoned => vec![b'A'],
    }
}

fn decode_outcome(bytes: &[u8]) -> Option<Release> {
    let (kind, rest) = bytes.split_first()?;
    match (kind, rest) {
        (b'F', []) => Some(Release::Failed),
        (b'A', []) => Some(Release::Abandoned),
        (b'P', [presented @ 0..=1, millis @ ..]) => {
            let remember = Duration::from_millis(u64::from_le_bytes(millis.try_into().ok()?));
            let credentials = match presented {
                0 => Credentials::Anonymous,
                _ => Credentials::Presented,
            };
            Some(Release::Pass { remember, credentials })
        }
        (b'V', names) if names.len() < OUTCOME_MAX => {
            let names: Vec<&str> = std::str::from_utf8(names).ok()?.split('\n').collect();
            let are_sound = names.len() <= FIELDS_MAX && names.iter().all(|name| !name.is_empty());
            Vary::new(names).filter(|_| are_sound).map(Release::Vary)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: LeaseDigest = *b"0123456789abcdef";

    fn lease_key() -> LeaseKey {
        LeaseKey { leases: "n:l:{a|}".into(), field: b"v123".to_vec() }
    }

    fn message(kind: u8, rest: &[u8]) -> Vec<u8> {
        let LeaseKey { leases, field } = lease_key();
        let length = u16::try_from(leases.len()).unwrap().to_le_bytes();
        let parts: [&[u8]; 6] = [&[kind], &length, leases.as_bytes(), &[4], &field, &NAME];
        [&parts.concat()[..], rest].concat()
    }

    fn pushed(message: Vec<u8>) -> PushInfo {
        let data = vec![Value::BulkString(b"n:i:me".to_vec()), Value::BulkString(message)];
        PushInfo { kind: PushKind::Message, data }
    }

    #[test]
    fn outcome_round_trips() {
        let remember = Duration::from_millis(1_234);
        for outcome in [
            Release::Pass { remember, credentials: Credentials::Anonymous },
            Release::Pass { remember, credentials: Credentials::Presented },
            Release::Failed,
            Release::Abandoned,
            Release::Vary(Vary::new(["accept", "accept-language"]).unwrap()),
        ] {
            let sent = message(b'R', &encode_outcome(&outcome));
            assert_eq!(parse(&sent), Some((lease_key(), (NAME, Wakeup::Released(outcome)))));
        }
        let many: Vec<String> = (0..=FIELDS_MAX).map(|number| format!("x-{number}")).collect();
        let many = Vary::new(many.iter().map(String::as_str)).unwrap();
        assert_eq!(encode_outcome(&Release::Vary(many)), b"A");
    }

    #[test]
    fn invalid_message_is_counted_and_wakes_no_waiter() {
        let wakeups = Wakeups::new(&Arc::default());
        let mut waiter = wakeups.wait(lease_key()).unwrap();
        let sound = message(b'F', b"60000 value");
        let mut wrong: Vec<Vec<u8>> =
            (0..sound.len() - b"60000 value".len()).map(|end| sound[..end].to_vec()).collect();
        wrong.extend([
            b"{\"json\": true}".to_vec(),
            message(b'?', b""),
            message(b'A', b"more"),
            message(b'F', b"never"),
            message(b'F', b"-1 value"),
            message(b'R', b""),
            message(b'R', b"P\x02\0\0\0\0\0\0\0\0"),
            message(b'R', b"P\x01\0\0\0"),
            message(b'R', b"V"),
            message(b'R', b"V\xff"),
            message(b'F', &[b'9'; MESSAGE_MAX]),
        ]);
        let count = wrong.len() as u64;
        for message in wrong {
            wakeups.receive(&pushed(message.clone()));
            assert!(waiter.woken.try_recv().is_err(), "{message:?}");
        }
        assert_eq!(wakeups.counters.read().foreign, count);
        wakeups.receive(&pushed(sound));
        let filled = Some((Duration::from_secs(60), Bytes::from_static(b"value")));
        assert_eq!(waiter.woken.try_recv(), Ok((NAME, Wakeup::Filled(filled))));
    }

    #[test]
    fn waiters_of_one_lease_are_woken_together() {
        let wakeups = Wakeups::new(&Arc::default());
        let mut waiters = [(); 2].map(|()| wakeups.wait(lease_key()).unwrap());
        drop(wakeups.wait(lease_key()).unwrap());
        let other = LeaseKey { field: Vec::new(), ..lease_key() };
        let mut elsewhere = wakeups.wait(other).unwrap();
        wakeups.receive(&pushed(message(b'A', b"")));
        assert!(
            waiters.iter_mut().all(|waiter| waiter.woken.try_recv() == Ok((NAME, Wakeup::Again)))
        );
        assert!(elsewhere.woken.try_recv().is_err());
        wakeups.receive(&PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        assert_eq!(elsewhere.woken.try_recv(), Ok((NO_LEASE, Wakeup::Again)));
        assert_eq!(wakeups.counters.read().woken, 2);
        assert!(wakeups.waiting.lock().is_empty());
    }
}
