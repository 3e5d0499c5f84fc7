//! Test support for forebay. For tests only: no shipped crate depends on it.
//!
//! | module | contents |
//! |---|---|
//! | [`origin`] | scripted HTTP/1.1 origin that can misbehave, and counts |
//! | [`client`] | HTTP/1.1 client that shows responses as received; crowds of clients |
//! | [`gate`] | barrier that a test opens, so that tests need no sleeps |
//! | [`pause`] | exact pause, for measurements |
//! | [`clock`] | clock that moves only when it is stepped |
//! | [`scenario`] | `.scn` files, the bug report format: origins, forebays, clients, counters |
//! | [`launch`] | starts the real binary, reads its ready line, signals it, stops it |
//! | [`redis`] | real Redis servers on free ports: single, replicas, Sentinels, a Cluster |
//! | [`faults`] | TCP proxy that delays, freezes, resets and drops |
//! | [`http2`] | frames of HTTP/2, for clients that break its rules |
//! | [`history`] | checker of reads against acknowledged purges |
//! | [`traffic`] | generated requests for measurements of early refresh |
//! | [`apart`] | pages that name their client, and histories in which no client may read another's name |
//! | [`fields`] | header fields as received: order, case and duplicates are kept |
//!
//! Client and origin implement HTTP/1.1 on a TCP stream (the private `wire` module). A conforming
//! library would refuse to send what these tests send, and would hide what they check: truncated
//! bodies, malformed messages, interim responses, the exact order of fields.
//!
//! Not supported: TLS, and HTTP/2 beyond its frames. The crate knows nothing of forebay itself; a test supplies the
//! front end, as a [`scenario::Front`] or as a binary.

pub mod apart;
pub mod client;
pub mod clock;
pub mod faults;
pub mod fields;
pub mod gate;
pub mod history;
pub mod http2;
pub mod launch;
pub mod origin;
pub mod pause;
pub mod redis;
pub mod scenario;
pub mod traffic;
mod wire;
