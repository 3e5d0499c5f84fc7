//! Fields for certain caches.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9213 2.2",
        "A cache has a list of fields that are meant for it.",
        "`Forebay-Cache-Control`, then `CDN-Cache-Control`.",
        "policy::the_most_specific_valid_field_applies_alone",
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
        "policy::an_invalid_or_empty_field_counts_as_absent",
    ),
    rule(
        "9213 2.1, 9651 4.2.2",
        "The field is a dictionary of RFC 9651, not a list of directives.",
        "Names in upper case, spaces around `=` and numbers of more than 15 digits make all of it \
         invalid.",
        "policy::an_invalid_or_empty_field_counts_as_absent",
    ),
    rule(
        "9651 4.2.2",
        "Of members with the same name the last counts, over all lines.",
        "So it does, where in `Cache-Control` the stricter one would.",
        "policy::parameters_and_unknown_members_are_ignored_and_the_last_duplicate_applies",
    ),
    rule(
        "9213 2.1",
        "Parameters are passed over.",
        "So they are, as are unknown members.",
        "policy::parameters_and_unknown_members_are_ignored_and_the_last_duplicate_applies",
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
        "policy::a_wrong_type_keeps_a_restriction_and_loses_a_permission",
    )
    .because("An origin that writes `no-store=1` does not want it stored."),
    rule(
        "9213 2.2",
        "Fields for other caches change nothing and are passed on.",
        "So are those for this one: there may be others behind it.",
        "policy::the_most_specific_valid_field_applies_alone",
    ),
];
