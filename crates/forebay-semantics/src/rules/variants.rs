//! Rules about variants.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 4.1",
        "All fields in `Vary` must equal those of the original request.",
        "All lines of `Vary` apply, in any order and case, each name once.",
        "vary::names_are_taken_from_all_lines",
    ),
    rule(
        "9111 4.1",
        "A `*` anywhere in the list matches no request.",
        "Such a response is not stored; nor is one with a malformed field name or more than 32 \
         names.",
        "vary::a_star_anywhere_matches_no_request",
    )
    .because("A field that cannot be compared cannot match."),
    rule(
        "9111 4.1",
        "An absent field matches only an absent one.",
        "An empty field is not absent.",
        "vary::lines_are_combined_and_outer_white_space_is_removed",
    ),
    rule(
        "9111 4.1",
        "Lines of one field may be combined, and white space around values may be removed.",
        "Both is done for every field.",
        "vary::lines_are_combined_and_outer_white_space_is_removed",
    ),
    rule(
        "9111 4.1, 9110 12.5.3",
        "Values with the same meaning by the definition of the field may be normalised.",
        "In `Accept-Encoding` these are case, order, white space, `q=1`, `x-gzip` for `gzip`, and \
         repetition.",
        "preferences::equal_encoding_preferences_have_one_normal_form",
    )
    .because("Clients with equal preferences should share a stored response."),
    rule(
        "9111 4.1, 9110 12.5.4",
        "Values with the same meaning by the definition of the field may be normalised.",
        "In `Accept-Language` these are case, order among languages of equal weight, white space, \
         and `q=1`.",
        "preferences::equal_language_preferences_have_one_normal_form",
    )
    .because(
        "Weights state the preference; a client with two languages of equal weight accepts either.",
    ),
    rule(
        "9111 4.1",
        "Only values known to have the same meaning may be normalised.",
        "Different weights, `q=0` and absence, `*`, and malformed values remain distinct.",
        "preferences::equal_encoding_preferences_have_one_normal_form",
    ),
    rule(
        "9111 4.1, 9110 5.6.1",
        "White space may be removed if the syntax of the field permits it.",
        "It is removed around the commas of lists, outside quotes and comments, except in \
         `Cookie`, `User-Agent` and other fields that are not lists.",
        "spacing::white_space_around_list_commas_is_removed",
    )
    .because("A proxy that combines lines may add it, so no origin can depend on it."),
    rule(
        "9111 4.1, 9110 12.1",
        "An origin selects among its variants by its own rules.",
        "`Content-Language` and similar fields never make a stored variant the response to \
         another preference.",
        "preferences::equal_language_preferences_have_one_normal_form",
    )
    .because("An origin may prefer a good translation to the client's first choice."),
    rule(
        "9110 12.5.3",
        "A content coding is for clients that accept it.",
        "A response with `Content-Encoding` is stored as with `Vary: Accept-Encoding`, unless the \
         site has `share_codings = true`.",
        "scenario y10-codings-without-vary",
    )
    .because("Many servers compress without `Vary`."),
    rule(
        "9110 8.8.1, 12.5.3",
        "A coding of an intermediary makes another representation.",
        "A compressed form has a weak `ETag`, `Vary: Accept-Encoding` and no digest of the stored \
         body; ranges are those of the stored body.",
        "encoded::encoded_fields_have_no_digest_no_ranges_and_a_weak_tag",
    ),
    rule(
        "9110 12.5.3",
        "The coding with the highest weight is preferred.",
        "Among equal weights the order of `codings` decides. A client that accepts no coding of \
         the site gets the unencoded response.",
        "negotiation::the_highest_weight_wins_then_the_order_of_the_site",
    ),
    rule(
        "9111 3.2, 4.1",
        "A 304 may have a different `Vary`.",
        "The stored names are kept beside the new ones.",
        "scenario y11-vary-that-changes",
    )
    .because("The stored body was made for the fields that were named when it was received."),
    rule(
        "9111 4.1",
        "A cache may limit the number of variants.",
        "The limit is `variants_max` for one URL, 64 by default; the least recently used variant \
         is removed.",
        "scenario y05-variants-have-a-bound",
    )
    .because(
        "Otherwise a `Vary` on a field that differs for each client would fill the memory with \
         one page.",
    ),
    rule(
        "9111 4.1",
        "The request as received by the origin selects the variant.",
        "A field that does not reach the origin selects nothing.",
        "scenario y03-vary-on-what-the-origin-saw",
    ),
];
