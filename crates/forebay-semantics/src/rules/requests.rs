//! Rules about request directives.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 5.2.1.1",
        "`max-age`: the response is not older than this.",
        "An older response is validated, unless it is fresh and `immutable`.",
        "demand::each_request_directive_sets_its_demand",
    )
    .because("Request directives are advisory; forebay follows them."),
    rule(
        "9111 5.2.1.1",
        "`max-age` without `max-stale`: the response is not stale.",
        "This excludes stale responses that the origin permits.",
        "core judge::request_directives_restrict_or_extend_the_use_of_an_entry",
    ),
    rule(
        "9111 5.2.1.2",
        "`max-stale`: a response that is stale by up to this many seconds is acceptable.",
        "Such a response is served unless the origin forbids stale responses; without a number, at any \
         staleness.",
        "core judge::request_directives_restrict_or_extend_the_use_of_an_entry",
    ),
    rule(
        "9111 5.2.1.3",
        "`min-fresh`: the response stays fresh for this many seconds.",
        "Other responses are validated.",
        "core judge::request_directives_restrict_or_extend_the_use_of_an_entry",
    ),
    rule(
        "9111 5.2.1.4",
        "`no-cache`: the response has been validated.",
        "The origin is asked with the stored validators.",
        "scenario v08-client-asks-for-validation",
    ),
    rule(
        "9111 5.2.1.5",
        "`no-store`: nothing of this exchange is stored.",
        "Nothing is stored.",
        "scenario u06-client-wants-nothing-kept",
    ),
    rule(
        "9111 5.2.1.6",
        "`no-transform`: the body is not changed.",
        "forebay never changes a body.",
        "demand::each_request_directive_sets_its_demand",
    ),
    rule(
        "9111 5.2.1.7",
        "`only-if-cached`: the response is 504 if nothing is stored.",
        "The response is 504 if memory has no response that may be served; neither lower tiers nor \
         the origin are asked.",
        "scenario f04-only-if-cached",
    ),
    rule(
        "9111 5.2.1",
        "Malformed and unknown directives have no defined meaning.",
        "A malformed `max-age` or `max-stale` counts as 0; a malformed `min-fresh` has no effect. \
         Unknown directives are ignored.",
        "directives::stale_windows_and_request_spans",
    ),
    rule(
        "9111 5.4",
        "`Pragma: no-cache` applies if there is no `Cache-Control`.",
        "It applies in requests and is ignored in responses.",
        "directives::pragma_counts_in_a_request_that_has_no_cache_control",
    ),
    rule(
        "9111 5.2.1",
        "A request without directives has no requirements.",
        "It is answered with a fresh response, as the site defines.",
        "demand::a_request_without_directives_accepts_every_fresh_response",
    ),
];
