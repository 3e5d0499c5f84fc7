//! Rules about freshness and age.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 4.2.1",
        "In a shared cache `s-maxage` overrides `max-age`, which overrides `Expires`.",
        "The first of the three that is present applies.",
        "lifetime::s_maxage_before_max_age_before_expires",
    ),
    rule(
        "9111 4.2.1",
        "`Expires` is relative to `Date`.",
        "The lifetime is the difference of the two, even if the origin's clock is wrong.",
        "lifetime::s_maxage_before_max_age_before_expires",
    ),
    rule(
        "9111 4.2.1",
        "If a directive occurs twice, the first one applies or the response is stale.",
        "The shorter lifetime applies, in any order and on any lines.",
        "directives::the_stricter_of_two_holds_in_either_order_and_on_any_lines",
    )
    .because("The origin's intention is unknown; the shorter lifetime is safe in both cases."),
    rule(
        "9111 4.2.1",
        "A response with a malformed lifetime should count as stale.",
        "Malformed values of `max-age`, `s-maxage`, `stale-while-revalidate` and `stale-if-error` \
         are zero.",
        "directives::spans_are_digits_quoted_or_not_and_anything_else_is_zero",
    ),
    rule(
        "9111 1.2.2",
        "A number of seconds that is too large counts as 2^31.",
        "Larger numbers count as 2^31, also in `Age`.",
        "fields::seconds_are_digits_and_saturate_at_two_to_the_31",
    ),
    rule(
        "9111 5.2",
        "Directive names are case-insensitive, and arguments are tokens or quoted strings.",
        "Both forms are accepted for every directive.",
        "directives::spans_are_digits_quoted_or_not_and_anything_else_is_zero",
    ),
    rule(
        "9111 5.2",
        "Text in a quoted string is not a directive.",
        "It is skipped; an unclosed quote does not hide the text after it.",
        "directives::what_stands_in_a_quoted_string_is_no_directive",
    ),
    rule(
        "9111 5.2.3",
        "Unknown directives are ignored.",
        "Unknown directives have no effect.",
        "directives::spans_are_digits_quoted_or_not_and_anything_else_is_zero",
    ),
    rule(
        "9111 5.3",
        "An invalid date in `Expires`, especially `0`, is in the past.",
        "The response is stale, and no heuristic lifetime applies.",
        "lifetime::an_invalid_expires_is_in_the_past",
    ),
    rule(
        "9111 5.3",
        "`Expires` is ignored if `max-age` or `s-maxage` is present.",
        "It is ignored, in the past or not.",
        "lifetime::s_maxage_before_max_age_before_expires",
    ),
    rule(
        "9110 5.6.7",
        "A date has one of three formats.",
        "All three are accepted.",
        "date::the_three_forms_give_the_same_date",
    ),
    rule(
        "9111 4.2",
        "Dates should be parsed case-insensitively.",
        "Letter case is ignored, and a wrong weekday is accepted.",
        "date::letter_case_is_ignored_and_a_wrong_weekday_is_accepted",
    ),
    rule(
        "9111 4.2",
        "A time zone other than GMT makes a date invalid.",
        "It does; so does every other deviation, such as a missing comma or a two-digit year in \
         the wrong format.",
        "date::other_text_is_none",
    )
    .because("A repaired date would yield an unreliable lifetime."),
    rule(
        "9110 5.6.7",
        "A two-digit year more than 50 years in the future is in the past century.",
        "The 50 years are counted from the time of receipt.",
        "date::two_digit_years_are_at_most_fifty_years_in_the_future",
    ),
    rule(
        "9110 6.6.1",
        "Without a valid `Date`, the time of receipt is used.",
        "It is used for the lifetime, for the age and in the stored `Date`.",
        "lifetime::without_a_valid_date_the_time_of_receipt_counts",
    ),
    rule(
        "9111 4.2.2",
        "A heuristic lifetime applies only if no explicit one is present.",
        "Any `Expires`, even a malformed one, is explicit.",
        "lifetime::an_invalid_expires_is_in_the_past",
    ),
    rule(
        "9111 4.2.2, 9110 15.1",
        "A heuristic lifetime requires a heuristically cacheable status or `public`.",
        "The statuses are 200, 203, 204, 300, 301, 308, 404, 405, 410, 414 and 501.",
        "lifetime::heuristic_lifetime_is_a_tenth_of_the_age_and_at_most_a_day",
    ),
    rule(
        "9111 4.2.2",
        "A fraction of the time since the last modification is a suitable heuristic.",
        "The lifetime is a tenth of the time from `Last-Modified` to `Date`, at most one day.",
        "lifetime::heuristic_lifetime_is_a_tenth_of_the_age_and_at_most_a_day",
    )
    .because("Without the maximum, a page unchanged for years would be fresh for months."),
    rule(
        "9111 4.2.2",
        "The cache chooses its heuristic.",
        "A site's `default_ttl`, and `negative_ttl` for 404, 405, 410, 414 and 501, replace the \
         tenth, never an explicit lifetime. A lifetime that forebay chose is varied by up to 5 % \
         if it is 20 seconds or more.",
        "lifetime::site_lifetimes_replace_only_the_heuristic",
    ),
    rule(
        "9111 4.2.3",
        "The initial age is the larger of the age by `Date`, and `Age` plus the duration of the \
         exchange.",
        "The larger of the two is used; a `Date` in the future yields age zero.",
        "lifetime::initial_age_is_the_larger_of_date_and_age",
    ),
    rule(
        "9111 5.1",
        "If `Age` has several members, the first applies.",
        "This includes several lines.",
        "lifetime::initial_age_is_the_larger_of_date_and_age",
    ),
    rule(
        "9111 5.1",
        "An `Age` that is not an integer is ignored.",
        "Negative and fractional numbers and trailing text are ignored.",
        "lifetime::initial_age_is_the_larger_of_date_and_age",
    ),
    rule(
        "9111 4.2",
        "A response is fresh while its lifetime exceeds its age.",
        "It is stale as soon as both are equal.",
        "core judge::verdicts_over_the_lifetime_of_an_entry",
    ),
    rule(
        "9111 5.2.2.4",
        "A response with `no-cache` is not used without validation.",
        "It is stored with its validator and is never fresh.",
        "lifetime::stale_windows_are_ignored_if_stale_responses_are_forbidden",
    ),
    rule(
        "9111 5.2.2.4",
        "With `no-cache=\"a\"`, only the field `a` requires validation.",
        "The rest of the response is used without validation.",
        "storable::qualified_directives_withhold_only_the_named_fields",
    ),
    rule(
        "9111 4.2.4, 5.2.2.2",
        "A stale response with `must-revalidate` is not used in any case.",
        "If the origin is unreachable, the client gets an error.",
        "lifetime::stale_windows_are_ignored_if_stale_responses_are_forbidden",
    ),
    rule(
        "9111 5.2.2.8",
        "`proxy-revalidate` equals `must-revalidate` in a shared cache.",
        "No stale response is served, but `proxy-revalidate` does not permit storing responses to \
         requests with credentials.",
        "lifetime::stale_windows_are_ignored_if_stale_responses_are_forbidden",
    ),
    rule(
        "9111 5.2.2.10",
        "`s-maxage` implies `proxy-revalidate`.",
        "A response with `s-maxage` is not served stale, and its stale windows are ignored.",
        "lifetime::stale_windows_are_ignored_if_stale_responses_are_forbidden",
    ),
    rule(
        "9111 4.2.4",
        "A stale response is served only if the origin or the client permits it, or the cache is \
         disconnected.",
        "A cache is disconnected while the origin is unreachable; `stale_on_disconnect_max` \
         limits how stale the response may be.",
        "core judge::an_unreachable_origin_opens_the_window_of_the_caller",
    ),
    rule(
        "9111 4.2.4",
        "A directive against stale responses overrides every permission.",
        "It overrides `max-stale`, `stale-while-revalidate` and an unreachable origin.",
        "core judge::an_origin_that_forbids_stale_answers_overrides_every_demand",
    ),
    rule(
        "5861 3",
        "Within `stale-while-revalidate` a stale response may be served while it is revalidated.",
        "One request starts the revalidation; no request waits for it.",
        "scenario s01-stale-while-revalidate",
    ),
    rule(
        "5861 4",
        "Within `stale-if-error` a stale response may be served if the origin fails.",
        "A failure is status 500, 502, 503 or 504, or an origin that does not respond.",
        "scenario s02-stale-if-error",
    ),
    rule(
        "8246 2",
        "An `immutable` response does not change while it is fresh.",
        "While it is fresh, it answers requests with `max-age` at any age; `no-cache` causes a \
         validation, and a stale response is validated.",
        "scenario v08-client-asks-for-validation",
    )
    .because("A reload of a browser sends `max-age=0`; only `no-cache` demands a validation."),
];
