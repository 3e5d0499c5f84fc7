//! Messages on their way, and what they make invalid.

use super::{Rule, rule};

pub(super) const INVALIDATION: &[Rule] = &[
    rule(
        "9111 4",
        "A request with an unsafe method goes through to the origin.",
        "So it does, body and all, and nothing that is stored answers it; but see POST under what \
         is stored.",
        "scenario m02-post-is-streamed-and-invalidates",
    ),
    rule(
        "9111 4.4",
        "A success of an unsafe method makes what is stored for its target invalid.",
        "With 2xx and 3xx, before the client hears of it; stored parts go too; errors change \
         nothing.",
        "unsafe_methods::unknown_methods_are_unsafe",
    ),
    rule(
        "9111 4.4",
        "A method whose safety is unknown counts as unsafe.",
        "All but GET, HEAD, OPTIONS, TRACE and QUERY.",
        "unsafe_methods::unknown_methods_are_unsafe",
    ),
    rule(
        "9111 4.4",
        "What `Location` and `Content-Location` name may be made invalid too.",
        "It is, relative references included.",
        "unsafe_methods::references_are_resolved_against_the_target",
    )
    .because("A form that creates a page should not leave its old 404 behind."),
    rule(
        "9111 4.4",
        "Not if it is of another origin.",
        "Scheme, host and port must be the same; a default port is no difference.",
        "unsafe_methods::other_origins_and_the_target_itself_are_left_alone",
    ),
    rule(
        "9875 2",
        "Responses of one origin may name groups that they belong to.",
        "Where a site says `cache_groups = true`. A list of Strings, passed over when it is \
         anything else; 64 of up to 128 bytes if nothing else is said.",
        "groups::groups_are_strings_compared_byte_by_byte",
    )
    .because("What may be emptied by whom is the site's to say."),
    rule(
        "9875 2.1",
        "A group is one of an origin: scheme, host and port.",
        "And of a site. No tag that an answer names can stand for one.",
        "scenario i03-groups-of-one-origin",
    ),
    rule(
        "9875 2.2.1",
        "A cache that invalidates a response may invalidate those that share its groups.",
        "It does not; a group goes when it is named.",
        "scenario i03-groups-of-one-origin",
    )
    .because("Whoever may change one page would empty all groups that it belongs to."),
    rule(
        "9875 3",
        "The answer to an unsafe method may make groups invalid.",
        "What is stored of the groups that `Cache-Group-Invalidation` names is gone before the \
         client hears of it; in an error, and in the answer to a safe method, it says nothing.",
        "groups::only_an_unsafe_request_invalidates_groups",
    ),
    rule(
        "9111 4.4",
        "A request that is under way when this happens may not bring the old back.",
        "What departed before an invalidation is not stored after it.",
        "scenario i02-change-during-a-fetch",
    ),
];

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 1.2.2, 5.1",
        "An `Age` is a number of seconds, 2^31 at most.",
        "Begun seconds do not count.",
        "lifetime::the_age_that_is_served_is_in_whole_seconds_and_bounded",
    ),
    rule(
        "9111 4, 5.1",
        "What is served from the store has an `Age`.",
        "In whole seconds; an answer that was just loaded has none but its own.",
        "scenario f01-age-of-other-caches-counts",
    ),
    rule(
        "9110 6.6.1",
        "A response without `Date` gets one when it is received; a `Date` is not changed.",
        "What is stored keeps the origin's, and a 304 brings a new one.",
        "scenario h03-via-date-and-age",
    ),
    rule(
        "9110 2.5, 6.2",
        "A server answers in its own version, whatever the version of the request.",
        "The answer to a request of HTTP/1.0 says HTTP/1.1. It has no chunks, and \
         `Connection: close` unless the client asks to keep the connection and the length of the \
         body is known.",
        "scenario h07-http-1-0-clients",
    ),
    rule(
        "9112 3.2",
        "HTTP/1.0 needs no `Host`.",
        "Such a request belongs to the site for every host, under the host that its origin is \
         sent. Where there is no such site it gets 400, as every request of HTTP/1.1 without \
         `Host` does.",
        "scenario h23-http-1-0-without-a-host",
    ),
    rule(
        "9110 7.6.1",
        "Fields named in `Connection` are for one connection.",
        "They are neither passed on nor stored.",
        "hop::hop_by_hop_fields_and_connection_options_are_removed",
    ),
    rule(
        "9110 7.6.1",
        "`Connection` does not name fields that are for everybody.",
        "Where it does all the same, they stay.",
        "hop::connection_cannot_remove_fields_for_every_recipient",
    )
    .because("Else a client could take `Host` or `Cache-Control` out of what others read."),
    rule(
        "9110 7.6.3",
        "A proxy adds itself to `Via`.",
        "To requests and answers; a request that was here eight times is refused.",
        "hop::a_request_with_too_many_via_entries_is_a_loop",
    ),
    rule(
        "9110 15.2",
        "Interim responses are no answer.",
        "They are never stored, and the final one comes behind them.",
        "scenario h08-interim-responses-of-the-origin",
    ),
    rule(
        "9110 15.2",
        "A proxy passes interim responses on.",
        "It does, to the client whose request went to the origin; not to one that speaks HTTP/1.0.",
        "scenario h21-interim-responses-reach-the-client",
    ),
    rule(
        "9110 6.5.1",
        "Trailers do not become fields of the head, and some fields may not be trailers.",
        "Where an answer goes past the cache, those that may be trailers reach a client that \
         takes them (`TE: trailers`). What is stored or shared has none.",
        "trailers::what_says_how_to_read_the_message_cannot_come_behind_it",
    )
    .because("A cache may leave them out, and nobody knows who of many readers takes them."),
    rule(
        "9110 6.6.2, 10.1.4",
        "`Trailer` and `TE` speak of trailers on one connection.",
        "Both are made anew: `TE` for a client that sent it, `Trailer` with the names that are \
         left.",
        "scenario h22-trailers-of-what-is-not-shared",
    ),
    rule(
        "9211 2",
        "`Cache-Status` says what a cache did.",
        "Each answer has one line of it, behind those nearer to the origin.",
        "status::the_line_comes_behind_those_nearer_to_the_origin",
    ),
    rule(
        "9211 2.2",
        "A request that went on says why.",
        "With the registered word, and with a detail where there is more to say.",
        "status::every_reason_has_a_registered_value_and_a_detail_that_says_more",
    ),
    rule(
        "9211 2.4",
        "`ttl` is what is left of freshness, negative when stale.",
        "So it is.",
        "status::hits_carry_what_is_left_of_their_freshness",
    ),
];
