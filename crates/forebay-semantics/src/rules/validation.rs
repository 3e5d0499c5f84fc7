//! Validation.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 4.3.1",
        "To validate, the stored `ETag` is sent in `If-None-Match` and `Last-Modified` in \
         `If-Modified-Since`.",
        "Both, each as it was written.",
        "validate::validators_are_kept_as_they_were_written",
    ),
    rule(
        "9111 4.3.1",
        "One request may ask about several stored responses.",
        "It asks about the one that its own fields select, and about no other variant.",
        "scenario y07-one-tag-for-all-users",
    )
    .because(
        "Many servers give all variants one tag: a 304 would hand one client the response of \
         another.",
    ),
    rule(
        "9111 4.3.2",
        "A client's conditions are about that client's copy.",
        "They do not go to the origin in a request whose answer is for others, too.",
        "validate::a_load_carries_the_caches_conditions_and_never_the_clients",
    ),
    rule(
        "9110 13.2.1",
        "Conditions are judged by who would answer the request without them.",
        "Of a page that is known to be private, by the origin: it is sent the client's \
         `If-None-Match` and `If-Modified-Since`, and its answer, a 304 too, is for that client \
         with all of its fields. Such a 304 touches nothing that is stored.",
        "scenario u10-private-pages-and-conditions",
    ),
    rule(
        "9111 4.3.2, 9110 13.1.2",
        "`If-None-Match` is compared weakly, over the whole list and all lines; `*` matches what \
         exists.",
        "So it is. A 304 answers a match.",
        "validate::if_none_match_compares_weakly_over_the_whole_list",
    ),
    rule(
        "9110 8.8.3",
        "An entity tag is quoted, may hold commas, and its `W/` is in upper case.",
        "Lists of them are read so; an unquoted one is compared as it is.",
        "validate::if_none_match_compares_weakly_over_the_whole_list",
    ),
    rule(
        "9110 13.1.3",
        "`If-Modified-Since` is passed over beside `If-None-Match`.",
        "Whatever that holds.",
        "validate::if_modified_since_counts_only_without_if_none_match",
    ),
    rule(
        "9110 13.1.3",
        "It is passed over when it is no date or more than one, and for other methods than GET \
         and HEAD.",
        "So it is; other methods never come to the cache.",
        "validate::if_modified_since_counts_only_without_if_none_match",
    ),
    rule(
        "9111 4.3.2",
        "Without `Last-Modified`, `Date` is compared.",
        "So it is.",
        "validate::if_modified_since_counts_only_without_if_none_match",
    ),
    rule(
        "9110 13.2.1, 15.4.5",
        "Conditions count only where the answer would be a success; a 304 stands for a 200.",
        "Tags count for every 2xx, dates for a 200.",
        "validate::conditions_count_only_where_the_answer_is_a_success",
    ),
    rule(
        "9111 4.3.2",
        "A cache does not judge `If-Match` and `If-Unmodified-Since`.",
        "Such requests go to the origin, and the answer is for their client.",
        "validate::only_the_origin_judges_if_match_and_if_unmodified_since",
    ),
    rule(
        "9110 15.4.5",
        "A 304 repeats the fields that guide the client's cache.",
        "`Cache-Control`, `Content-Location`, `Date`, `ETag`, `Expires`, `Vary`; `Last-Modified` \
         where there is no `ETag`.",
        "validate::a_304_to_a_client_repeats_what_guides_its_cache",
    ),
    rule(
        "9110 15.4.5",
        "A 304 may have fields that do not describe the body.",
        "One that is made from what is stored has `Access-Control-*`, \
         `Cross-Origin-Resource-Policy` and `Timing-Allow-Origin` of the stored answer: not \
         `Set-Cookie`, `Content-Security-Policy` or others.",
        "validate::a_304_to_a_client_repeats_what_its_browser_checks",
    )
    .because(
        "A browser checks these on the response it gets, before it looks into its own cache: \
         without them a script on another origin sees a network error. A cookie is for one \
         client, and a policy with a nonce belongs to the body that the client has.",
    ),
    rule(
        "9110 15.4.5",
        "A 304 may be made from an answer that was for one client.",
        "It has all fields of that answer, `Set-Cookie` too, but for those of the body: \
         `Content-*` without `Content-Location`, and `Last-Modified` beside an `ETag`.",
        "validate::a_304_made_for_one_client_has_all_but_what_describes_the_body",
    ),
    rule(
        "9111 4.3.3",
        "A 304 says that what is stored can be used.",
        "It is served, as fresh as the 304 says.",
        "scenario v05-304-updates-the-stored-fields",
    ),
    rule(
        "9111 4.3.3",
        "Any other answer but a server error takes the place of what is stored.",
        "One that may not be stored is for its client, and leaves what is stored as it is: stale.",
        "freshen::an_error_is_no_answer_to_the_question",
    ),
    rule(
        "9111 4.3.3",
        "A server error may be passed on, or what is stored be served as if the origin were lost.",
        "It is passed on, and changes nothing that is stored; within `stale-if-error` what is \
         stored is served.",
        "scenario s06-error-with-an-etag-destroys-nothing",
    )
    .because("Without leave of the origin, its error says more than an old answer."),
    rule(
        "9111 4.3.4",
        "A 304 with a strong validator updates only what has the same.",
        "One with another is no answer: the whole is asked for.",
        "validate::a_304_with_another_validator_is_about_another_response",
    ),
    rule(
        "9111 4.3.4",
        "Of several stored responses, a strong validator updates all that have it, a weak one the \
         most recent that matches, none the only one without.",
        "It updates the one that was asked about, and no other variant. Where its validator is \
         another, all of it is asked for.",
        "scenario y09-one-tag-for-all-sites",
    )
    .because(
        "Tags are shared by variants in practice, and a 304 holds fields that are for one client.",
    ),
    rule(
        "9111 3.2",
        "Each field of a 304 replaces all lines of that name.",
        "Other fields stay.",
        "validate::a_304_replaces_what_it_names_and_nothing_else",
    ),
    rule(
        "9111 3.2",
        "`Content-Length` is not updated; what describes the stored bytes may be left as it is.",
        "So are `Content-Encoding`, `Content-Type` and `Content-Range`.",
        "validate::a_304_replaces_what_it_names_and_nothing_else",
    )
    .because("The bytes are the same, and read in another way they could be made to do harm."),
    rule(
        "9111 7.3",
        "A cookie in a 304 is for one client.",
        "It is not stored, and reaches the client whose request brought the 304.",
        "validate::a_304_replaces_what_it_names_and_nothing_else",
    ),
    rule(
        "9111 4.3.5",
        "A 200 to a HEAD with the same validators and length updates what is stored.",
        "So it does. A HEAD is asked where what is stored has no validator; else a conditional \
         GET.",
        "freshen::a_head_updates_what_it_agrees_with_and_makes_all_else_stale",
    )
    .because("A GET without a condition would bring a body that nobody has asked for."),
    rule(
        "9111 4.3.5",
        "A 200 to a HEAD that differs makes what is stored stale.",
        "So it does, with all variants.",
        "freshen::a_head_updates_what_it_agrees_with_and_makes_all_else_stale",
    ),
];
