//! Rules about storage.

use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        "9111 2",
        "A stored response is identified by the whole target URI.",
        "The key has scheme, host, port, path and query as sent to the origin; the host is in \
         lower case, and the default port is omitted.",
        "scenario h05-one-host-one-entry",
    ),
    rule(
        "9111 4",
        "The requested target must equal the target of the stored response.",
        "Query parameters that a site removes or sorts are removed or sorted in the request to \
         the origin too.",
        "scenario h06-queries-as-the-site-wants-them",
    ),
    rule(
        "9110 9.3.1",
        "A body in a GET has no defined meaning.",
        "Such a request is forwarded with its body, and the response is not stored.",
        "scenario u05-get-with-a-body",
    ),
    rule(
        "9110 9.3.2",
        "A HEAD may be answered from a stored response to GET.",
        "A stored response to GET answers it, with the length of the omitted body.",
        "scenario m01-head-from-a-stored-get",
    ),
    rule(
        "9110 9.3.2",
        "A HEAD need not be converted to a GET.",
        "If nothing is stored, it is forwarded as HEAD, and its response is not stored.",
        "scenario m01-head-from-a-stored-get",
    )
    .because("A GET in its place could transfer a body of any size that no client requested."),
    rule(
        "9111 4",
        "One request to the origin may answer several waiting requests.",
        "Waiting requests share the response if it may be shared with them; each request is checked \
         separately.",
        "scenario c01-one-slow-origin-500-clients",
    ),
    rule(
        "9111 3",
        "A response is stored only if the cache understands the method.",
        "Responses to GET are stored, and to a POST that may answer a GET; HEAD is answered from \
         them.",
        "storable::only_responses_to_get_are_stored",
    )
    .because("Responses to other methods are hardly ever cacheable."),
    rule(
        "9111 3",
        "Only final responses are stored.",
        "Responses with status 100 to 199 are never stored.",
        "storable::interim_partial_and_not_modified_are_never_stored",
    ),
    rule(
        "9111 3",
        "Only a cache that understands 304 stores one.",
        "A 304 updates a stored response and is not stored itself.",
        "storable::interim_partial_and_not_modified_are_never_stored",
    ),
    rule(
        "9111 3",
        "Any final status may be stored if its freshness is explicit.",
        "All of them are, including unknown ones (299, 499, 599).",
        "storable::any_final_status_with_explicit_freshness_is_stored",
    ),
    rule(
        "9111 3, 5.2.2.3",
        "With `must-understand`, only a status whose caching rules are known is stored.",
        "The statuses of RFC 9110 are known; others are not stored.",
        "storable::must_understand_overrides_no_store_if_the_status_is_understood",
    ),
    rule(
        "9111 5.2.2.3",
        "A cache that understands the status ignores `no-store` beside `must-understand`.",
        "Such a response is stored.",
        "storable::must_understand_overrides_no_store_if_the_status_is_understood",
    ),
    rule(
        "9111 3, 5.2.2.5",
        "A response with `no-store` is not stored.",
        "It is not stored in any tier.",
        "storable::no_store_and_private_prevent_storage",
    ),
    rule(
        "9111 3, 5.2.1.5",
        "The response to a request with `no-store` is not stored.",
        "It is not stored; an entry that is already stored may answer it.",
        "storable::no_store_and_private_prevent_storage",
    )
    .because("The directive applies to this request and its response, not to others."),
    rule(
        "9111 3, 5.2.2.7",
        "A shared cache does not store a response with `private`.",
        "It is not stored, and only the requesting client gets it.",
        "storable::no_store_and_private_prevent_storage",
    ),
    rule(
        "9111 5.2.2.7",
        "With `private=\"a\"`, only the field `a` must not be stored.",
        "The rest is stored without that field.",
        "storable::qualified_directives_withhold_only_the_named_fields",
    ),
    rule(
        "9111 5.2.2.7",
        "Many caches treat `private` with field names as unqualified.",
        "It is treated so if a name is malformed, or names a field that identifies the response: \
         `Content-Type`, `Vary`, `ETag` and others.",
        "withheld::directives_that_name_an_essential_field_apply_to_the_whole",
    )
    .because("Without such a field the rest would be a different response."),
    rule(
        "9111 5.2.2.4, 5.2.2.7",
        "A named field is not for other clients.",
        "Only the requesting client gets it.",
        "withheld::named_fields_are_withheld_and_the_rest_is_storable",
    ),
    rule(
        "9111 3.5",
        "The response to a request with `Authorization` is stored only with `public`, \
         `must-revalidate` or `s-maxage`.",
        "It is not stored otherwise, even with explicit freshness.",
        "storable::responses_to_requests_with_credentials_need_permission",
    ),
    rule(
        "9111 3.5",
        "`private` with field names does not permit sharing.",
        "Such a response to a request with `Authorization` is not stored.",
        "storable::qualified_directives_do_not_permit_sharing_with_credentials",
    ),
    rule(
        "9111 3.5",
        "A shared response may answer requests with `Authorization` too.",
        "A private response to a request with credentials does not change the shared entry.",
        "scenario u03-authorization",
    ),
    rule(
        "9111 7.3",
        "A stored cookie can give one client's session to others.",
        "A response with `Set-Cookie` is not stored, even with `public`, unless the site has \
         `store_set_cookie = true`.",
        "storable::responses_with_cookies_are_stored_only_with_the_option",
    )
    .because(
        "The RFC permits storage. Many origins omit `private`, and frameworks add session cookies \
         to pages with `public`.",
    ),
    rule(
        "9111 4.2.2, 7.3",
        "A cache may choose a lifetime if the origin states none.",
        "The response to a request with `Cookie` gets no such lifetime and is not stored, unless \
         it has `public` or the site has `heuristics_with_cookie = true`.",
        "storable::no_heuristic_lifetime_for_a_request_with_a_cookie",
    )
    .because(
        "A page with only `Last-Modified` that was requested with a session cookie may be about \
         its user.",
    ),
    rule(
        "9111 5.2.2.4, 5.2.2.7",
        "`private=\"set-cookie\"` and `no-cache=\"set-cookie\"` permit storing the rest.",
        "The rest is stored without the cookie.",
        "storable::a_withheld_cookie_does_not_prevent_storage",
    ),
    rule(
        "9111 3",
        "A stored response has explicit freshness, or a status or `public` that permits a \
         heuristic.",
        "No other response is stored.",
        "storable::a_response_without_freshness_and_validator_is_not_stored",
    ),
    rule(
        "9111 3",
        "A cache need not store every storable response.",
        "A response that can be neither served nor validated is not stored.",
        "storable::a_response_without_freshness_and_validator_is_not_stored",
    )
    .because("It would displace a useful entry."),
    rule(
        "9111 4.1",
        "A response with `Vary: *` matches no later request.",
        "It is not stored.",
        "storable::vary_star_is_never_stored",
    ),
    rule(
        "9111 3.3",
        "A partial response (206) is stored only as partial.",
        "It is never stored as a complete response.",
        "storable::interim_partial_and_not_modified_are_never_stored",
    ),
    rule(
        "9111 3.3",
        "An incomplete response is not used as a complete one.",
        "A body that ends early is not stored, and the response to the client is aborted too.",
        "scenario e04-truncated-bodies",
    ),
    rule(
        "9111 3.1",
        "All fields are stored, except hop-by-hop fields and those for proxies.",
        "`Proxy-Authenticate` and related fields are removed, like `Connection` and the fields \
         that it names.",
        "hop::hop_by_hop_fields_and_connection_options_are_removed",
    ),
    rule(
        "9111 3.1",
        "A field that belongs to one exchange need not be stored.",
        "`Server-Timing` of the origin is not stored. Responses that are not stored keep it.",
        "scenario u12-durations-of-one-request",
    )
    .because("It measures one request; a hit would repeat it."),
    rule(
        "9110 9.3.3",
        "The response to a POST may answer a GET if its `Content-Location` is the target and its \
         freshness is explicit.",
        "It is stored for GET, unless an invalidation happened during the request.",
        "unsafe_methods::a_post_response_stands_for_get_with_location_and_freshness",
    ),
    rule(
        "10008 2.7",
        "The response to a QUERY may be stored for requests with the same content and metadata.",
        "It is stored if a site has `cache_methods = [\"QUERY\"]`. The key has the SHA-256 of the body, \
         `Content-Type`, `Content-Encoding` and `Content-Language`. The entry is never validated.",
        "scenario m08-query-by-its-body",
    )
    .because("Few origins support the method. SHA-256 prevents two bodies with one digest."),
    rule(
        "9110 9.3.3",
        "Other responses to POST are not cacheable.",
        "If a site has `cache_methods = [\"POST\"]`, a response with explicit freshness is stored \
         like that of a QUERY and invalidates nothing; every other success invalidates.",
        "scenario m09-post-by-its-body",
    )
    .because("Searches and GraphQL read with POST. The operator declares that they are safe."),
    rule(
        "9110 9.3.3",
        "The whole body is needed for a comparison.",
        "At most `cache_body_max` bytes are read, 64 KiB by default; a larger or conditional \
         request bypasses the cache.",
        "scenario m10-bodies-too-large-to-wait-for",
    ),
];
