//! Messages on their way, and what they make invalid.

use super::{Rule, rule};

pub(super) const INVALIDATION: &[Rule] = &[
    rule(
        "9111 4",
        "A request with an unsafe method goes through to the origin.",
        "So it does, body and all, and nothing that is stored answers it.",
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
        "All but GET, HEAD, OPTIONS and TRACE.",
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
        "`Cache-Groups` can be read: a list of Strings, passed over when it is anything else.",
        "groups::groups_are_strings_as_they_are",
    )
    .unused(),
    rule(
        "9875 3",
        "The answer to an unsafe method may make groups invalid.",
        "`Cache-Group-Invalidation` can be read; in the answer to a safe method it says nothing.",
        "groups::only_a_change_makes_groups_invalid",
    )
    .unused(),
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
        "9110 7.6.1",
        "Fields named in `Connection` are for one connection.",
        "They are neither passed on nor stored.",
        "hop::hop_by_hop_fields_and_what_connection_names_go",
    ),
    rule(
        "9110 7.6.1",
        "`Connection` does not name fields that are for everybody.",
        "Where it does all the same, they stay.",
        "hop::connection_cannot_remove_what_is_for_every_recipient",
    )
    .because("Else a client could take `Host` or `Cache-Control` out of what others read."),
    rule(
        "9110 7.6.3",
        "A proxy adds itself to `Via`.",
        "To requests and answers; a request that was here eight times is refused.",
        "hop::a_request_goes_in_circles_when_it_has_been_here_too_often",
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
        "Trailers of origins end here; those that may travel on can be told from the others.",
        "trailers::what_says_how_to_read_the_message_cannot_come_behind_it",
    )
    .unused(),
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
