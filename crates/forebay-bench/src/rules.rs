//! Rules: time of matching and merging, beside code written by hand and a list of expressions that
//! run one by one; time and memory of loading.

#[path = "../../forebay-http/benches/hit_path/rule_mix.rs"]
mod rule_mix;

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use forebay_rules::json::{JsonCut, OnError, Pointer, cut};
use forebay_rules::{Pattern, Request, RuleSet};
use forebay_semantics::{PeerAddress, Scheme};
use http::Method;
use http::header::COOKIE;

use self::rule_mix::{Asked, TARGET, rules};
use crate::environment::{Options, median, mib};
use crate::report::{Bound, Table, Verdict};

/// Evaluations in one round: milliseconds.
const TIMES: usize = 4_096;

const ROUNDS: usize = 31;
const ROUNDS_QUICK: usize = 7;

/// Largest mean of 100 rules, in nanoseconds.
const HUNDRED_MAX_NS: f64 = 1_000.0;

/// Largest time to load 100 rules.
const LOAD_MAX: Duration = Duration::from_millis(10);

/// Largest time to load [`SITES`] sites with 250 rules each.
const LOADS_MAX: Duration = Duration::from_millis(500);
const SITES: usize = 10;

/// Largest size of the automata of a site, in MiB.
const AUTOMATA_MAX_MIB: f64 = 2.0;

/// Length of a JSON body, and the largest time and memory to cut it.
const JSON_LEN: usize = 1 << 20;
const JSON_MAX: Duration = Duration::from_millis(15);
const JSON_MEMORY: Bound = Bound::AtMost(3.0);

/// Length of the longest target that the front end accepts.
const LONGEST: usize = 16 << 10;

/// Largest time for a target of that length, in microseconds.
const LONGEST_MAX_US: f64 = 1_000.0;

/// One way to treat a request.
struct Subject {
    name: &'static str,
    run: Box<dyn Fn() -> usize>,
    most: Bound,
}

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let rounds = options.pick(ROUNDS, ROUNDS_QUICK);
    Ok(vec![matching(rounds)?, loading(rounds)?, cutting(rounds)?])
}

/// Cuts of a JSON body of 1 MiB, which run once for each fetch.
fn cutting(rounds: usize) -> Result<Table> {
    let mut table = Table::figures("Cutting a JSON body of 1 MiB");
    let pointers = |texts: &[&str]| -> Result<Vec<Pointer>> {
        let parsed = texts.iter().map(|text| Pointer::parse(text)).collect::<Result<_, String>>();
        parsed.map_err(anyhow::Error::msg)
    };
    let rule = JsonCut {
        remove: pointers(&["/items/*/internal", "/items/*/price/cost", "/token"])?,
        keep: Vec::new(),
        max: JSON_LEN * 2,
        on_error: OnError::Fail,
    };
    let item = r#"{"id":1234567,"name":"a \"product\"","price":{"net":12.5,"cost":3},"internal":[1,2,{"a":null}]},"#;
    let mut body = r#"{"token":"secret","items":["#.to_owned();
    body.push_str(&item.repeat(JSON_LEN / item.len()));
    body.push_str("{}]}");
    let cut_once = || cut(black_box(body.as_bytes()), &[&rule]);
    ensure!(cut_once()?.len() < body.len(), "values are removed");
    let took: Result<Vec<f64>> = (0..rounds).map(|_| timed(|| Ok(cut_once()?))).collect();
    let took = Duration::from_secs_f64(median(&took?));
    table.time("three pointers, two of them with `*`", took, JSON_MAX, 1);
    let peak = allocation_counter::measure(|| drop(black_box(cut_once()))).bytes_max;
    // The body as it was received is the third part.
    let times = 1.0 + peak as f64 / body.len() as f64;
    table.figure("peak memory, with the received body", times, "times the body", JSON_MEMORY);
    Ok(table)
}

fn matching(rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        "Matching and merging the rules for one request",
        &["", "ns", "allocations per request"],
    )
    .note(
        "The native code tests the beginning of a path, a method and a cookie. Of the rules three \
         match; of 100 and of 250, 40 have regular expressions.",
    );
    for subject in subjects()? {
        let ns: Vec<f64> = (0..rounds).map(|_| round(&subject)).collect();
        let allocated = allocation_counter::measure(|| {
            for _ in 0..TIMES {
                black_box((subject.run)());
            }
        });
        let per_request = allocated.count_total as f64 / TIMES as f64;
        let ns = median(&ns);
        let (bound, verdict) = match subject.most {
            Bound::AtMost(most) => {
                let holds = ns <= most && allocated.count_total == 0;
                (format!("≤ {most:.0} ns, 0 allocations"), Verdict::of(holds))
            }
            _ => (String::new(), Verdict::Shown),
        };
        let cells = vec![subject.name.to_owned(), format!("{ns:.0}"), format!("{per_request:.2}")];
        table.row(cells, bound, verdict);
    }
    Ok(table)
}

fn subjects() -> Result<Vec<Subject>> {
    let native = || {
        let asked = Asked::new();
        move || {
            let path = black_box(TARGET);
            let is_product = path.starts_with("/products/");
            let is_get = *black_box(&Method::GET) == Method::GET;
            let has_cookie = asked.0.get(COOKIE).is_some();
            usize::from(is_product) + usize::from(is_get) + usize::from(has_cookie)
        }
    };
    let expressions: Result<Vec<Pattern>, String> =
        (0..100).map(|n| Pattern::new(&format!("^/r{n}/[0-9]+/(a|b)+\\.html$"))).collect();
    let expressions = expressions.map_err(anyhow::Error::msg)?;
    let one_by_one = move || {
        let path = black_box(TARGET).as_bytes();
        expressions.iter().filter(|expression| expression.is_match(path)).count()
    };
    let ours = |name, count: usize, regexes, most| {
        let (set, asked) = (rules(count, regexes)?, Asked::new());
        ensure!(asked.matches(&set) == count.min(3), "three rules match");
        anyhow::Ok(Subject { name, run: Box::new(move || asked.matches(&set)), most })
    };
    let bound = Bound::AtMost(HUNDRED_MAX_NS);
    Ok(vec![
        Subject { name: "native code", run: Box::new(native()), most: Bound::None },
        ours("no rules", 0, 0, Bound::None)?,
        ours("4 rules", 4, 0, Bound::None)?,
        ours("100 rules", 100, 40, bound)?,
        ours("250 rules", 250, 40, Bound::None)?,
        Subject {
            name: "100 expressions, one by one",
            run: Box::new(one_by_one),
            most: Bound::None,
        },
    ])
}

/// Nanoseconds for each request of a round.
fn round(subject: &Subject) -> f64 {
    let begun = Instant::now();
    for _ in 0..TIMES {
        black_box((subject.run)());
    }
    begun.elapsed().as_secs_f64() * 1e9 / TIMES as f64
}

fn loading(rounds: usize) -> Result<Table> {
    let mut table = Table::figures("Loading rules, and the longest target");
    let hundred = (0..rounds).map(|_| timed(|| rules(100, 40)));
    let hundred: Vec<f64> = hundred.collect::<Result<_>>()?;
    let took = Duration::from_secs_f64(median(&hundred));
    table.time("load of 100 rules, 40 with regular expressions", took, LOAD_MAX, 1);
    let begun = Instant::now();
    let sites: Result<Vec<RuleSet>> = (0..SITES).map(|_| rules(250, 40)).collect();
    let took = begun.elapsed();
    table.time(format!("load of {SITES} sites with 250 rules each"), took, LOADS_MAX, 1);
    let size = sites?.iter().map(RuleSet::automata_size).max().unwrap_or_default();
    let bound = Bound::AtMost(AUTOMATA_MAX_MIB);
    table.figure("automata of a site with 250 rules", mib(size as u64), "MiB", bound);
    let longest = longest_target(rounds)?;
    table.figure("a target of 16 KiB", longest, "µs", Bound::AtMost(LONGEST_MAX_US));
    Ok(table)
}

fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begun = Instant::now();
    black_box(run()?);
    Ok(begun.elapsed().as_secs_f64())
}

/// Microseconds for a target of [`LONGEST`] bytes, which has a second reading.
fn longest_target(rounds: usize) -> Result<f64> {
    let (set, asked) = (rules(250, 40)?, Asked::new());
    let mut target = "/products/%61/".to_owned();
    target.push_str(&"a/;b".repeat((LONGEST - target.len()) / 4));
    let request = Request {
        method: &Method::GET,
        scheme: Scheme::Http,
        host: "shop.example",
        target: &target,
        headers: &asked.0,
        client: PeerAddress::Unix,
        operation: None,
    };
    let took: Result<Vec<f64>> =
        (0..rounds).map(|_| timed(|| Ok(set.evaluate(black_box(&request))))).collect();
    Ok(median(&took?) * 1e6)
}
