//! One client's request, and whether the reply is for it.

use anyhow::ensure;
use fastrand::Rng;

use super::pages::MODIFIED;
use super::{CODING, FIELDS, RECORD, check_record, one_of};
use crate::client::{Reply, Request};

/// `Cache-Control` of requests; most have none.
const DEMANDS: [&str; 12] = [
    "",
    "",
    "",
    "",
    "",
    "",
    "no-cache",
    "max-age=0",
    "max-stale=600",
    "only-if-cached",
    "no-store",
    "min-fresh=10",
];

/// Ranges that begin and end where records do.
const RANGES: [&str; 5] = ["bytes=0-47", "bytes=24-71", "bytes=-48", "bytes=96-", "bytes=0-"];

/// Statuses that a client may see, and 504 where it wants nothing but what is stored. Errors name
/// no client.
const STATUSES: [u16; 5] = [200, 206, 304, 416, 503];

/// A client and its request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    own: [char; FIELDS.len()],
    request: Request,
    only_stored: bool,
}

impl Caller {
    pub(super) fn new(page: &str, random: &mut Rng) -> Self {
        let mut own = ['0'; FIELDS.len()];
        let mut request = Request::new(one_of(&["GET", "GET", "GET", "GET", "HEAD"], random), page);
        for (place, (name, _, values)) in FIELDS.iter().enumerate() {
            let is_rare = place > CODING;
            let chosen = random.usize(..values.len() + if is_rare { 6 } else { 1 });
            if let Some((value, letter)) = values.get(chosen) {
                own[place] = *letter;
                request = request.field(name, *value);
            }
        }
        let demand = one_of(&DEMANDS, random);
        if !demand.is_empty() {
            request = request.field("Cache-Control", demand);
        }
        request = match random.u8(..10) {
            0 => request.field("If-None-Match", "W/\"x\""),
            1 => request.field("If-None-Match", "\"x\""),
            2 => request.field("If-Modified-Since", MODIFIED),
            3 => request.field("Range", one_of(&RANGES, random)).field("If-Range", "\"x\""),
            4..=6 => request.field("Range", one_of(&RANGES, random)),
            _ => request,
        };
        Self { own, request, only_stored: demand == "only-if-cached" }
    }

    pub(super) const fn request(&self) -> &Request {
        &self.request
    }

    /// Checks that nothing in the reply names another client or another coding.
    pub(super) fn check(&self, reply: &Reply) -> anyhow::Result<()> {
        let head = || String::from_utf8_lossy(&reply.raw_head).into_owned();
        let is_expected =
            STATUSES.contains(&reply.status) || reply.status == 504 && self.only_stored;
        ensure!(is_expected, "{}", head());
        let coding = match reply.field("content-encoding") {
            None => 'i',
            Some("gzip") => 'g',
            Some("br") => 'b',
            Some(_) => '?',
        };
        ensure!(coding == 'i' || coding == self.own[CODING], "not accepted: {}", head());
        if let Some(named) = reply.field("x-for") {
            // The coding is that of the response which the fields came with.
            let of = named.chars().rev().nth(1).unwrap_or_default();
            check_record(named.as_bytes(), self.own, of)?;
        }
        if !matches!(reply.status, 200 | 206) {
            return Ok(());
        }
        let body = reply.body();
        ensure!(reply.ended_cleanly() && body.len().is_multiple_of(RECORD), "{}", head());
        body.chunks(RECORD).try_for_each(|record| check_record(record, self.own, coding))
    }
}
