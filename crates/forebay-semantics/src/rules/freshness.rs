//! How long a response is fresh.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 4.2.1",
        "In a shared cache `s-maxage` comes before `max-age`, and that before `Expires`.",
        "The first of them that is there counts.",
        "lifetime::s_maxage_before_max_age_before_expires",
    ),
    rule(
        "9111 4.2.1",
        "`Expires` counts from `Date`.",
        "The difference of the two, however wrong the origin's clock is.",
        "lifetime::s_maxage_before_max_age_before_expires",
    ),
    rule(
        "9111 4.2.1",
        "Of directives given twice the first counts, or the response is stale.",
        "The shorter span counts, in whichever order and on whichever lines.",
        "directives::the_stricter_of_two_holds_in_either_order_and_on_any_lines",
    )
    .because("Nobody knows which was meant; the shorter is never fresher than either."),
    rule(
        "9111 4.2.1",
        "A malformed lifetime should count as stale.",
        "`max-age`, `s-maxage` and the windows for stale answers are zero when malformed.",
        "directives::spans_are_digits_quoted_or_not_and_anything_else_is_zero",
    ),
    rule(
        "9111 1.2.2",
        "A number of seconds that is too large means 2^31.",
        "So it is read, also in `Age`.",
        "fields::seconds_are_digits_and_saturate_at_two_to_the_31",
    ),
    rule(
        "9111 5.2",
        "Directives are read in any case, with arguments as token or as quoted string.",
        "Both forms count for all of them.",
        "directives::spans_are_digits_quoted_or_not_and_anything_else_is_zero",
    ),
    rule(
        "9111 5.2",
        "What stands in a quoted string is no directive.",
        "It is passed over; a quote that never closes hides nothing.",
        "directives::what_stands_in_a_quoted_string_is_no_directive",
    ),
    rule(
        "9111 5.2.3",
        "Unknown directives are passed over.",
        "So they are.",
        "directives::spans_are_digits_quoted_or_not_and_anything_else_is_zero",
    ),
    rule(
        "9111 5.3",
        "An `Expires` that is no date, `0` above all, has passed.",
        "It is no lifetime, and no guess takes its place.",
        "lifetime::an_expires_that_is_no_date_has_passed",
    ),
    rule(
        "9111 5.3",
        "`Expires` says nothing beside `max-age` or `s-maxage`.",
        "It is passed over there, whether it has passed or not.",
        "lifetime::s_maxage_before_max_age_before_expires",
    ),
    rule(
        "9110 5.6.7",
        "A date may have any of three forms.",
        "All three are read.",
        "date::the_three_forms_give_the_same_date",
    ),
    rule(
        "9111 4.2",
        "Dates should be read in any case.",
        "So they are, and the weekday need not be the right one.",
        "date::letter_case_is_ignored_and_a_wrong_weekday_is_accepted",
    ),
    rule(
        "9111 4.2",
        "A zone other than GMT makes a date invalid.",
        "So do a missing comma, two digits of a year where four belong, and every other deviation.",
        "date::other_text_is_none",
    )
    .because("A guess about a date would be a guess about freshness."),
    rule(
        "9110 5.6.7",
        "A two-digit year more than 50 years ahead is one of the past.",
        "Counted from the time of receipt.",
        "date::two_digit_years_are_at_most_fifty_years_in_the_future",
    ),
    rule(
        "9110 6.6.1",
        "Without a valid `Date` the time of receipt takes its place.",
        "For the lifetime, for the age, and in what is stored.",
        "lifetime::without_a_valid_date_the_time_of_receipt_counts",
    ),
    rule(
        "9111 4.2.2",
        "A lifetime is guessed only where none is stated.",
        "Any `Expires`, a malformed one too, is a statement.",
        "lifetime::an_expires_that_is_no_date_has_passed",
    ),
    rule(
        "9111 4.2.2, 9110 15.1",
        "It is guessed only for the statuses that allow it, and with `public`.",
        "200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501, or any with `public`.",
        "lifetime::a_tenth_of_the_time_since_the_last_change_and_a_day_at_most",
    ),
    rule(
        "9111 4.2.2",
        "A part of the time since the last change is a good guess.",
        "A tenth of the time from `Last-Modified` to `Date`, a day at most.",
        "lifetime::a_tenth_of_the_time_since_the_last_change_and_a_day_at_most",
    )
    .because("What has not changed for years would otherwise be kept for months."),
    rule(
        "9111 4.2.2",
        "The cache chooses how it guesses.",
        "A site's `default_ttl`, and `negative_ttl` for 404, 405, 410, 414 and 501, take the \
         place of \
         the tenth, never of what is stated; each is spread by 5 %.",
        "lifetime::the_sites_own_lifetime_takes_the_place_of_a_heuristic_only",
    ),
    rule(
        "9111 4.2.3",
        "The age on arrival is what `Date` shows, or `Age` and the time of the exchange, whichever \
         is more.",
        "So it is computed; a `Date` ahead of our clock shows no age.",
        "lifetime::age_is_the_larger_of_what_date_shows_and_age_says",
    ),
    rule(
        "9111 5.1",
        "Of several members in `Age` the first counts.",
        "Also of several lines.",
        "lifetime::age_is_the_larger_of_what_date_shows_and_age_says",
    ),
    rule(
        "9111 5.1",
        "An `Age` that is no number is passed over.",
        "Negative, fractional and anything with more behind it.",
        "lifetime::age_is_the_larger_of_what_date_shows_and_age_says",
    ),
    rule(
        "9111 4.2",
        "A response is fresh while its lifetime is longer than its age.",
        "It is stale from the moment that both are the same.",
        "core judge::verdicts_over_the_lifetime_of_an_entry",
    ),
    rule(
        "9111 5.2.2.4",
        "A response with `no-cache` is not used without validation.",
        "It is stored for its validator and is never fresh.",
        "lifetime::stale_windows_are_void_where_stale_answers_are_forbidden",
    ),
    rule(
        "9111 5.2.2.4",
        "With `no-cache=\"a\"`, only the field `a` needs validation.",
        "The rest is used without it.",
        "storable::of_a_response_that_names_fields_the_rest_is_kept",
    ),
    rule(
        "9111 4.2.4, 5.2.2.2",
        "A stale response with `must-revalidate` is not used, come what may.",
        "Without an origin there is no answer but an error.",
        "lifetime::stale_windows_are_void_where_stale_answers_are_forbidden",
    ),
    rule(
        "9111 5.2.2.8",
        "`proxy-revalidate` means the same to a shared cache.",
        "So it does; it is no leave to share what credentials brought.",
        "lifetime::stale_windows_are_void_where_stale_answers_are_forbidden",
    ),
    rule(
        "9111 5.2.2.10",
        "`s-maxage` includes `proxy-revalidate`.",
        "No stale answers with it, and no windows for them.",
        "lifetime::stale_windows_are_void_where_stale_answers_are_forbidden",
    ),
    rule(
        "9111 4.2.4",
        "Nothing stale is served unless the origin or the client allows it, or the cache is \
         disconnected.",
        "Disconnected is who cannot reach the origin; how long that counts is an option.",
        "core judge::an_unreachable_origin_opens_the_window_of_the_caller",
    ),
    rule(
        "9111 4.2.4",
        "A directive that forbids stale answers outweighs every leave.",
        "Also `max-stale`, `stale-while-revalidate` and a lost origin.",
        "core judge::an_origin_that_forbids_stale_answers_overrides_every_demand",
    ),
    rule(
        "5861 3",
        "Within `stale-while-revalidate` a stale answer may be served while it is refreshed.",
        "One request refreshes; nobody waits.",
        "scenario s01-stale-while-revalidate",
    ),
    rule(
        "5861 4",
        "Within `stale-if-error` a stale answer may be served when the origin fails.",
        "For 500, 502, 503, 504 and for an origin that does not answer.",
        "scenario s02-stale-if-error",
    ),
    rule(
        "8246 2",
        "What is `immutable` does not change while it is fresh.",
        "Nothing follows: a client that asks for validation gets it, and what is stale is \
         validated.",
        "scenario v08-client-asks-for-validation",
    )
    .because("The directive tells clients not to ask; one that does has a reason."),
];
