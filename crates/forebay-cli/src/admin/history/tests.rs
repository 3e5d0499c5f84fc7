use forebay_http::metrics::{SiteTotals, TierTotals};
use serde_json::Value;

use super::*;

/// Totals of a site that has answered `hits` requests from storage.
fn totals(site: &str, hits: u64) -> SiteTotals {
    let mut totals = SiteTotals { site: site.into(), ..SiteTotals::default() };
    totals.responses[0] = hits;
    totals
}

fn global(waiting: u64, hits: u64) -> GlobalTotals {
    let tier = TierTotals { tier: "memory", hits, ..TierTotals::default() };
    GlobalTotals { waiting, cpu_seconds: 0.0, tiers: vec![tier] }
}

fn shown(history: &History, site: Option<&str>, span: Span) -> Value {
    serde_json::from_str(&history.shown(site, span).unwrap()).unwrap()
}

fn hits(history: &History, site: Option<&str>, span: Span) -> Vec<Option<u64>> {
    let shown = shown(history, site, span);
    shown["counts"]["hit"].as_array().unwrap().iter().map(Value::as_u64).collect()
}

#[test]
fn seconds_are_differences_and_missed_seconds_are_gaps() {
    let mut history = History::new(1_000);
    history.add(1_001, vec![totals("a", 5), totals("-", 0)], global(1, 5));
    history.add(1_002, vec![totals("a", 7), totals("-", 0)], global(4, 7));
    history.add(1_002, vec![totals("a", 9), totals("-", 0)], global(4, 9));
    history.add(1_005, vec![totals("a", 17), totals("-", 2)], global(0, 17));
    assert_eq!(hits(&history, Some("a"), Span::Quarter), [Some(5), Some(2), None, None, Some(10)]);
    assert_eq!(hits(&history, None, Span::Quarter), [Some(5), Some(2), None, None, Some(12)]);
    let value = shown(&history, None, Span::Quarter);
    assert_eq!(value["end"], 1_005);
    assert_eq!(value["process"]["waiting"], serde_json::json!([1, 4, null, null, 0]));
    assert_eq!(value["tiers"]["memory"]["hits"], serde_json::json!([5, 2, null, null, 10]));
    assert_eq!(value["sites"], serde_json::json!(["a"]));
    assert!(history.shown(Some("unknown"), Span::Quarter).is_none());
    let newest: Value =
        serde_json::from_str(&format!("{{{}}}", history.newest(Some("a")))).unwrap();
    assert_eq!((&newest["t"], &newest["values"]["counts"][0]), (&1_005.into(), &10.into()));
}

#[test]
fn a_day_of_minutes_is_kept_and_the_most_recent_minute_is_whole() {
    let mut history = History::new(59);
    let mut total = 0;
    for second in 60..=(MINUTES as u64 + 3) * 60 {
        total += 1;
        history.add(second, vec![totals("a", total)], global(second % 7, total));
    }
    let minutes = hits(&history, Some("a"), Span::Day);
    assert_eq!(minutes.len(), MINUTES);
    assert!(minutes.iter().all(|hits| *hits == Some(60)));
    let value = shown(&history, None, Span::Day);
    assert_eq!(value["end"], (MINUTES as u64 + 2) * 60);
    assert!(value["process"]["waiting"].as_array().unwrap().iter().all(|waiting| *waiting == 6));
    assert_eq!(hits(&history, None, Span::Quarter).len(), series::SECONDS);
}

#[test]
fn the_busiest_sites_have_their_own_history_and_the_others_share_one() {
    let mut history = History::new(120);
    let mut now = 121;
    let site = |number: usize| format!("site{number:02}");
    let busy = |second: u64| {
        let requests = |number: usize| if number == 40 { 100 } else { 1 };
        (0..41).map(|n| totals(&site(n), requests(n) * (second - 120))).collect::<Vec<_>>()
    };
    history.add(now, busy(now), global(0, 0));
    assert_eq!(hits(&history, Some(OTHERS), Span::Quarter), [Some(8 + 100)]);
    assert!(history.shown(Some(&site(40)), Span::Quarter).is_none());
    while now < 300 {
        now += 1;
        history.add(now, busy(now), global(0, 0));
    }
    assert_eq!(hits(&history, Some(&site(40)), Span::Quarter).last(), Some(&Some(100)));
    assert_eq!(hits(&history, Some(OTHERS), Span::Quarter).last(), Some(&Some(9)));
    assert_eq!(shown(&history, None, Span::Quarter)["sites"].as_array().unwrap().len(), 33);
}
