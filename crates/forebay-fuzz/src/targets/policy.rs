//! Target: targeted cache control fields, and storage of a response by them.

use forebay_core::{Stale, WallTime};
use forebay_semantics::policy::{Policy, RuledBy, TARGETED};
use forebay_semantics::storable::{Storable, check_storable, storable};
use forebay_semantics::{Directives, Scope, lifetime, selects};
use forebay_semantics::{RequestRef, ResponseRef, Rules};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::directives::SPAN_MAX;
use crate::block::Block;
use crate::run::{Outcome, Target};

/// Fuzz target for targeted cache control fields.
pub const TARGET: Target = Target { check, outcomes_min: 12 };

fn check(input: &[u8]) -> Outcome {
    let (request, answer) = Block::pair(input);
    let policy = Policy::of(&answer.headers);
    assert_spans(&policy.said);
    match &policy.ruled_by {
        RuledBy::CacheControl => {
            assert_eq!(policy.said, Directives::of_response(&answer.headers));
        }
        RuledBy::Targeted(name) => assert_alone(&answer.headers, name, &policy),
    }
    let asked = RequestRef { method: &Method::GET, headers: &request.headers };
    let answered = ResponseRef { status: answer.status(), headers: &answer.headers };
    let received = WallTime::from_secs(784_111_777);
    let kept = check_storable(asked, answered, &Rules::default(), received);
    if let Ok(kept) = &kept {
        assert_kept(kept, asked, answered);
    }
    if storable(asked, answered, &Rules::default()).is_ok() {
        let lifetime = lifetime(answered, &Rules::default(), received);
        let is_whole =
            |kept: &Storable| kept.lifetime == lifetime && kept.withheld == Default::default();
        let qualified = matches!(policy.said.no_cache, Some(Scope::Fields(_)));
        let agrees = qualified || kept.as_ref().is_ok_and(is_whole);
        assert!(agrees, "what is stored whole is kept so: {kept:?}");
    }
    let reason = kept.as_ref().err().map(|reason| reason.code());
    let withheld = kept.map(|kept| kept.withheld == Default::default()).ok();
    Outcome::of((policy.ruled_by, reason, withheld, policy.said.max_age.is_some()))
}

fn assert_spans(said: &Directives) {
    let spans = [said.max_age, said.s_maxage, said.stale_while_revalidate, said.stale_if_error];
    assert!(spans.into_iter().flatten().all(|span| span <= SPAN_MAX), "{said:?}");
}

/// Asserts that a valid targeted field overrides other fields, and that a malformed one does not.
fn assert_alone(headers: &HeaderMap, name: &HeaderName, policy: &Policy) {
    assert!(TARGETED.contains(name) && headers.contains_key(name));
    let mut others = headers.clone();
    for line in ["no-store, private, max-age=1", "public, max-age=99"] {
        others.insert("cache-control", HeaderValue::from_static(line));
        others.insert("expires", HeaderValue::from_static("0"));
        assert_eq!(&Policy::of(&others), policy, "other fields have no say");
    }
    let mut broken = headers.clone();
    broken.append(name, HeaderValue::from_static("&"));
    assert_ne!(Policy::of(&broken).ruled_by, policy.ruled_by, "it is malformed");
    let mut more = headers.clone();
    more.append(name, HeaderValue::from_static("no-store, max-age=7"));
    let more = Policy::of(&more);
    // A string that is open at the end of a line continues in the next line.
    assert!(more.ruled_by != policy.ruled_by || more.said.no_store, "{more:?}");
}

fn assert_kept(kept: &Storable, asked: RequestRef<'_>, answered: ResponseRef<'_>) {
    let said = Policy::of(answered.headers).said;
    assert!(said.private != Some(Scope::Whole), "private");
    assert!(!said.no_store || said.must_understand, "no-store");
    let shared = said.public || said.must_revalidate || said.s_maxage.is_some();
    assert!(shared || !asked.headers.contains_key("authorization"), "Authorization");
    if said.no_cache == Some(Scope::Whole) {
        assert!(kept.lifetime.fresh.is_zero() && kept.lifetime.stale == Stale::Forbidden);
    }
    let mut stored = answered.headers.clone();
    let own = kept.withheld.remove_from(&mut stored);
    assert_eq!(stored.len() + own.len(), answered.headers.len(), "each is here or there");
    assert!(said.public || !stored.contains_key("set-cookie"), "a cookie for everybody");
    for scope in [&said.private, &said.no_cache] {
        let Some(Scope::Fields(names)) = scope else { continue };
        assert!(!names.iter().any(|name| stored.contains_key(name)), "{names:?}");
    }
    assert_eq!(selects(&stored), selects(answered.headers), "it selects as it did");
}
