//! What a request may ask for.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 5.2.1.1",
        "`max-age`: nothing older.",
        "An older answer is validated.",
        "demand::each_request_directive_sets_its_demand",
    )
    .because("Request directives are advice; here it is taken."),
    rule(
        "9111 5.2.1.1",
        "With `max-age` and no `max-stale`, nothing stale.",
        "Also no answer that its origin lets be served stale.",
        "core judge::request_directives_restrict_or_extend_the_use_of_an_entry",
    ),
    rule(
        "9111 5.2.1.2",
        "`max-stale`: a stale answer will do, up to so many seconds.",
        "It is served where its origin does not forbid it; without a number, of any age.",
        "core judge::request_directives_restrict_or_extend_the_use_of_an_entry",
    ),
    rule(
        "9111 5.2.1.3",
        "`min-fresh`: nothing that is not fresh for so many seconds more.",
        "What is not is validated; a malformed one asks for nothing.",
        "core judge::request_directives_restrict_or_extend_the_use_of_an_entry",
    ),
    rule(
        "9111 5.2.1.4",
        "`no-cache`: nothing that was not validated.",
        "The origin is asked, with the stored validators.",
        "scenario v08-client-asks-for-validation",
    ),
    rule(
        "9111 5.2.1.5",
        "`no-store`: nothing of this exchange is stored.",
        "So it is.",
        "scenario u06-client-wants-nothing-kept",
    ),
    rule(
        "9111 5.2.1.6",
        "`no-transform`: the body is not changed.",
        "No body is ever changed.",
        "demand::each_request_directive_sets_its_demand",
    ),
    rule(
        "9111 5.2.1.7",
        "`only-if-cached`: what is not stored is a 504.",
        "So it is; no origin hears of it.",
        "scenario f04-only-if-cached",
    ),
    rule(
        "9111 5.2.1",
        "Directives that are malformed or unknown.",
        "A malformed span is the strictest; what is unknown is passed over.",
        "directives::stale_windows_and_request_spans",
    ),
    rule(
        "9111 5.4",
        "`Pragma: no-cache` counts where there is no `Cache-Control`.",
        "In requests; in a response it says nothing.",
        "directives::pragma_counts_in_a_request_that_has_no_cache_control",
    ),
    rule(
        "9111 5.2.1",
        "A request that asks for nothing.",
        "It is answered with what is fresh, as the site has it.",
        "demand::a_request_without_directives_accepts_every_fresh_answer",
    ),
];
