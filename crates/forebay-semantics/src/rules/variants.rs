//! Variants.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 4.1",
        "All fields that `Vary` names must match those of the request that was answered.",
        "All lines of `Vary` count, in any order and case, each name once.",
        "vary::names_are_taken_from_all_lines",
    ),
    rule(
        "9111 4.1",
        "A `*` anywhere in the list fails to match.",
        "Such an answer is not stored; nor is one with a member that is no field name, or with \
         more than 32.",
        "vary::a_star_anywhere_is_everything",
    )
    .because("What cannot be compared cannot match."),
    rule(
        "9111 4.1",
        "A field that is absent matches only where it was absent.",
        "An empty one is not an absent one.",
        "vary::lines_are_combined_and_white_space_around_them_goes",
    ),
    rule(
        "9111 4.1",
        "Lines of the same field may be combined, and white space around values may go.",
        "Both is done for every field.",
        "vary::lines_are_combined_and_white_space_around_them_goes",
    ),
    rule(
        "9111 4.1, 9110 12.5.3",
        "Values that mean the same by the field's definition may be taken as the same.",
        "`Accept-Encoding`: case, order, white space, `q=1`, `x-gzip` for `gzip`, repetition.",
        "preferences::spellings_of_the_same_codings_are_one_and_others_stay_apart",
    )
    .because("Clients that want the same should share what is stored."),
    rule(
        "9111 4.1, 9110 12.5.4",
        "Values that mean the same by the field's definition may be taken as the same.",
        "`Accept-Language`: case, order among languages of the same weight, white space, `q=1`.",
        "preferences::spellings_of_the_same_languages_are_one_and_others_stay_apart",
    )
    .because(
        "Preference is said by weights; who sends two languages of the same weight takes either.",
    ),
    rule(
        "9111 4.1",
        "Only what is known to mean the same may be taken as the same.",
        "Other weights, `q=0` and absence, `*`, and values outside the grammar stay apart.",
        "preferences::spellings_of_the_same_codings_are_one_and_others_stay_apart",
    ),
    rule(
        "9111 4.1, 9110 5.6.1",
        "White space may be removed where the syntax of the field allows it.",
        "Around the commas of lists, outside quotes and comments; not in `Cookie`, `User-Agent` \
         and others that are no lists.",
        "spacing::white_space_around_the_commas_of_a_list_means_nothing",
    )
    .because("Whoever combines lines on the way may add it, so no origin can rely on it."),
    rule(
        "9111 4.1, 9110 12.1",
        "How an origin chooses among variants is its own affair.",
        "`Content-Language` and the like never make a stored variant the answer to another \
         preference.",
        "preferences::spellings_of_the_same_languages_are_one_and_others_stay_apart",
    )
    .because("An origin may prefer a good translation to the first choice of the client."),
    rule(
        "9110 12.5.3",
        "A content coding is for clients that accept it.",
        "A response with `Content-Encoding` is stored as if it said `Vary: Accept-Encoding`; \
         `share_codings = true` turns that off.",
        "scenario y10-codings-without-vary",
    )
    .because("Many servers compress without `Vary`."),
    rule(
        "9111 3.2, 4.1",
        "A 304 may bring another `Vary`.",
        "The stored names stay beside the new ones.",
        "scenario y11-vary-that-changes",
    )
    .because("The stored body was made for the fields that were named when it came."),
    rule(
        "9111 4.1",
        "A cache may store as many variants as it likes.",
        "`variants_max` of one URL, 64 if nothing is said; the one that was used longest ago goes \
         first.",
        "scenario y05-variants-have-a-bound",
    )
    .because("A `Vary` on what each client sends otherwise would fill the memory with one page."),
    rule(
        "9111 4.1",
        "The request that counts is the one that the origin saw.",
        "A field that does not reach the origin selects nothing.",
        "scenario y03-vary-on-what-the-origin-saw",
    ),
];
