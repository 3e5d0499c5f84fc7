//! Fields for certain caches.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9213 2.2",
        "A cache has a list of fields that are meant for it.",
        "`Forebay-Cache-Control`, then `CDN-Cache-Control`.",
        "policy::the_nearest_valid_field_rules_alone",
    )
    .because("The nearer name knows better what stands here."),
    rule(
        "9213 2.2",
        "The first of them that is valid and not empty rules alone.",
        "Then `Cache-Control` and `Expires` say nothing to this cache.",
        "storable::a_targeted_field_rules_in_the_place_of_the_others",
    ),
    rule(
        "9213 2.1",
        "A field that is empty, or cannot be parsed, is as if it were not there.",
        "The next of the list counts, at last `Cache-Control`.",
        "policy::what_is_no_dictionary_or_empty_is_not_there",
    ),
    rule(
        "9213 2.1, 9651 4.2.2",
        "The field is a dictionary of RFC 9651, not a list of directives.",
        "Names in upper case, spaces around `=` and numbers of more than 15 digits make all of it \
         invalid.",
        "policy::what_is_no_dictionary_or_empty_is_not_there",
    ),
    rule(
        "9651 4.2.2",
        "Of members with the same name the last counts, over all lines.",
        "So it does, where in `Cache-Control` the stricter one would.",
        "policy::parameters_and_unknown_members_are_passed_over_and_the_last_of_two_counts",
    ),
    rule(
        "9213 2.1",
        "Parameters are passed over.",
        "So they are, as are unknown members.",
        "policy::parameters_and_unknown_members_are_passed_over_and_the_last_of_two_counts",
    ),
    rule(
        "9213 2.1",
        "A directive has the type that its argument suggests.",
        "Spans are Integers, lists of names are Strings, the others are Booleans.",
        "policy::directives_have_their_inferred_types",
    ),
    rule(
        "9213 2.1",
        "A value of another type should not be consumed.",
        "It is not, as a permission or a lifetime; of a prohibition the name is enough.",
        "policy::a_wrong_type_leaves_a_prohibition_and_nothing_of_a_permission",
    )
    .because("An origin that writes `no-store=1` does not want it stored."),
    rule(
        "9213 2.2",
        "Fields for other caches change nothing and are passed on.",
        "So are those for this one: there may be others behind it.",
        "policy::the_nearest_valid_field_rules_alone",
    ),
];
