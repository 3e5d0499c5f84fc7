//! What forebay's tests stand on. For tests only: no shipped crate depends on it.
//!
//! | room | what it is |
//! |---|---|
//! | [`origin`] | an HTTP/1.1 origin that answers by script, misbehaves on request, and counts |
//! | [`client`] | an HTTP/1.1 client that reads what really came, and a crowd of them |
//! | [`gate`] | something a test opens by hand, so that no test has to sleep |
//! | [`pause`] | a pause of an exact length, for measurements |
//! | [`clock`] | a clock that moves only when it is stepped |
//! | [`scenario`] | `.scn` files, the bug-report format: origins, forebays, clients, counters |
//! | [`launch`] | starts the real binary, reads its ready line, signals it, ends it |
//! | [`redis`] | real Redis servers on free ports: alone, as replicas, Sentinels, a Cluster |
//! | [`faults`] | a proxy between two others that delays, freezes, cuts and swallows |
//! | [`history`] | what is true, what was promised, and whether reads keep to that |
//! | [`traffic`] | who asks for what and when, where early refresh is measured |
//! | [`apart`] | pages that name their client, and histories in which none may read another name |
//! | [`fields`] | header fields as received: order, case and duplicates kept |
//!
//! Both ends speak HTTP/1.1 by hand over a TCP stream (the private `wire` module), because a
//! well-behaved library would refuse to send what these tests must send, and would hide what
//! they must see: truncated bodies, nonsense, interim responses, the exact order of fields.
//!
//! Deliberately absent: TLS, HTTP/2, and any knowledge of forebay itself. A test brings its own
//! door, as a [`scenario::Front`] or as a binary.

pub mod apart;
pub mod client;
pub mod clock;
pub mod faults;
pub mod fields;
pub mod gate;
pub mod history;
pub mod launch;
pub mod origin;
pub mod pause;
pub mod redis;
pub mod scenario;
pub mod traffic;
mod wire;
