//! Rules about validation.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 4.3.1",
        "Validation sends the stored `ETag` in `If-None-Match` and `Last-Modified` in \
         `If-Modified-Since`.",
        "Both are sent byte for byte.",
        "validate::validators_are_kept_byte_for_byte",
    ),
    rule(
        "9111 4.3.1",
        "One request may validate several stored responses.",
        "It validates the variant that its own fields select, and no other.",
        "scenario y07-one-tag-for-all-users",
    )
    .because(
        "Many servers give all variants one tag: a 304 would give one client the response of \
         another.",
    ),
    rule(
        "9111 4.3.2",
        "A client's conditions refer to that client's copy.",
        "They are not sent to the origin in a request whose response may be shared.",
        "validate::shared_loads_have_the_caches_conditions_only",
    ),
    rule(
        "9110 13.2.1",
        "Conditions are evaluated by the server that would answer the request without them.",
        "For a page known to be private that is the origin: it gets the client's `If-None-Match` \
         and `If-Modified-Since`. Its response, including a 304, is for that client with all \
         fields. Such a 304 changes no stored response.",
        "scenario u10-private-pages-and-conditions",
    ),
    rule(
        "9111 4.3.2, 9110 13.1.2",
        "`If-None-Match` is compared weakly, over the whole list and all lines; `*` matches every \
         existing response.",
        "A match yields 304.",
        "validate::if_none_match_compares_weakly_over_the_whole_list",
    ),
    rule(
        "9110 8.8.3",
        "An entity tag is quoted, may contain commas, and has `W/` in upper case.",
        "Lists are split accordingly; an unquoted tag is compared byte for byte.",
        "validate::if_none_match_compares_weakly_over_the_whole_list",
    ),
    rule(
        "9110 13.1.3",
        "`If-Modified-Since` is ignored beside `If-None-Match`.",
        "It is ignored whatever the value of `If-None-Match`.",
        "validate::if_modified_since_applies_only_without_if_none_match",
    ),
    rule(
        "9110 13.1.3",
        "`If-Modified-Since` is ignored if it is invalid or has several lines, and for methods \
         other than GET and HEAD.",
        "It is; requests with other methods bypass the cache.",
        "validate::if_modified_since_applies_only_without_if_none_match",
    ),
    rule(
        "9111 4.3.2",
        "Without `Last-Modified`, `Date` is compared.",
        "`If-Modified-Since` is compared with `Last-Modified`, or else with `Date`.",
        "validate::if_modified_since_applies_only_without_if_none_match",
    ),
    rule(
        "9110 13.2.1, 15.4.5",
        "Conditions apply only if the response would be a success; a 304 stands for a 200.",
        "Tags apply to every 2xx, dates to 200.",
        "validate::conditions_apply_only_to_a_success",
    ),
    rule(
        "9111 4.3.2",
        "A cache does not evaluate `If-Match` and `If-Unmodified-Since`.",
        "Such requests are forwarded, and the response is for their client.",
        "validate::if_match_and_if_unmodified_since_are_forwarded",
    ),
    rule(
        "9110 15.4.5",
        "A 304 repeats the fields that control the client's cache.",
        "These are `Cache-Control`, `Content-Location`, `Date`, `ETag`, `Expires`, `Vary`, and \
         `Last-Modified` if there is no `ETag`.",
        "validate::a_304_repeats_the_fields_for_the_clients_cache",
    ),
    rule(
        "9110 15.4.5",
        "A 304 may have fields that do not describe the body.",
        "A 304 from a stored response has its `Access-Control-*`, `Cross-Origin-Resource-Policy` \
         and `Timing-Allow-Origin`, but not `Set-Cookie`, `Content-Security-Policy` or others.",
        "validate::a_304_repeats_the_fields_that_browsers_check",
    )
    .because(
        "A browser checks these fields on the 304 before it uses its own cache: without them a \
         script of another origin gets a network error. A cookie is for one client, and a policy \
         with a nonce belongs to the body that the client has.",
    ),
    rule(
        "9110 15.4.5",
        "A 304 may be made from a response for one client.",
        "It has all fields of that response, including `Set-Cookie`, except those of the body: \
         `Content-*` other than `Content-Location`, and `Last-Modified` beside an `ETag`.",
        "validate::a_304_for_one_client_omits_only_the_fields_of_the_body",
    ),
    rule(
        "9111 4.3.3",
        "A 304 permits the use of the stored response.",
        "It is served with the freshness of the 304.",
        "scenario v05-304-updates-the-stored-fields",
    ),
    rule(
        "9111 4.3.3",
        "Any other response except a server error replaces the stored one.",
        "A response that must not be stored is for its client, and the stored one stays stale.",
        "freshen::a_server_error_does_not_replace_the_stored_response",
    ),
    rule(
        "9111 4.3.3",
        "A server error may be forwarded, or the stored response served as if the origin were \
         unreachable.",
        "It is forwarded and changes no stored response; within `stale-if-error` the stored \
         response is served.",
        "scenario s06-error-with-an-etag-destroys-nothing",
    )
    .because("Without the origin's permission, its error is more accurate than an old response."),
    rule(
        "9111 4.3.4",
        "A 304 with a strong validator updates only a response with the same one.",
        "A 304 with another validator is ignored, and the whole response is requested.",
        "validate::a_304_with_another_validator_does_not_apply",
    ),
    rule(
        "9111 4.3.4",
        "Among several stored responses, a strong validator updates all that have it, a weak one \
         the most recent match, and none the only response without one.",
        "It updates the variant that was validated, and no other. If the validator differs, the \
         whole response is requested.",
        "scenario y09-one-tag-for-all-sites",
    )
    .because("In practice variants share tags, and a 304 has fields for one client."),
    rule(
        "9111 3.2",
        "Each field of a 304 replaces all lines with that name.",
        "Other fields are kept.",
        "validate::a_304_replaces_only_the_fields_that_it_has",
    ),
    rule(
        "9111 3.2",
        "`Content-Length` is not updated; fields that describe the stored bytes may be kept.",
        "`Content-Encoding`, `Content-Type` and `Content-Range` are kept.",
        "validate::a_304_replaces_only_the_fields_that_it_has",
    )
    .because("The bytes are unchanged, and another interpretation of them could be harmful."),
    rule(
        "9111 7.3",
        "A cookie in a 304 is for one client.",
        "It is not stored, and the client whose request brought the 304 gets it.",
        "validate::a_304_replaces_only_the_fields_that_it_has",
    ),
    rule(
        "9111 4.3.5",
        "A 200 to a HEAD with the same validators and length updates the stored response.",
        "The fields of the stored response are updated. A HEAD is sent if the stored response has no validator, otherwise a conditional \
         GET.",
        "freshen::a_head_response_updates_or_invalidates_the_stored_response",
    )
    .because("An unconditional GET would transfer a body that no client requested."),
    rule(
        "9111 4.3.5",
        "A 200 to a HEAD that differs makes the stored response stale.",
        "The stored response and all its variants become stale.",
        "freshen::a_head_response_updates_or_invalidates_the_stored_response",
    ),
];
