//! Behaviour of the pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::{AUTHORIZATION, CODING, FIELDS, RECORD, letter, one_of, record};
use crate::origin::{Answer, Received};

/// Number of pages that have a version.
pub(super) const PAGES_MAX: usize = 3;

/// `Last-Modified` of every page.
pub(super) const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// `Cache-Control` of responses, and whether it says that a response is for one client.
const CONTROLS: [(&str, bool); 11] = [
    ("max-age=60", false),
    ("max-age=60", false),
    ("max-age=0", false),
    ("no-cache", false),
    ("max-age=1, stale-while-revalidate=600", false),
    ("max-age=1, stale-if-error=600", false),
    ("public, max-age=60", false),
    ("s-maxage=60", false),
    ("max-age=1, must-revalidate", false),
    ("private, max-age=60", true),
    ("no-store", true),
];

/// Directives that let a response to a request with `Authorization` be stored (RFC 9111 section
/// 3.5).
const SHARED: [&str; 3] = ["public", "s-maxage", "must-revalidate"];

/// The version of each page.
#[derive(Debug, Default)]
pub(super) struct Versions([AtomicU64; PAGES_MAX]);

impl Versions {
    pub(super) fn restart(&self) {
        for version in &self.0 {
            version.store(0, Ordering::SeqCst);
        }
    }

    pub(super) fn change(&self, page: usize) {
        self.0[page].fetch_add(1, Ordering::SeqCst);
    }

    fn of(&self, page: u64) -> u64 {
        self.0[usize::try_from(page).unwrap_or(0) % PAGES_MAX].load(Ordering::SeqCst)
    }
}

/// Behaviour of a page in one of its versions.
struct Page {
    /// Fields that `Vary` names.
    varies: [bool; FIELDS.len()],
    control: (&'static str, bool),
    tag: Option<&'static str>,
    is_dated: bool,
    codes: bool,
    takes_ranges: bool,
    answers_conditions: bool,
    /// Repeats `Vary` in a 304.
    repeats_vary: bool,
    fails: bool,
    is_slow: bool,
    records: usize,
}

impl Page {
    fn new(seed: u64, page: u64, version: u64) -> Self {
        // What a server does for all versions of a page, and what changes with them.
        let mut always = Rng::with_seed(seed ^ page.wrapping_mul(0x1234_5678_9abc_def1));
        let mut now = Rng::with_seed(always.u64(..) ^ version.wrapping_mul(0x0fed_cba9_8765_4321));
        let mut varies = [(); FIELDS.len()].map(|()| now.u8(..3) == 0);
        // Nothing is stored for a request with credentials, so this is rarely of interest.
        varies[AUTHORIZATION] &= now.bool();
        Self {
            varies,
            control: one_of(&CONTROLS, &mut now),
            tag: one_of(&[None, Some("W/\"x\""), Some("\"x\"")], &mut always),
            is_dated: always.u8(..3) == 0,
            codes: always.bool(),
            takes_ranges: always.bool(),
            answers_conditions: always.u8(..4) != 0,
            repeats_vary: always.u8(..4) != 0,
            fails: now.u8(..12) == 0,
            is_slow: now.u8(..4) == 0,
            records: one_of(&[8, 64], &mut always),
        }
    }

    /// The record of the response to a request with these letters.
    fn record(&self, own: [char; FIELDS.len()]) -> String {
        let (control, is_private) = self.control;
        let may_be_shared = SHARED.iter().any(|word| control.contains(word));
        let is_for_one = is_private || own[AUTHORIZATION] != '0' && !may_be_shared;
        let mut letters = ['-'; FIELDS.len()];
        for (place, letter) in letters.iter_mut().enumerate() {
            if self.varies[place] || is_for_one {
                *letter = own[place];
            }
        }
        record(letters, self.coding(own))
    }

    fn coding(&self, own: [char; FIELDS.len()]) -> char {
        if self.codes && matches!(own[CODING], 'g' | 'b') { own[CODING] } else { 'i' }
    }

    fn vary(&self) -> String {
        let names = FIELDS.iter().zip(self.varies).filter(|(_, varies)| *varies);
        names.map(|((name, ..), _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// Answers as the page that is asked for does.
pub(super) fn answer(received: &Received, versions: &Versions) -> Answer {
    let mut path = received.path().split('/').skip(1).map(str::parse::<u64>);
    let (Some(Ok(seed)), Some(Ok(number))) = (path.next(), path.next()) else {
        return Answer::status(404);
    };
    let page = Page::new(seed, number, versions.of(number));
    if page.fails {
        return Answer::status(503);
    }
    let asked = |name: &str| received.fields.first(name);
    let mut own = ['0'; FIELDS.len()];
    for (place, own) in own.iter_mut().enumerate() {
        *own = letter(place, asked(FIELDS[place].0));
    }
    let record = page.record(own);
    let known = asked("if-none-match").map_or_else(
        || page.is_dated && asked("if-modified-since") == Some(MODIFIED),
        |tags| page.tag.is_some_and(|tag| tags.contains(tag)),
    );
    if known && page.answers_conditions {
        let answer = described(Answer::status(304), &page, page.repeats_vary);
        // Without `Vary` it depends on nothing.
        return if page.repeats_vary { answer.field("X-For", record) } else { answer };
    }
    let body = record.repeat(page.records);
    let is_asked_for = |tag: &str| page.tag == Some(tag) && !tag.starts_with('W');
    let range = asked("range").filter(|_| page.takes_ranges);
    let part = range.filter(|_| asked("if-range").is_none_or(is_asked_for));
    let answer = match part.and_then(|range| span(range, body.len())) {
        Some((first, last)) => Answer::status(206)
            .field("Content-Range", format!("bytes {first}-{last}/{}", body.len()))
            .body(body[first..=last].to_owned()),
        None => Answer::ok(body.clone()),
    };
    let answer = match page.coding(own) {
        'g' => answer.field("Content-Encoding", "gzip"),
        'b' => answer.field("Content-Encoding", "br"),
        _ => answer,
    };
    let answer = described(answer, &page, true).field("X-For", record);
    if page.is_slow { answer.drip(2, Duration::from_millis(1)) } else { answer }
}

fn described(answer: Answer, page: &Page, with_vary: bool) -> Answer {
    let mut answer = answer.field("Cache-Control", page.control.0);
    if let Some(tag) = page.tag {
        answer = answer.field("ETag", tag);
    }
    if page.is_dated {
        answer = answer.field("Last-Modified", MODIFIED);
    }
    let vary = page.vary();
    if with_vary && !vary.is_empty() { answer.field("Vary", vary) } else { answer }
}

/// The first and the last byte of a single range, if it lies inside.
fn span(range: &str, length: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let span = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, last.min(length - 1)),
        (Ok(first), Err(_)) => (first, length - 1),
        (Err(_), Ok(count)) => (length.saturating_sub(count), length - 1),
        (Err(_), Err(_)) => return None,
    };
    (span.0 <= span.1 && span.0.is_multiple_of(RECORD)).then_some(span)
}
