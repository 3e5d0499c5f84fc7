//! What is stored.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 2",
        "What is stored is found by the target URI, and by no less.",
        "By scheme, host, port, path and query, as the origin is sent them; host in lower case, \
         default port or none.",
        "scenario h05-one-host-one-entry",
    ),
    rule(
        "9111 4",
        "The target that is asked for must be the one that was stored.",
        "What a site leaves out of a query or puts in order, the origin sees in the same form.",
        "scenario h06-queries-as-the-site-wants-them",
    ),
    rule(
        "9110 9.3.1",
        "Content in a GET has no defined meaning.",
        "Such a request goes to the origin with it, and the answer is stored for nobody.",
        "scenario u05-get-with-a-body",
    ),
    rule(
        "9110 9.3.2",
        "A HEAD may be answered from a stored answer to GET.",
        "It is, with the length of the body that is not sent.",
        "scenario m01-head-from-a-stored-get",
    ),
    rule(
        "9110 9.3.2",
        "A HEAD need not be answered with what a GET would cost.",
        "Where nothing is stored, it goes to the origin as it is, and nothing is stored of it.",
        "scenario m01-head-from-a-stored-get",
    )
    .because("A GET in its place could bring a body of any size that nobody has asked for."),
    rule(
        "9111 4",
        "One request to the origin may answer several that are waiting.",
        "Where its answer may be shared with them; each is judged for itself.",
        "scenario c01-one-slow-origin-500-clients",
    ),
    rule(
        "9111 3",
        "A response is stored only if the method is understood.",
        "Answers to GET are stored, and to a POST that stands for one; HEAD is answered from them.",
        "storable::only_answers_to_get_are_stored",
    )
    .because("Hardly anything else says that it may be cached."),
    rule(
        "9111 3",
        "Only final responses are stored.",
        "100 to 199 are never stored.",
        "storable::interim_partial_and_not_modified_are_never_stored",
    ),
    rule(
        "9111 3",
        "A 304 is stored only by who understands it.",
        "A 304 updates what is stored and is nothing by itself.",
        "storable::interim_partial_and_not_modified_are_never_stored",
    ),
    rule(
        "9111 3",
        "Any final status may be stored when freshness is stated.",
        "All of them are, unknown ones (299, 499, 599) included.",
        "storable::any_final_status_with_explicit_freshness_is_stored",
    ),
    rule(
        "9111 3, 5.2.2.3",
        "With `must-understand`, only a status whose caching rules are known is stored.",
        "The statuses of RFC 9110 are known; others are not stored.",
        "storable::must_understand_outweighs_no_store_where_the_status_is_understood",
    ),
    rule(
        "9111 5.2.2.3",
        "Who understands the status passes over `no-store` beside `must-understand`.",
        "Such an answer is stored.",
        "storable::must_understand_outweighs_no_store_where_the_status_is_understood",
    ),
    rule(
        "9111 3, 5.2.2.5",
        "A response with `no-store` is not stored.",
        "Not stored, not in any tier.",
        "storable::no_store_and_private_forbid_it",
    ),
    rule(
        "9111 3, 5.2.1.5",
        "The response to a request with `no-store` is not stored.",
        "Not stored; what was stored before may answer it.",
        "storable::no_store_and_private_forbid_it",
    )
    .because("The directive is about this request and its response, not about others."),
    rule(
        "9111 3, 5.2.2.7",
        "A shared cache does not store a response with `private`.",
        "Not stored, and given only to the one who asked.",
        "storable::no_store_and_private_forbid_it",
    ),
    rule(
        "9111 5.2.2.7",
        "With `private=\"a\"`, only the field `a` must not be stored.",
        "The rest is stored without it.",
        "storable::of_a_response_that_names_fields_the_rest_is_kept",
    ),
    rule(
        "9111 5.2.2.7",
        "Many caches read `private` with field names as without.",
        "So it is read where a name is malformed, or of a field that says what the bytes are, for \
         whom, or how long: `Content-Type`, `Vary`, `ETag` and others.",
        "withheld::what_is_about_the_whole_stays_so",
    )
    .because("Without such a field the rest would be another response."),
    rule(
        "9111 5.2.2.4, 5.2.2.7",
        "A listed field is not for others.",
        "It is sent to the one who asked and to nobody else.",
        "withheld::named_fields_are_withheld_and_the_rest_is_free",
    ),
    rule(
        "9111 3.5",
        "An answer to a request with `Authorization` is stored only with `public`, \
         `must-revalidate` or `s-maxage`.",
        "Not stored otherwise, whatever else is said of freshness.",
        "storable::answers_to_requests_with_credentials_need_leave",
    ),
    rule(
        "9111 3.5",
        "`private` with field names is no leave to share.",
        "Such an answer to a request with `Authorization` is not stored.",
        "storable::naming_fields_gives_no_leave_to_share_what_credentials_brought",
    ),
    rule(
        "9111 3.5",
        "What is shared may answer requests with `Authorization` too.",
        "An answer to credentials that may not be shared leaves what is stored for all as it is.",
        "scenario u03-authorization",
    ),
    rule(
        "9111 7.3",
        "Cookies in stored responses can give one client's session to others.",
        "An answer with `Set-Cookie` is not stored, `public` or not, unless the site says \
         `store_set_cookie = true`.",
        "storable::cookies_are_not_stored_unless_chosen",
    )
    .because(
        "The RFC lets it be stored. Origins that forget `private` are many, and frameworks add \
         the cookie of a session to pages that say `public`.",
    ),
    rule(
        "9111 4.2.2, 7.3",
        "A cache may choose a lifetime where the origin states none, whoever asked.",
        "Of the answer to a request with `Cookie` it does not, and stores nothing of it, unless \
         the answer says `public`, or the site says `heuristics_with_cookie = true`.",
        "storable::no_lifetime_is_guessed_for_a_request_with_a_cookie",
    )
    .because(
        "A page with `Last-Modified` alone that a session cookie brought may be about its user.",
    ),
    rule(
        "9111 5.2.2.4, 5.2.2.7",
        "`private=\"set-cookie\"` and `no-cache=\"set-cookie\"` leave the rest free.",
        "The rest is stored without the cookie.",
        "storable::a_cookie_that_is_withheld_keeps_nothing_else_back",
    ),
    rule(
        "9111 3",
        "What is stored states its freshness, or has a status or `public` that lets the cache \
         choose.",
        "Nothing else is stored.",
        "storable::what_can_neither_be_served_nor_validated_is_not_stored",
    ),
    rule(
        "9111 3",
        "A cache need not store what it could.",
        "What can be neither served nor validated is not stored.",
        "storable::what_can_neither_be_served_nor_validated_is_not_stored",
    )
    .because("It would take the place of something useful."),
    rule(
        "9111 4.1",
        "A response with `Vary: *` matches no later request.",
        "It is not stored.",
        "storable::vary_star_is_never_stored",
    ),
    rule(
        "9111 3.3",
        "A part (206) is stored only as a part.",
        "It is not stored as a whole answer, ever.",
        "storable::interim_partial_and_not_modified_are_never_stored",
    ),
    rule(
        "9111 3.3",
        "An incomplete response is not used as a complete one.",
        "A body that breaks off is not stored, and breaks off for its client too.",
        "scenario e04-truncated-bodies",
    ),
    rule(
        "9111 3.1",
        "All fields of a response are stored, but for those of one connection and of proxies.",
        "So it is; `Proxy-Authenticate` and its kin go with `Connection` and what that names.",
        "hop::hop_by_hop_fields_and_connection_options_are_removed",
    ),
    rule(
        "9110 9.3.3",
        "A POST's answer may stand for a GET if its `Content-Location` is the target and its \
         freshness is stated.",
        "It is stored for GET, unless something was made invalid while it was under way.",
        "unsafe_methods::a_post_stands_for_a_get_where_it_says_of_what_and_for_how_long",
    ),
    rule(
        "10008 2.7",
        "The answer to a QUERY may be stored for requests with the same content and metadata.",
        "Where a site says `cache_methods = [\"QUERY\"]`: for the SHA-256 of the body with \
         `Content-Type`, `Content-Encoding` and `Content-Language`. It is never validated.",
        "scenario m08-query-by-its-body",
    )
    .because("Few origins know the method; and two bodies with one digest cannot be made."),
    rule(
        "9110 9.3.3",
        "Other answers to POST are not for a cache.",
        "Where a site says `cache_methods = [\"POST\"]`, one that states its freshness is stored \
         as that of a QUERY is, and counts as read; every other success counts as a change.",
        "scenario m09-post-by-its-body",
    )
    .because("Searches and GraphQL read with POST. That they only read is the site's word."),
    rule(
        "9110 9.3.3",
        "A body has to be there before it can be compared.",
        "`cache_body_max` bytes of it, 64 KiB if nothing else is said; a request with more, or \
         with conditions of its own, goes past the cache.",
        "scenario m10-bodies-too-large-to-wait-for",
    ),
];
