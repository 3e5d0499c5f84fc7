//! HTTP/2 connections of one endpoint, each of which carries many requests at once.
//!
//! A task of its own drives each connection, on the worker that opened it. A connection that the
//! origin ends (GOAWAY), or that was idle for too long, gets no further requests; it closes when its
//! last response has ended.
//!
//! | file | contents |
//! |---|---|
//! | `shared.rs` | one connection, and the requests on it |
//! | `pool.rs` | the connections of each worker |
//! | `request.rs` | requests and failures in the form of HTTP/2 |

mod pool;
mod request;
mod shared;

pub(super) use pool::{Found, Http2List, Http2Pool, Opened};
pub(super) use shared::{SharedConnection, StreamLease};
