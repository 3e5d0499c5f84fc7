//! Rules about invalidation and about the fields of forwarded messages.

use super::{Rule, rule};

pub(super) const INVALIDATION: &[Rule] = &[
    rule(
        "9111 4",
        "A request with an unsafe method is forwarded to the origin.",
        "It is forwarded with its body, and no stored response answers it; for the exception of \
         POST see \"Storage\".",
        "scenario m02-post-is-streamed-and-invalidates",
    ),
    rule(
        "9111 4.4",
        "A successful unsafe request invalidates the stored responses of its target.",
        "Status 2xx and 3xx invalidate, before the client gets the response; stored parts are \
         included. Errors do not invalidate.",
        "unsafe_methods::unknown_methods_are_unsafe",
    ),
    rule(
        "9111 4.4",
        "A method of unknown safety is unsafe.",
        "All methods are unsafe except GET, HEAD, OPTIONS, TRACE and QUERY.",
        "unsafe_methods::unknown_methods_are_unsafe",
    ),
    rule(
        "9111 4.4",
        "The targets in `Location` and `Content-Location` may be invalidated too.",
        "Both targets are invalidated, relative references included.",
        "unsafe_methods::references_are_resolved_against_the_target",
    )
    .because("A form that creates a page should invalidate the stored 404 of that page."),
    rule(
        "9111 4.4",
        "Targets of other origins are not invalidated.",
        "Scheme, host and port must be equal; the default port equals no port.",
        "unsafe_methods::references_to_other_origins_and_to_the_target_itself_add_nothing",
    ),
    rule(
        "9875 2",
        "The responses of one origin may name groups that they belong to.",
        "Groups apply if a site has `cache_groups = true`. The field is a list of Strings and is \
         ignored if malformed; by default at most 64 groups of at most 128 bytes.",
        "groups::groups_are_strings_compared_byte_by_byte",
    )
    .because("The operator decides which origins may invalidate groups."),
    rule(
        "9875 2.1",
        "A group belongs to one origin: scheme, host and port.",
        "It belongs to one site too. A tag in a response can never equal a group.",
        "scenario i03-groups-of-one-origin",
    ),
    rule(
        "9875 2.2.1",
        "A cache that invalidates a response may invalidate all responses of its groups.",
        "Only named groups are invalidated.",
        "scenario i03-groups-of-one-origin",
    )
    .because("Otherwise a change of one page would invalidate all its groups."),
    rule(
        "9875 3",
        "The response to an unsafe method may invalidate groups.",
        "The groups in `Cache-Group-Invalidation` are invalidated before the client gets the \
         response. The field is ignored in errors and in responses to safe methods.",
        "groups::only_an_unsafe_request_invalidates_groups",
    ),
    rule(
        "9111 4.4",
        "A response that was requested before an invalidation must not restore the old entry.",
        "A load that began before an invalidation is not stored after it.",
        "scenario i02-change-during-a-fetch",
    ),
];

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 1.2.2, 5.1",
        "`Age` is an integer number of seconds, at most 2^31.",
        "Fractions are rounded down.",
        "lifetime::served_age_is_whole_seconds_of_at_most_two_to_the_31",
    ),
    rule(
        "9111 4, 5.1",
        "A response from the store has an `Age`.",
        "`Age` is in whole seconds. A response that was just loaded keeps the origin's `Age` or has \
         none.",
        "scenario f01-age-of-other-caches-counts",
    ),
    rule(
        "9110 6.6.1",
        "A response without `Date` gets one on receipt; an existing `Date` is not changed.",
        "The stored `Date` is the origin's; a 304 replaces it.",
        "scenario h03-via-date-and-age",
    ),
    rule(
        "9110 2.5, 6.2",
        "A server responds in its own version, whatever the version of the request.",
        "The response to an HTTP/1.0 request says HTTP/1.1. It is not chunked, and has \
         `Connection: close` unless the client requests a persistent connection and the length of \
         the body is known.",
        "scenario h07-http-1-0-clients",
    ),
    rule(
        "9112 3.2",
        "HTTP/1.0 does not require `Host`.",
        "Such a request belongs to the site for every host, with the authority of its origin. \
         Without such a site the response is 400, as for every HTTP/1.1 request without `Host`.",
        "scenario h23-http-1-0-without-a-host",
    ),
    rule(
        "9110 7.6.1",
        "Fields named in `Connection` are hop-by-hop.",
        "They are neither forwarded nor stored.",
        "hop::hop_by_hop_fields_and_connection_options_are_removed",
    ),
    rule(
        "9110 7.6.1",
        "`Connection` must not name end-to-end fields.",
        "End-to-end fields that it names are kept.",
        "hop::connection_cannot_remove_fields_for_every_recipient",
    )
    .because("Otherwise a client could remove `Host` or `Cache-Control` from a shared exchange."),
    rule(
        "9110 7.6.3",
        "A proxy adds itself to `Via`.",
        "It is added to requests and responses; a request that has passed this cache eight times \
         is rejected.",
        "hop::a_request_with_too_many_via_entries_is_a_loop",
    ),
    rule(
        "8586 2",
        "A cache marks the requests that it forwards, and keeps the marks of others.",
        "`CDN-Loop` gets a mark of the process and the site; a request with the own mark is \
         rejected.",
        "cdn_loop::a_request_that_comes_back_to_its_site_is_recognised",
    ),
    rule(
        "9110 15.2",
        "Interim responses are not final.",
        "They are never stored, and the final response follows them.",
        "scenario h08-interim-responses-of-the-origin",
    ),
    rule(
        "9110 15.2",
        "A proxy forwards interim responses.",
        "They are forwarded to the client whose request went to the origin, except over HTTP/1.0 \
         and HTTP/2.",
        "scenario h21-interim-responses-reach-the-client",
    ),
    rule(
        "9110 6.5.1",
        "Trailers are not merged into the header, and some fields must not be trailers.",
        "For responses that bypass the cache, permitted trailers are forwarded to a client with \
         `TE: trailers`. Stored and shared responses have no trailers.",
        "trailers::forbidden_trailers_are_removed",
    )
    .because(
        "A cache may omit trailers, and the clients that share a response differ in their support.",
    ),
    rule(
        "9110 6.6.2, 10.1.4",
        "`Trailer` and `TE` are hop-by-hop.",
        "Both are generated: `TE` if the client sent it, `Trailer` with the permitted names.",
        "scenario h22-trailers-of-what-is-not-shared",
    ),
    rule(
        "9211 2",
        "`Cache-Status` reports the handling by a cache.",
        "Each response has one member, after those of caches nearer to the origin.",
        "status::the_member_follows_those_of_caches_nearer_to_the_origin",
    ),
    rule(
        "9211 2.2",
        "A forwarded request has a reason.",
        "The reason is a registered value, with a detail if forebay distinguishes more cases.",
        "status::every_reason_has_a_registered_value_and_a_detail_where_it_is_finer",
    ),
    rule(
        "9211 2.4",
        "`ttl` is the remaining freshness, negative for a stale response.",
        "`ttl` is the remaining freshness in seconds; it is negative if the response is stale.",
        "status::hits_have_the_remaining_freshness_as_ttl",
    ),
];
