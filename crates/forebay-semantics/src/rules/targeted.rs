//! Rules about targeted cache control fields.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9213 2.2",
        "A cache has a list of fields that target it.",
        "The list is `Forebay-Cache-Control`, `CDN-Cache-Control`.",
        "policy::the_most_specific_valid_field_applies_alone",
    )
    .because("The more specific field is the better description."),
    rule(
        "9213 2.2",
        "The first valid and nonempty field applies alone.",
        "`Cache-Control` and `Expires` are then ignored by this cache.",
        "storable::a_targeted_field_replaces_the_others",
    ),
    rule(
        "9213 2.1",
        "An empty or malformed field counts as absent.",
        "The next field of the list applies, finally `Cache-Control`.",
        "policy::an_invalid_or_empty_field_counts_as_absent",
    ),
    rule(
        "9213 2.1, 9651 4.2.2",
        "The field is a dictionary of RFC 9651, not a list of directives.",
        "Upper-case names, spaces around `=` and numbers of more than 15 digits make the whole \
         field invalid.",
        "policy::an_invalid_or_empty_field_counts_as_absent",
    ),
    rule(
        "9651 4.2.2",
        "If members have the same name, the last applies, over all lines.",
        "It does; in `Cache-Control` the stricter one would.",
        "policy::parameters_and_unknown_members_are_ignored_and_the_last_duplicate_applies",
    ),
    rule(
        "9213 2.1",
        "Parameters are ignored.",
        "Parameters and unknown members are ignored.",
        "policy::parameters_and_unknown_members_are_ignored_and_the_last_duplicate_applies",
    ),
    rule(
        "9213 2.1",
        "A directive has the type that its argument suggests.",
        "Durations are Integers, lists of names are Strings, the others are Booleans.",
        "policy::directives_have_their_inferred_types",
    ),
    rule(
        "9213 2.1",
        "A value of another type should not be used.",
        "It is not used as a permission or a lifetime; a prohibition applies by its name.",
        "policy::a_wrong_type_keeps_a_restriction_and_loses_a_permission",
    )
    .because("An origin that writes `no-store=1` intends no storage."),
    rule(
        "9213 2.2",
        "Fields for other caches have no effect and are forwarded.",
        "Fields for this cache are forwarded too, because another one may follow.",
        "policy::the_most_specific_valid_field_applies_alone",
    ),
];
