//! The page that tells readers where the instructions of a hit go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::callgrind::{Cost, Profile};
use super::record::Record;
use crate::workspace;

/// Where the page stands.
pub(super) const FILE: &str = "docs/instructions.md";

/// Functions below this part of the whole are left out: one in 64, as are those above nine tenths,
/// which only stand around the others.
const SMALLEST_PART: u64 = 64;

/// Owners below this part of the whole are told together: one in 200.
const SMALLEST_OWNER: u64 = 200;

/// What they are told as.
const ELSE: &str = "else";

/// What each piece is, for readers.
const PIECES: &[(&str, &str)] = &[
    ("memory-get", "the memory tier finds an entry, and its reference is dropped"),
    ("judge", "the verdict on a fresh entry"),
    ("look", "the engine finds a fresh entry: memory, clock, purges, judge"),
    ("look-variant", "the same where two request fields select among variants"),
    ("guard-scan", "the guard follows one request head: 269 bytes, six fields"),
    ("key", "authority and target in their one form, and the key of both"),
    ("answer", "the service answers a parsed request with a stored 1 KiB; both are dropped"),
    ("connection", "the same from the request's bytes to the answer's, through guard and hyper"),
    ("bare-hyper", "as `connection`, with neither guard nor cache: hyper and tokio alone"),
];

const HEAD: &str = "\
# What a hit costs, in instructions

`cargo xtask instructions --record` writes this page and `instructions.json`;
`cargo xtask ci` compares with the latter.
What is counted, and what to do when a count has changed, stands in
[CONTRIBUTING](../CONTRIBUTING.md#what-a-hit-costs).
";

const REQUEST: &str = "
## Where the instructions of one request go

One keep-alive request for a stored body of 1 KiB, from the bytes of its head to those of the
answer (`connection` above).
The kernel is not in it: no system call, no copy to a socket, no wait for one.
";

const OWNERS: &str = "
By who has the code. Each instruction counts once, for the function that it stands in after
inlining.
";

const FUNCTIONS: &str = "
By function, with all that it calls, so that the rows overlap. What was inlined has no row of its
own.
";

pub(super) fn file() -> PathBuf {
    workspace::root().join(FILE)
}

/// The whole page.
pub(super) fn render(record: &Record, whole: &Profile) -> String {
    let (counts, share) = (counts(record), share(record));
    [HEAD, &counts, REQUEST, &share, OWNERS, &owners(whole), FUNCTIONS, &functions(whole)].concat()
}

/// What of a whole request is the cache's own, in a sentence.
fn share(record: &Record) -> String {
    let count = |name: &str| record.instructions.get(name).copied();
    let (Some(whole), Some(bare)) = (count(super::WHOLE), count(super::BARE)) else {
        return String::new();
    };
    let own = whole.saturating_sub(bare);
    let of = part(own, whole);
    format!(
        "hyper and tokio alone take {bare} of these {whole} instructions (`{}`); the other {own}, \
         {of}, are what guard and cache add.\n",
        super::BARE
    )
}

/// The table of what is on record.
pub(super) fn counts(record: &Record) -> String {
    let ground = &record.ground;
    let mut text = format!(
        "\nCounted with {}, on {}.\n\n| piece | instructions | what it does |\n|---|--:|---|\n",
        ground.toolchain(),
        ground.machine()
    );
    for (name, count) in &record.instructions {
        let told = PIECES.iter().find(|(known, _)| known == name).map_or("", |(_, does)| does);
        line(&mut text, &[&format!("`{name}`"), &count.to_string(), told]);
    }
    text
}

fn owners(whole: &Profile) -> String {
    let mut owners: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, cost) in whole.functions() {
        *owners.entry(owner(name, cost)).or_default() += cost.own;
    }
    let is_small = |own: u64| own * SMALLEST_OWNER < whole.total();
    let small: u64 = owners.values().copied().filter(|own| is_small(*own)).sum();
    owners.retain(|_, own| !is_small(*own));
    *owners.entry(ELSE).or_default() += small;
    let mut owners: Vec<_> = owners.into_iter().collect();
    owners.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
    let mut text = "\n| instructions | part | whose |\n|--:|--:|---|\n".to_owned();
    for (owner, own) in owners {
        let is_crate = !owner.contains(' ') && owner != ELSE;
        let owner = if is_crate { format!("`{owner}`") } else { owner.to_owned() };
        line(&mut text, &[&own.to_string(), &part(own, whole.total()), &owner]);
    }
    text
}

fn functions(whole: &Profile) -> String {
    let is_told = |name: &str, cost: &Cost| {
        let is_whole = cost.inclusive * 100 > whole.total() * 90;
        let is_one_of = ["forebay_", "hyper", "http", "tokio"];
        let is_known = is_one_of.iter().any(|start| owner(name, cost).starts_with(start));
        is_known && !is_whole && cost.inclusive * SMALLEST_PART >= whole.total()
    };
    let mut told: Vec<_> = whole.functions().filter(|(name, cost)| is_told(name, cost)).collect();
    told.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.inclusive));
    let mut text = "\n| instructions | part | function |\n|--:|--:|---|\n".to_owned();
    for (name, cost) in told {
        let inclusive = cost.inclusive;
        let part = part(inclusive, whole.total());
        line(&mut text, &[&inclusive.to_string(), &part, &format!("`{name}`")]);
    }
    text
}

fn line(text: &mut String, cells: &[&str]) {
    // To write into a text cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn part(of: u64, all: u64) -> String {
    let permille = of * 1_000 / all.max(1);
    format!("{}.{} %", permille / 10, permille % 10)
}

/// Whose code a function is: a crate, or what the system's library does for all of them.
fn owner<'n>(name: &'n str, cost: &Cost) -> &'n str {
    if cost.object.contains("libc.so") {
        let is_copying = name.trim_start_matches('_').starts_with("mem");
        return match cost.source.contains("malloc") {
            true => "allocating and freeing",
            false if is_copying => "copying and comparing bytes",
            false => "the C library, else",
        };
    }
    match first_segment(name) {
        "core" | "alloc" | "std" => "the standard library",
        "__rustc" => "allocating and freeing",
        "hit_path" => "the client of this measurement",
        "" => ELSE,
        crate_name => crate_name,
    }
}

/// The crate of `a::b`, of `<a::b as c::d>::e`, and of `<T as c::d>::e`.
fn first_segment(name: &str) -> &str {
    let name = name.trim_start_matches(['<', '&', '[', '(', '*']);
    let name = name.trim_start_matches("mut ").trim_start_matches("const ");
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    let (first, rest) = name.split_at(end);
    if rest.starts_with("::") {
        return first;
    }
    rest.split_once(" as ").map_or("", |(_, of)| first_segment(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(object: &str, source: &str) -> Cost {
        Cost { object: object.to_owned(), source: source.to_owned(), ..Cost::default() }
    }

    #[test]
    fn functions_belong_to_crates() {
        let here = cost("/there/hit_path", "???");
        let rows = [
            ("forebay_http::service::Service::look", "forebay_http"),
            ("<hyper::proto::role::Server as hyper::Http1>::parse", "hyper"),
            ("<&mut F as core::future::future::Future>::poll", "the standard library"),
            ("core::ptr::drop_in_place<http::header::HeaderMap>", "the standard library"),
            ("__rustc::__rust_dealloc", "allocating and freeing"),
            ("hit_path::replay::Replay::take", "the client of this measurement"),
            ("0x0000000000001ab7", "else"),
        ];
        for (name, expected) in rows {
            assert_eq!(owner(name, &here), expected, "{name}");
        }
    }

    #[test]
    fn what_the_system_does_is_told_by_kind() {
        let copying = cost("/lib/libc.so.6", "./string/memmove.S");
        assert_eq!(owner("__memcpy_avx_unaligned", &copying), "copying and comparing bytes");
        let allocating = cost("/lib/libc.so.6", "./malloc/malloc.c");
        assert_eq!(owner("_int_free", &allocating), "allocating and freeing");
        let clock = cost("/lib/libc.so.6", "./time/clock_gettime.c");
        assert_eq!(owner("clock_gettime", &clock), "the C library, else");
    }

    #[test]
    fn parts_are_of_the_whole() {
        assert_eq!(part(250, 1_000), "25.0 %");
        assert_eq!(part(1, 0), "100.0 %");
    }
}
