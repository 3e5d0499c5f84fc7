//! Parts of a body.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9110 14.2",
        "`Range` is defined for GET, and counts where the answer would be a 200.",
        "For all else the whole is sent.",
        "range::only_a_200_has_parts_and_an_empty_body_has_none",
    ),
    rule(
        "9110 14.1.2",
        "A range names a first and a last byte, a first alone, or how many at the end.",
        "What lies behind the end is cut off.",
        "range::one_range_of_bytes_is_cut_to_the_body",
    ),
    rule(
        "9110 14.2",
        "What is malformed, or in another unit than bytes, is passed over.",
        "The whole is sent.",
        "range::what_is_not_one_range_of_bytes_is_passed_over",
    ),
    rule(
        "9110 14.2, 15.5.17",
        "What lies outside the body is a 416 that says how long the body is.",
        "With `Content-Range: bytes */N`.",
        "range::one_range_of_bytes_is_cut_to_the_body",
    ),
    rule(
        "9110 14.6, 15.3.7.2",
        "Several ranges are answered with `multipart/byteranges`, in the order of the request.",
        "So they are, from a body that is stored; of one that still flows the whole is sent.",
        "multipart::parts_have_a_content_type_and_a_content_range",
    ),
    rule(
        "9110 15.3.7.2",
        "Ranges that overlap, or with less between them than a head takes, may be joined.",
        "Up to 80 bytes between them are sent along.",
        "range::several_ranges_keep_their_order_and_near_ones_become_one",
    )
    .because("So no request is sent more bytes than the body has."),
    rule(
        "9110 15.3.7.2",
        "Where one range is left of several, it is not sent as multipart.",
        "It is a plain 206.",
        "range::several_ranges_keep_their_order_and_near_ones_become_one",
    ),
    rule(
        "9110 14.2, 17.15",
        "Many small ranges may be passed over.",
        "More than 32 in one request are.",
        "range::more_ranges_than_anybody_needs_are_passed_over",
    ),
    rule(
        "9110 13.1.5",
        "`If-Range` holds only for the same strong tag, or for exactly the same date.",
        "Where it does not, the whole is sent.",
        "range::if_range_needs_the_very_same_bytes",
    ),
    rule(
        "9110 8.8.2.2",
        "A date is a strong validator only if it lies a second before `Date`.",
        "So it is judged.",
        "range::if_range_needs_the_very_same_bytes",
    ),
    rule(
        "9110 14.4",
        "A `Content-Range` that contradicts itself is invalid.",
        "Such a 206 is passed on and not stored.",
        "partial::a_content_range_is_read_or_says_nothing",
    ),
    rule(
        "9111 3.3",
        "A 206 may be stored as a part.",
        "It is, with one `Content-Range` and up to 4 MiB; it answers requests for what lies \
         inside it.",
        "storable::a_part_is_kept_when_it_says_which",
    ),
    rule(
        "9111 3.3",
        "A response of which not all came is incomplete.",
        "Of a 206 that is shorter than it says, what came are the first bytes; one that is longer \
         is not stored.",
        "partial::a_part_is_what_came_of_what_it_says",
    ),
    rule(
        "9111 3.4",
        "Parts may be joined if they have the same strong validator.",
        "Tags only, and only where `Vary` and `Content-Encoding` are equal, too.",
        "partial::parts_join_under_one_strong_validator_only",
    )
    .because(
        "Two changes within a second have the same date, and servers give variants and codings one \
         tag.",
    ),
    rule(
        "9111 3.3",
        "An incomplete response answers only requests for a range wholly inside it.",
        "So it does; for all else the origin is asked.",
        "range::a_part_answers_what_lies_inside_it",
    ),
    rule(
        "9111 3.4",
        "The rest of an incomplete response may be asked for.",
        "With `Range` and `If-Range`, where a strong tag lets it be joined and one question is \
         enough.",
        "partial::the_missing_bytes_are_asked_for_where_they_can_be_joined",
    ),
    rule(
        "9111 3.4",
        "What is joined has the fields of the latest part.",
        "Updated as by a 304.",
        "partial::joined_parts_have_the_later_fields_and_no_range_of_their_own",
    ),
    rule(
        "9111 3.4",
        "When all parts are there, the response is complete.",
        "And what is missing is known: 64 separate parts are kept at most.",
        "partial::touching_parts_become_one_until_the_whole_is_there",
    ),
    rule(
        "9111 3.3",
        "A part is not sent for what it does not hold.",
        "A part that contradicts the known length is not taken in.",
        "partial::what_contradicts_the_length_is_not_taken_in",
    ),
    rule(
        "9110 14.2",
        "A part that nobody asked for is no answer.",
        "A 206 to a request without `Range` is not stored.",
        "scenario r02-part-that-nobody-asked-for",
    ),
    rule(
        "9110 14.2, 9111 3.3",
        "A request for a part may be answered from the whole, whatever was asked of the origin.",
        "The whole is fetched once for everybody, and parts are cut from it as they come; not what \
         is larger than 16 MiB or than what is stored, nor for its last bytes, which would come \
         last.",
        "scenario r08-part-of-what-is-too-large",
    )
    .because("Who wants a part mostly wants more; but not at the price of a film for its end."),
    rule(
        "9110 14.2",
        "An origin may answer a request for a part with the whole.",
        "That answer is used, and stored where it may be; the origin is not asked again.",
        "scenario r12-suffix-of-what-is-sent-whole",
    ),
    rule(
        "9110 14.2",
        "A part of what may not be stored is for the one who asked.",
        "Once that is known, the origin is asked for the part itself.",
        "scenario r05-parts-of-what-is-not-stored",
    ),
];
