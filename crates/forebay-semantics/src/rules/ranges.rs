//! Rules about ranges and partial responses.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9110 14.2",
        "`Range` is defined for GET and applies if the response would be a 200.",
        "In all other cases the whole body is sent.",
        "range::only_a_nonempty_200_has_ranges",
    ),
    rule(
        "9110 14.1.2",
        "A range has a first and a last position, a first position only, or a suffix length.",
        "A last position beyond the end is reduced to the end.",
        "range::one_range_is_limited_to_the_body",
    ),
    rule(
        "9110 14.2",
        "A malformed range, or one in a unit other than bytes, is ignored.",
        "The whole body is sent.",
        "range::anything_but_one_range_of_bytes_is_ignored",
    ),
    rule(
        "9110 14.2, 15.5.17",
        "A range outside the body yields 416 with the length of the body.",
        "The response has `Content-Range: bytes */N`.",
        "range::one_range_is_limited_to_the_body",
    ),
    rule(
        "9110 14.6, 15.3.7.2",
        "Several ranges are answered with `multipart/byteranges`, in the order of the request.",
        "Several ranges are sent as multipart if the body is stored; while the body is being received, the whole is sent.",
        "multipart::parts_have_a_content_type_and_a_content_range",
    ),
    rule(
        "9110 15.3.7.2",
        "Overlapping ranges, and ranges with a gap smaller than a part header, may be merged.",
        "Gaps of up to 80 bytes are sent.",
        "range::several_ranges_keep_their_order_and_near_ones_are_merged",
    )
    .because("This ensures that no response has more bytes than the body."),
    rule(
        "9110 15.3.7.2",
        "A single range that remains of several is not sent as multipart.",
        "It is sent as an ordinary 206.",
        "range::several_ranges_keep_their_order_and_near_ones_are_merged",
    ),
    rule(
        "9110 14.2, 17.15",
        "Many small ranges may be ignored.",
        "More than 32 ranges in one request are ignored.",
        "range::more_than_the_maximum_of_ranges_are_ignored",
    ),
    rule(
        "9110 13.1.5",
        "`If-Range` matches only an equal strong tag or exactly the same date.",
        "If it does not match, the whole body is sent.",
        "range::if_range_requires_an_equal_strong_validator",
    ),
    rule(
        "9110 8.8.2.2",
        "A date is a strong validator only if it is at least one second before `Date`.",
        "The same condition is used.",
        "range::if_range_requires_an_equal_strong_validator",
    ),
    rule(
        "9110 14.4",
        "A contradictory `Content-Range` is invalid.",
        "Such a 206 is forwarded and not stored.",
        "partial::a_contradictory_content_range_is_invalid",
    ),
    rule(
        "9111 3.3",
        "A 206 may be stored as a partial response.",
        "It is stored if it has one `Content-Range` and at most 4 MiB. It answers requests for \
         ranges inside it.",
        "storable::a_partial_response_is_storable_if_it_states_its_range",
    ),
    rule(
        "9111 3.3",
        "A response that ends early is incomplete.",
        "A 206 that is shorter than its range counts as its first bytes; a longer one is not \
         stored.",
        "partial::a_part_is_the_received_prefix_of_its_range",
    ),
    rule(
        "9111 3.4",
        "Parts may be combined if they have the same strong validator.",
        "Only entity tags are used, and `Vary` and `Content-Encoding` must be equal too.",
        "partial::parts_combine_only_with_equal_strong_tag_vary_and_coding",
    )
    .because(
        "Two changes within one second have the same date, and servers give variants and codings \
         one tag.",
    ),
    rule(
        "9111 3.3",
        "An incomplete response answers only requests for a range inside it.",
        "All other requests go to the origin.",
        "range::stored_parts_answer_only_ranges_inside_them",
    ),
    rule(
        "9111 3.4",
        "The missing bytes of an incomplete response may be requested.",
        "They are requested with `Range` and `If-Range` if a strong tag permits combination and \
         one request suffices.",
        "partial::missing_bytes_are_requested_if_they_can_be_combined",
    ),
    rule(
        "9111 3.4",
        "A combined response has the fields of the latest part.",
        "They are updated as by a 304.",
        "partial::combined_parts_have_the_later_fields_and_no_content_range",
    ),
    rule(
        "9111 3.4",
        "A response is complete when all its parts are stored.",
        "It is then served as complete; at most 64 separate parts are stored.",
        "partial::adjacent_parts_are_merged_until_the_body_is_complete",
    ),
    rule(
        "9111 3.3",
        "A part does not answer requests for bytes outside it.",
        "A part that contradicts the known length is rejected.",
        "partial::a_part_that_contradicts_the_length_is_rejected",
    ),
    rule(
        "9110 14.2",
        "An unrequested part is not a valid response.",
        "A 206 to a request without `Range` is not stored.",
        "scenario r02-unrequested-part",
    ),
    rule(
        "9110 14.2, 9111 3.3",
        "A range request may be answered from the whole body, whatever was requested from the \
         origin.",
        "The whole body is fetched once for all clients, and ranges are cut from it while it is \
         received. Exceptions are bodies larger than 16 MiB or than the largest storable object, \
         and suffix ranges, for which the rest would have to be received first.",
        "scenario r08-part-of-what-is-too-large",
    )
    .because(
        "A client that requests one range mostly requests more, but the end of a film should not \
         cost the whole film.",
    ),
    rule(
        "9110 14.2",
        "An origin may answer a range request with the whole body.",
        "That response is used, and stored if permitted; the origin is not asked again.",
        "scenario r12-suffix-of-what-is-sent-whole",
    ),
    rule(
        "9110 14.2",
        "A part of a response that must not be stored is for the requesting client.",
        "Once the response is known to be private, the origin is asked for the range itself.",
        "scenario r05-parts-of-what-is-not-stored",
    ),
];
