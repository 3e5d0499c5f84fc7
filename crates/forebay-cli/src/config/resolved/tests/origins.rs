use super::errors;

#[test]
fn each_mistake_in_the_servers_of_an_origin_has_one_sentence_with_its_place() {
    let site = "[[site]]\nid = \"a\"\n";
    let origin = "[site.origin]\nurls = [\"https://o\"]\n";
    let rows = [
        (
            format!("{site}[site.origin]\nurls = [\"http://o\", \"ftp://p\"]"),
            "f.toml:4:21: site[0].origin.urls[1]: \"ftp://p\" must begin with http://",
        ),
        (
            format!("{site}[site.origin]\nurls = [\"http://o\", \"http://O:80\"]"),
            "f.toml:4:21: site[0].origin.urls[1]: is the server of urls[0] (http://o); remove one",
        ),
        (
            format!("{site}[site.origin]\nurls = [{{ url = \"http://o\", weight = 0 }}]"),
            "f.toml:4:38: site[0].origin.urls[0].weight: 0 must be at least 1 and at most 1000",
        ),
        (
            format!("{site}[site.origin]\nurls = [{{ weight = 2 }}]"),
            "f.toml:4:9: site[0].origin.urls[0]: needs `url`",
        ),
        (
            format!("{site}[site.origin]\nurls = [{{ url = \"http://o\", wieght = 2 }}]"),
            "f.toml:4:29: site[0].origin.urls[0].wieght: unknown field; did you mean \"weight\"?",
        ),
        (
            format!("{site}[site.origin]\nurls = [7]"),
            "f.toml:4:9: site[0].origin.urls[0]: must be a URL or a table such as",
        ),
        (
            format!("{site}{origin}health = \"/healthz\""),
            "f.toml:5:10: site[0].origin.health: must be a table; write [site.origin.health] above",
        ),
        (
            format!("{site}{origin}health = {{ every = \"1s\" }}"),
            "f.toml:5:10: site[0].origin.health.path: is required",
        ),
        (
            format!("{site}{origin}health = {{ path = \"up\" }}"),
            "f.toml:5:19: site[0].origin.health.path: \"up\" is not a path such as \"/healthz\"",
        ),
        (
            format!("{site}{origin}health = {{ path = \"/\", statuses = [\"399-200\"] }}"),
            "f.toml:5:36: site[0].origin.health.statuses[0]: \"399-200\" is not a status code or",
        ),
        (
            format!("{site}{origin}eject = {{ failures = 2, slow_strat = \"1s\" }}"),
            "f.toml:5:25: site[0].origin.eject.slow_strat: unknown field; did you mean \"slow_start\"",
        ),
        (
            format!("{site}{origin}eject = {{ max_percent = 0 }}"),
            "f.toml:5:25: site[0].origin.eject.max_percent: 0 must be at least 1 and at most 100",
        ),
        (
            format!("{site}{origin}retry = {{ on = [\"500\"] }}"),
            "f.toml:5:17: site[0].origin.retry.on[0]: \"500\" must be one of \"connect\", \"closed\"",
        ),
        (
            format!("{site}{origin}balance = \"random\""),
            "f.toml:5:11: site[0].origin.balance: \"random\" must be one of \"least\", \"hash\", \"first\"",
        ),
    ];
    for (text, expected) in rows {
        let found = errors(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {}", found[0]);
    }
}

#[test]
fn each_mistake_in_the_bounds_of_an_origin_has_one_sentence_with_its_place() {
    let site = "[[site]]\nid = \"a\"\n";
    let origin = "[site.origin]\nurls = [\"https://o\"]\n";
    let rows = [
        (
            format!("{site}{origin}in_flight_max = 2048"),
            "f.toml:5:17: site[0].origin.in_flight_max: 2048 is above `connections_max` (1024)",
        ),
        (
            format!("{site}{origin}budget = {{ }}"),
            "f.toml:5:10: site[0].origin.budget: needs `in_flight` or `rate`, or both",
        ),
        (
            format!("{site}{origin}budget = {{ in_flight = 0 }}"),
            "f.toml:5:24: site[0].origin.budget.in_flight: 0 must be at least 1",
        ),
        (
            format!("{site}{origin}budget = {{ rate = \"fast\" }}"),
            "f.toml:5:19: site[0].origin.budget.rate: \"fast\" is not a rate such as \"50/s\"",
        ),
    ];
    for (text, expected) in rows {
        let found = errors(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {}", found[0]);
    }
}

#[test]
fn each_mistake_in_an_origin_has_one_sentence_with_its_place() {
    let site = "[[site]]\nid = \"a\"\n";
    let origin = "[site.origin]\nurls = [\"https://o\"]\n";
    let rows = [
        (
            format!("{site}origin = \"ftp://o\""),
            "f.toml:3:10: site[0].origin: \"ftp://o\" must begin",
        ),
        (format!("{site}[site.origin]\nurls = []"), "f.toml:4:8: site[0].origin.urls: must name"),
        (
            format!("{site}{origin}client_certificate = \"c.pem\""),
            "f.toml:5:22: site[0].origin.client_certificate: needs `client_key`",
        ),
        (
            format!("{site}{origin}client_key = \"c.key\""),
            "f.toml:5:14: site[0].origin.client_key: needs `client_certificate`",
        ),
        (format!("{site}{origin}ca = \"none.pem\""), "f.toml:5:6: site[0].origin.ca: "),
        (
            format!("{site}origin = \"http://o\"\n[site.breaker]\nwindow_calls = 5"),
            "f.toml:5:16: site[0].breaker.window_calls: 5 is less than `minimum_requests` (10)",
        ),
        (
            format!("{site}origin = \"http://o\"\n[site.breaker]\nfailure_statuses = [42]"),
            "f.toml:5:21: site[0].breaker.failure_statuses[0]: 42 must be at least 100",
        ),
        (
            format!("{site}origin = \"http://o\"\n[site.fallback]\nbody_file = \"none\""),
            "f.toml:5:13: site[0].fallback.body_file: ",
        ),
        (
            format!(
                "{site}origin = \"http://o\"\n[site.fallback]\nbody = \"a\"\nbody_file = \"b\""
            ),
            "f.toml:6:13: site[0].fallback.body_file: cannot be combined with `body`",
        ),
    ];
    for (text, expected) in rows {
        let found = errors(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{expected}: {}", found[0]);
    }
}
