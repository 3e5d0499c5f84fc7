mod origins;

use super::*;
use crate::config::{ListenerRole, Protocol};
use forebay_core::rate::RateLimit;
use forebay_http::CompressSettings;
use forebay_http::OriginProtocols;
use forebay_redis::{EndpointSettings, Login, Servers};
use forebay_semantics::coding::media_types::{MediaTypePattern, MediaTypes};
use forebay_semantics::coding::{Coding, Codings};

const SITE: &str = "[[site]]\nid = \"a\"\norigin = \"http://o\"\n";

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\n";

/// Resolves a file with this text; the error text lacks the folder's name.
fn with(text: &str, overrides: &Overrides) -> Result<ResolvedConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("token"), " s3cret\n").unwrap();
    std::fs::write(folder.path().join("blank"), " \n").unwrap();
    std::fs::write(folder.path().join("words"), "two words").unwrap();
    std::fs::write(folder.path().join("cert.pem"), CERTIFICATE).unwrap();
    std::fs::write(folder.path().join("key.pem"), KEY).unwrap();
    std::fs::write(folder.path().join("huge"), "x".repeat(5000)).unwrap();
    let prefix = format!("{}/", folder.path().display());
    ResolvedConfig::load(Some(&path), overrides)
        .map_err(|error| error.to_string().replace(&prefix, ""))
}

fn resolved(text: &str) -> ResolvedConfig {
    with(text, &Overrides::default()).unwrap()
}

fn errors(text: &str) -> Vec<String> {
    let errors = with(text, &Overrides::default()).unwrap_err();
    errors.lines().map(str::to_owned).collect()
}

fn addresses(config: &ResolvedConfig) -> Vec<String> {
    config.listeners.iter().map(|listener| listener.address.to_string()).collect()
}

fn flag(set: impl FnOnce(&mut Overrides, String), value: &str) -> Overrides {
    let mut overrides = Overrides::default();
    set(&mut overrides, value.to_owned());
    overrides
}

#[test]
fn an_origin_alone_is_a_complete_configuration() {
    let overrides = flag(|o, v| o.origin = Some(v), "http://127.0.0.1:3000");
    let config = ResolvedConfig::load(None, &overrides).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.1:8080"]);
    assert_eq!(config.admin, "127.0.0.1:8081".parse().unwrap());
    assert_eq!(config.admin_token, None);
    assert_eq!(config.redis, None);
    assert!(config.threads >= 1);
    assert_eq!((config.log, config.access.format), (Level::INFO, AccessLog::Off));
    assert_eq!(
        config.memory,
        ResolvedMemory { size: 256 << 20, object_max: 16 << 20, in_flight_max: 64 << 20 }
    );
    let [site] = config.sites.as_slice() else { panic!("{config:?}") };
    assert_eq!(site.id, "default");
    assert!(site.hosts.is_empty() && site.prefix.is_none() && site.ignore_query.is_empty());
    assert!(site.coalesce && !site.sort_query && !site.store_set_cookie && !site.expose_errors);
    assert!(!site.share_codings && !site.early_hints && !site.no_vary_search);
    assert!(!site.heuristics_with_cookie && !site.server_timing);
    assert!(site.cache_methods.is_empty() && site.cache_groups.is_none());
    assert_eq!(site.fetch_timeout, Duration::from_secs(30));
    assert_eq!(site.default_ttl, Duration::ZERO);
    assert_eq!(site.origin.endpoints[0].url.address().label(), "127.0.0.1:3000");
    assert_eq!((site.origin.endpoints[0].url.is_tls(), site.origin.host.as_deref()), (false, None));
    assert_eq!(site.origin.connections_max, 1024);
    assert_eq!(site.origin.keep_alive, Duration::from_secs(60));
    assert_eq!((site.origin.fields_max, site.origin.head_max), (256, 256 << 10));
}

#[test]
fn every_option_reaches_the_resolved_configuration() {
    let config = resolved(
        r#"
        listen = ["127.0.0.1:1", "[::1]:2"]
        admin = "0.0.0.0:3"
        admin_token_file = "token"
        threads = 7
        log = "debug"
        access_log = "json"
        [memory]
        size = "8MiB"
        object_max = "1MiB"
        in_flight_max = "3MiB"
        [[site]]
        id = "shop"
        hosts = ["shop.example", "*.shop.example"]
        prefix = "/shop"
        fetch_timeout = "2s"
        origin_fields_max = 300
        origin_head_max = "1MiB"
        default_ttl = "1h30m"
        negative_ttl = "5s"
        variants_max = 7
        ignore_query = ["utm_*"]
        sort_query = true
        coalesce = false
        store_set_cookie = true
        share_codings = true
        heuristics_with_cookie = true
        cache_methods = ["QUERY", "POST", "QUERY"]
        cache_body_max = "2KiB"
        cache_groups = true
        cache_groups_max = 32
        cache_group_length_max = 40
        early_hints = true
        no_vary_search = true
        expose_errors = true
        server_timing = true
        [site.origin]
        urls = ["http://o"]
        host = "shop.internal"
        connections_max = 5
        keep_alive = "0s"
        "#,
    );
    assert_eq!(config.listeners.len(), 2);
    assert_eq!(config.admin_token.as_deref(), Some("s3cret"));
    assert_eq!(
        (config.threads, config.log, config.access.format),
        (7, Level::DEBUG, AccessLog::Json)
    );
    assert_eq!(
        config.memory,
        ResolvedMemory { size: 8 << 20, object_max: 1 << 20, in_flight_max: 3 << 20 }
    );
    let site = &config.sites[0];
    assert_eq!(site.hosts[1], HostPattern::Below("shop.example".into()));
    assert_eq!(site.prefix.as_deref(), Some("/shop"));
    let query = Method::from_bytes(b"QUERY").unwrap();
    assert_eq!((&site.cache_methods, site.cache_body_max), (&vec![Method::POST, query], 2 << 10));
    assert_eq!(site.cache_groups, Some(GroupLimits { count: 32, length: 40 }));
    assert_eq!([site.fetch_timeout, site.default_ttl].map(|it| it.as_secs()), [2, 5400]);
    assert_eq!((site.negative_ttl, site.variants_max), (Duration::from_secs(5), 7));
    assert_eq!(site.ignore_query, ["utm_*"]);
    assert!(!site.coalesce && site.sort_query && site.store_set_cookie && site.expose_errors);
    assert!(site.share_codings && site.early_hints && site.no_vary_search);
    assert!(site.heuristics_with_cookie && site.server_timing);
    assert_eq!(site.origin.endpoints[0].url.address().label(), "o:80");
    assert_eq!(site.origin.host.as_deref(), Some("shop.internal"));
    assert_eq!((site.origin.connections_max, site.origin.keep_alive), (5, Duration::ZERO));
    assert_eq!((site.origin.fields_max, site.origin.head_max), (300, 1 << 20));
}

#[test]
fn flags_override_the_file() {
    let text = format!("listen = \"127.0.0.1:1\"\n[memory]\nobject_max = \"1MiB\"\n{SITE}");
    let overrides = Overrides {
        listen: Some("127.0.0.1:5,[::1]:5".into()),
        admin: Some("127.0.0.1:6".into()),
        origin: Some("http://other:1".into()),
        memory: Some("4MiB".into()),
        redis: Some("redis://other".into()),
        disk: Some("kept".into()),
        disk_size: Some("64MiB".into()),
        ..Overrides::default()
    };
    let config = with(&text, &overrides).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.1:5", "[::1]:5"]);
    assert_eq!(config.admin.port(), 6);
    let disk = ResolvedDisk { path: "kept".into(), size: 64 << 20, object_max: 16 << 20 };
    assert_eq!(config.disk, Some(disk));
    assert_eq!((config.memory.size, config.memory.in_flight_max), (4 << 20, 1 << 20));
    assert_eq!(
        (config.sites[0].id.as_str(), &*config.sites[0].origin.endpoints[0].url.address().label()),
        ("a", "other:1")
    );
    assert_eq!(config.redis.unwrap().nearest.servers, Servers::Single("redis://other".into()));
    // A flag that replaces the URL leaves the table's other options in effect.
    let table = "[[site]]\nid = \"a\"\n[site.origin]\nurls = [\"http://o\"]\nconnections_max = 3\n";
    let overrides = flag(|o, v| o.origin = Some(v), "http://other:1");
    let origin = with(table, &overrides).unwrap().sites.remove(0).origin;
    assert_eq!(
        (&*origin.endpoints[0].url.address().label(), origin.connections_max),
        ("other:1", 3)
    );
}

#[test]
fn a_disk_tier_needs_a_path_and_has_default_limits() {
    let disk = |text: &str| {
        with(&format!("[disk]\n{text}\n{SITE}"), &Overrides::default()).map(|config| config.disk)
    };
    assert_eq!(disk("").unwrap(), None);
    let kept = disk("path = \"kept\"").unwrap().unwrap();
    assert!(kept.path.ends_with("kept") && kept.path != Path::new("kept"), "{kept:?}");
    assert_eq!((kept.size, kept.object_max), (10 << 30, 1 << 30));
    for (text, says) in [
        ("size = \"1GiB\"", "disk.size: there is no disk tier"),
        ("path = \"a\"\nsize = \"1MiB\"", "must be at least \"16MiB\""),
        ("path = \"a\"\nobject_max = \"6GiB\"", "disk.object_max: must be at most half"),
    ] {
        let refused = disk(text).unwrap_err().to_string();
        assert!(refused.contains(says), "{text}: {refused}");
    }
}

#[test]
fn a_bad_flag_is_named() {
    let overrides = Overrides {
        listen: Some("8080".into()),
        admin: Some("x".into()),
        origin: Some("ftp://o".into()),
        memory: Some("64".into()),
        redis: Some("hidden".into()),
        disk: Some(String::new()),
        disk_size: Some("1MiB".into()),
        ..Overrides::default()
    };
    let errors = ResolvedConfig::load(None, &overrides).unwrap_err();
    let lines: Vec<String> = errors.lines().collect();
    assert_eq!(lines.len(), 7, "{errors}");
    let redis = lines.iter().find(|line| line.starts_with("--redis: is not a URL such")).unwrap();
    assert!(!redis.contains("hidden"), "{redis}");
    assert!(lines.contains(&"--memory: \"64\" needs a unit, such as \"64MiB\"".to_owned()));
    assert!(lines.iter().any(|line| line.starts_with("--listen: \"8080\" is not an address")));
    assert!(lines.iter().any(|line| line.starts_with("--admin: \"x\" is not an address")));
    assert!(lines.iter().any(|line| line.starts_with("--origin: \"ftp://o\" must begin with")));
    let two = format!("{SITE}[[site]]\nid = \"b\"\nprefix = \"/b\"\norigin = \"http://o\"\n");
    let overrides = flag(|o, v| o.origin = Some(v), "http://other");
    assert_eq!(
        with(&two, &overrides).unwrap_err(),
        "--origin: the flag sets the origin of a single site, but the file has 2 sites; set `origin` in each [[site]] instead"
    );
}

#[test]
fn a_configuration_has_sites_and_each_has_an_id_and_an_origin() {
    let none = ResolvedConfig::load(None, &Overrides::default()).unwrap_err().to_string();
    assert!(none.starts_with("site: at least one [[site]]") && none.contains("--origin"), "{none}");
    assert!(errors("")[0].starts_with("f.toml:1:1: site: at least one [[site]]"));
    let bare = errors("\n[[site]]\n");
    assert_eq!(
        bare,
        ["f.toml:2:1: site[0].id: is required", "f.toml:2:1: site[0].origin: is required"]
    );
    let table = errors("[[site]]\nid = \"a\"\n[site.origin]\nhost = \"h\"\n");
    assert_eq!(table, ["f.toml:3:1: site[0].origin.urls: is required"]);
    // A site of the wrong type is one error, not two.
    assert_eq!(errors("site = 1").len(), 1);
    // A line that the parser could not read is one error, and later errors are still found.
    let broken = errors("listen = \nthreads = \"x\"\n[[site]]\nid = \norigin = 1\n");
    let places = ["f.toml:1:", "f.toml:2:", "f.toml:4:", "f.toml:5:"];
    assert_eq!(broken.len(), places.len(), "{broken:?}");
    for (line, place) in broken.iter().zip(places) {
        assert!(line.starts_with(place), "{broken:?}");
    }
    // Options in a part that the parser lost are not reported as absent.
    let lost = errors("= 1\n");
    assert!(!lost.iter().any(|line| line.contains("required")), "{lost:?}");
}

#[test]
fn sites_with_equal_ids_or_equal_host_and_prefix_are_refused() {
    let twice = errors(
        "[[site]]\nid = \"a\"\nhosts = [\"x\", \"y\"]\norigin = \"http://o\"\n\
         [[site]]\nid = \"a\"\nhosts = [\"z\", \"Y\"]\norigin = \"http://o\"\n",
    );
    assert_eq!(
        twice,
        [
            "f.toml:6:6: site[1].id: \"a\" is already the id of site[0]",
            "f.toml:7:15: site[1].hosts[1]: \"y\" already belongs to site[0]",
        ]
    );
    let everything = errors(&format!("{SITE}[[site]]\nid = \"b\"\norigin = \"http://o\"\n"));
    assert_eq!(everything, ["f.toml:4:1: site[1]: every host already belongs to site[0]"]);
    let below = "hosts = [\"x\"]\nprefix = \"/p\"\norigin = \"http://o\"\n";
    let same = errors(&format!("[[site]]\nid = \"a\"\n{below}[[site]]\nid = \"b\"\n{below}"));
    assert_eq!(
        same,
        ["f.toml:8:10: site[1].hosts[0]: \"x\" with prefix \"/p\" already belongs to site[0]"]
    );
    // A host and its subdomains are different, and so are two prefixes of one host.
    let text = "[[site]]\nid = \"a\"\nhosts = [\"x.y\"]\norigin = \"http://o\"\n\
                [[site]]\nid = \"b\"\nhosts = [\"*.x.y\"]\norigin = \"http://o\"\n\
                [[site]]\nid = \"c\"\nhosts = [\"x.y\"]\nprefix = \"/p\"\norigin = \"http://o\"\n";
    assert_eq!(resolved(text).sites.len(), 3);
}

#[test]
fn values_have_bounds() {
    let text = format!(
        "threads = 1025\n[memory]\nsize = \"1KiB\"\n{SITE}fetch_timeout = \"0s\"\n\
         default_ttl = \"366d\"\n"
    );
    let errors = errors(&text);
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert_eq!(errors[0], "f.toml:1:11: threads: 1025 must be at least 0 and at most 1024");
    assert_eq!(
        errors[1],
        "f.toml:3:8: memory.size: \"1KiB\" must be at least \"16KiB\" and at most \"16TiB\""
    );
    assert!(errors[2].contains("site[0].fetch_timeout: \"0s\" must be at least \"1ms\""));
    assert!(errors[3].contains("site[0].default_ttl: \"366d\" must be"));
}

#[test]
fn an_object_limit_above_the_memory_size_is_refused() {
    let text = format!("[memory]\nsize = \"8MiB\"\nobject_max = \"9MiB\"\n{SITE}");
    assert_eq!(
        errors(&text),
        ["f.toml:3:14: memory.object_max: must be at most the size of the memory tier, \"8MiB\""]
    );
    // The default limit of one object is lowered to the memory size.
    assert_eq!(resolved(&format!("[memory]\nsize = \"8MiB\"\n{SITE}")).memory.object_max, 8 << 20);
}

#[test]
fn an_admin_listener_off_the_loopback_needs_a_token() {
    let open = errors(&format!("admin = \"0.0.0.0:9\"\n{SITE}"));
    assert_eq!(open.len(), 1);
    assert!(open[0].starts_with("f.toml:1:9: admin: 0.0.0.0:9 is not a loopback address"));
    assert!(open[0].ends_with("set `admin_token_file`"));
    for (file, reason) in [
        ("missing", "cannot be read"),
        ("blank", "is empty"),
        ("words", "one word of visible ASCII"),
        ("huge", "larger than 4096 bytes"),
    ] {
        let errors = errors(&format!("admin_token_file = \"{file}\"\n{SITE}"));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("f.toml:1:20: admin_token_file: "), "{errors:?}");
        assert!(errors[0].contains(reason), "{errors:?}");
    }
    assert!(resolved(&format!("admin = \"[::1]:9\"\n{SITE}")).admin_token.is_none());
}

#[test]
fn listen_and_admin_addresses_must_differ() {
    let same = errors(&format!("listen = \"127.0.0.1:9\"\nadmin = \"127.0.0.1:9\"\n{SITE}"));
    assert!(
        same[0].starts_with("f.toml:2:9: admin: 127.0.0.1:9 is already in `listen`"),
        "{same:?}"
    );
    let wild = errors(&format!("listen = \"0.0.0.0:8081\"\n{SITE}"));
    assert!(
        wild[0].starts_with("f.toml:1:10: listen: contains the address of the admin"),
        "{wild:?}"
    );
    let twice = errors(&format!("listen = [\"127.0.0.1:9\", \"127.0.0.1:9\"]\n{SITE}"));
    assert!(twice[0].contains("listen: names 127.0.0.1:9 twice"), "{twice:?}");
    assert!(errors(&format!("listen = []\n{SITE}"))[0].contains("at least one address"));
    // Port 0 takes a different free port for each listener.
    let free = "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n";
    assert_eq!(resolved(&format!("{free}{SITE}")).listeners.len(), 2);
}

#[test]
fn an_unreadable_or_oversized_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    let load = || ResolvedConfig::load(Some(&path), &Overrides::default()).unwrap_err().to_string();
    assert!(load().contains("cannot be read"), "{}", load());
    std::fs::write(&path, b"log = \"\xff\"").unwrap();
    assert!(load().ends_with("f.toml: is not UTF-8 text (byte 7)"), "{}", load());
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(load().contains("larger than 1048576 bytes"), "{}", load());
}

#[test]
fn every_option_of_redis_reaches_the_resolved_configuration() {
    let text = format!(
        r#"
        [redis]
        url = "rediss://near:1"
        namespace = "eu"
        read_timeout = "20ms"
        write_timeout = "40ms"
        object_max = "2MiB"
        user = "cache"
        password_file = "token"
        ca = "cert.pem"
        client_certificate = "cert.pem"
        client_key = "key.pem"
        [[redis.fallback]]
        url = "redis://far"
        read_timeout = "250ms"
        [[redis.fallback]]
        url = "redis://me:x@farther"
        {SITE}"#
    );
    let redis = resolved(&text).redis.unwrap();
    assert_eq!((redis.namespace.as_str(), redis.object_max), ("eu", 2 << 20));
    let nearest = &redis.nearest;
    assert_eq!(nearest.servers, Servers::Single("rediss://near:1".into()));
    assert_eq!(
        nearest.login,
        Some(Login { user: Some("cache".into()), password: "s3cret".into() })
    );
    assert_eq!(nearest.tls.authority.as_deref(), Some(CERTIFICATE.as_bytes()));
    assert_eq!(nearest.tls.client, Some((CERTIFICATE.into(), KEY.into())));
    let times = |one: &EndpointSettings| (one.read_timeout, one.write_timeout);
    let ms = Duration::from_millis;
    assert_eq!(times(nearest), (ms(20), ms(40)));
    assert_eq!(
        redis.fallback.iter().map(times).collect::<Vec<_>>(),
        [(ms(250), ms(40)), (ms(20), ms(40))]
    );
    assert!(redis.fallback.iter().all(|one| one.login.is_none()), "credentials are not inherited");
    assert_eq!(redis.shown, ["rediss://near:1", "redis://far:6379", "redis://farther:6379"]);
}

#[test]
fn a_cluster_or_sentinels_can_replace_a_url() {
    let of = |text: &str, overrides: &Overrides| {
        with(&format!("[redis]\n{text}\n{SITE}"), overrides).unwrap().redis.unwrap()
    };
    let file = Overrides::default();
    let cluster = of("cluster = [\"redis://a\", \"redis://b\"]", &file);
    let nodes = || vec!["redis://a".to_owned(), "redis://b".to_owned()];
    assert_eq!(cluster.nearest.servers, Servers::Cluster(nodes()));
    let text = "sentinel = { master = \"main\", nodes = [\"redis://a\", \"redis://b\"] }";
    let sentinel = of(text, &file).nearest.servers;
    assert_eq!(sentinel, Servers::Sentinel { master: "main".into(), nodes: nodes() });
    // A flag replaces either.
    let flag = flag(|o, v| o.redis = Some(v), "redis://c");
    for text in ["cluster = [\"redis://a\"]", text] {
        assert_eq!(of(text, &flag).nearest.servers, Servers::Single("redis://c".into()));
    }
}

#[test]
fn errors_in_redis_options_have_their_positions_and_contain_no_secrets() {
    let text = format!(
        "[redis]\nurl = \"redis://:hidden@h/x\"\ncluster = []\nnamespace = \"a b\"\n\
         read_timeout = 50\nuser = \"me\"\nclient_key = \"cert.pem\"\nca = \"missing\"\n\
         namespase = \"x\"\nwhen_blind = \"deaf\"\n\
         fallback = [{{ url = \"redis://f\", password_file = \"blank\" }}, {{ uri = 1 }}, 2]\n\
         sentinel = {{ master = \"\", knots = [] }}\n{SITE}"
    );
    let errors = errors(&text);
    let expected = [
        "f.toml:2:7: redis.url: is not a URL such as \"redis://127.0.0.1:6379\": ",
        "f.toml:3:11: redis.cluster: must name 1 to 64 servers",
        "f.toml:3:11: redis.cluster: cannot be used together with `url`; remove one of them",
        "f.toml:4:13: redis.namespace: Redis namespace `a b` is invalid: expected 1 to 64",
        "f.toml:5:16: redis.read_timeout: 50 needs a unit, such as \"250ms\"",
        "f.toml:6:8: redis.user: requires `password_file` as well",
        "f.toml:7:14: redis.client_key: names a file without a section \"-----BEGIN PRIV",
        "f.toml:7:14: redis.client_key: requires `client_certificate` as well",
        "f.toml:8:6: redis.ca: missing cannot be read: ",
        "f.toml:9:1: redis.namespase: unknown field; did you mean \"namespace\"?",
        "f.toml:10:14: redis.when_blind: \"deaf\" ",
        "f.toml:11:50: redis.fallback[0].password_file: names a file that is empty",
        "f.toml:11:61: redis.fallback[1].url: is required",
        "f.toml:11:63: redis.fallback[1].uri: unknown field; did you mean \"url\"?",
        "f.toml:11:74: redis.fallback[2]: must be a table, such as { url = ",
        "f.toml:12:12: redis.sentinel.nodes: is required",
        "f.toml:12:12: redis.sentinel: cannot be used together with `url` or `cluster`",
        "f.toml:12:23: redis.sentinel.master: must not be empty",
        "f.toml:12:27: redis.sentinel.knots: unknown field; the fields of [redis.sentinel] are",
    ];
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with(expected), "{error}\ninstead of {expected}\n{errors:#?}");
        assert!(!error.contains("hidden"), "{error}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
}

#[test]
fn redis_without_a_server_is_refused() {
    assert_eq!(
        errors(&format!("[redis]\n{SITE}")),
        ["f.toml:1:1: redis: names no server; set `url`, `cluster` or `sentinel`"]
    );
    assert_eq!(
        errors(&format!("redis = \"redis://h\"\n{SITE}")),
        ["f.toml:1:9: redis: must be a table; write [redis] above its fields"]
    );
    let many = "{ url = \"redis://h\" },".repeat(9);
    let many = errors(&format!("[redis]\nurl = \"redis://h\"\nfallback = [{many}]\n{SITE}"));
    assert_eq!(many, ["f.toml:1:1: redis.fallback: has more than 8 servers, the maximum"]);
}

#[test]
fn listeners_have_unique_addresses_and_replace_the_default_one() {
    let listener = |address: &str| format!("[[listener]]\naddress = \"{address}\"\n");
    let both = [listener("unix:/run/f.sock"), listener("127.0.0.1:0"), listener("127.0.0.1:0")];
    let config = resolved(&format!("{}{SITE}", both.concat()));
    assert_eq!(addresses(&config), ["unix:/run/f.sock", "127.0.0.1:0", "127.0.0.1:0"]);
    let beside = format!("listen = \"[::1]:5\"\n{}{SITE}", listener("127.0.0.1:5"));
    assert_eq!(addresses(&resolved(&beside)), ["[::1]:5", "127.0.0.1:5"]);
    let rows = [
        (
            "8080".to_owned(),
            "f.toml:2:11: listener[0].address: \"8080\" is not an address; write an \
          IP address and a port, such as \"0.0.0.0:8080\", or \"unix:\" and a path",
        ),
        (
            "unix:f.sock".to_owned(),
            "f.toml:2:11: listener[0].address: \"unix:f.sock\" must have an \
          absolute path, such as \"unix:/run/forebay/http.sock\"",
        ),
        (format!("unix:/{}", "x".repeat(107)), "has a path of more than 107 bytes"),
    ];
    for (address, expected) in rows {
        let found = errors(&format!("{}{SITE}", listener(&address)));
        assert!(found[0].contains(expected), "{found:?}");
    }
    let twice = listener("127.0.0.1:5").repeat(2);
    let expected = "f.toml:4:11: listener[1].address: \"127.0.0.1:5\" is the address of \
        another listener; remove one";
    assert_eq!(errors(&format!("{twice}{SITE}")), [expected]);
    let admin = format!("{}{SITE}", listener("127.0.0.1:8081"));
    let expected = "contains the address of the admin listener, 127.0.0.1:8081; use another one";
    assert!(errors(&admin)[0].ends_with(expected), "{:?}", errors(&admin));
    assert_eq!(
        errors(&format!("listen = []\n{SITE}")),
        ["f.toml:1:10: listen: must name at least one address"]
    );
    let shape = "f.toml:1:1: listener: must be a list of tables; write [[listener]] above each \
                 one's fields";
    assert_eq!(errors(&format!("[listener]\n{SITE}")), [shape]);
}

#[test]
fn the_proxy_protocol_needs_trusted_proxies() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:5\"\nproxy_protocol = \"required\"\n";
    let expected = "f.toml:3:18: listener[0].proxy_protocol: needs `trusted_proxies`: the proxies \
                    that may send the header";
    assert_eq!(errors(&format!("{listener}{SITE}")), [expected]);
    let trusting = format!("trusted_proxies = [\"loopback\"]\n{listener}{SITE}");
    assert!(resolved(&trusting).listeners[0].proxy_protocol);
}

#[test]
fn trusted_proxies_are_networks() {
    let config = resolved(&format!(
        "trusted_proxies = [\"10.0.0.0/8\", \"192.0.2.1\", \"unix\"]\n\
         client_address_from = \"CF-Connecting-IP\"\n{SITE}"
    ));
    assert_eq!(config.trust.proxies.to_string(), "10.0.0.0/8, 192.0.2.1/32, unix");
    assert_eq!(config.trust.field.name(), "cf-connecting-ip");
    let wrong = format!(
        "trusted_proxies = [\"10.0.0.0/8\", \"10.0.0.1/8\"]\nclient_address_from = \"a b\"\n{SITE}"
    );
    let expected = [
        "f.toml:1:34: trusted_proxies[1]: \"10.0.0.1/8\" has bits set after the prefix length; \
         write \"10.0.0.0/8\" for the network, or \"10.0.0.1\" for the address",
        "f.toml:2:23: client_address_from: \"a b\" is not the name of a header field such as \
         \"x-forwarded-for\", \"forwarded\" or \"cf-connecting-ip\"",
    ];
    assert_eq!(errors(&wrong), expected);
}

/// Writes a certificate for `a.example` and its key, another key, and an expired certificate.
fn with_certificates(text: &str) -> Result<ResolvedConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    write("a.pem", &params.self_signed(&key).unwrap().pem());
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    write("old.pem", &params.self_signed(&key).unwrap().pem());
    write("a.key", &key.serialize_pem());
    write("b.key", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    write("f.toml", text);
    let prefix = format!("{}/", folder.path().display());
    ResolvedConfig::load(Some(&folder.path().join("f.toml")), &Overrides::default())
        .map_err(|error| error.to_string().replace(&prefix, ""))
}

#[test]
fn mistakes_in_tls_are_one_sentence_each_with_their_position() {
    let pair = "certificate = \"a.pem\"\nkey = \"a.key\"\n";
    let tls = |body: &str| format!("[tls]\n{body}{SITE}");
    let valid = with_certificates(&tls(&format!("listen = \"127.0.0.1:5\"\n{pair}"))).unwrap();
    assert!(!valid.listeners[0].tls && valid.listeners[1].tls);
    let hosts = "hosts = [\"a.example\", \"b.example\"]\n";
    let rows = [
        (
            tls("certificate = \"a.pem\"\n"),
            "f.toml:2:15: tls.certificate: needs `key`: the file with the private key of this \
             certificate",
        ),
        (
            tls("key = \"a.key\"\n"),
            "f.toml:2:7: tls.key: needs `certificate`: the file with the certificate of this key",
        ),
        (
            tls("certificate = \"a.pem\"\nkey = \"b.key\"\n"),
            "f.toml:3:7: tls.key: b.key does not belong to the certificate a.pem",
        ),
        (
            tls("certificate = \"old.pem\"\nkey = \"a.key\"\n"),
            "f.toml:2:15: tls.certificate: old.pem expired ",
        ),
        (
            tls("certificate = \"none.pem\"\nkey = \"a.key\"\n"),
            "f.toml:2:15: tls.certificate: none.pem cannot be read: No such file",
        ),
        (
            tls("certificates = [{ certificate = \"a.pem\", key = \"b.key\" }]\n"),
            "f.toml:2:48: tls.certificates[0].key: b.key does not belong to the certificate a.pem",
        ),
        (
            tls(""),
            "f.toml:1:1: tls: needs a certificate: `certificate` and `key`, `certificates`, or [tls.acme]",
        ),
        (
            tls(&format!("{pair}min_version = \"1.1\"\n")),
            "f.toml:4:15: tls.min_version: \"1.1\" must be one of \"1.2\", \"1.3\"",
        ),
        (
            tls(&format!("listen = \"127.0.0.1:5\"\nunknown_name = \"refuse\"\n{pair}")) + hosts,
            "f.toml:9:9: site[0].hosts: no certificate of [tls] has the name \"b.example\", and \
             `unknown_name` is \"refuse\": add a certificate",
        ),
        (
            format!("{SITE}hsts = \"yes\"\n"),
            "f.toml:4:8: site[0].hsts: \"yes\" must contain max-age, such as \"max-age=31536000\"",
        ),
    ];
    assert_errors(&rows);
}

/// Asserts that each text has one error, which begins as expected.
fn assert_errors(rows: &[(String, &str)]) {
    for (text, expected) in rows {
        let found = with_certificates(text).unwrap_err();
        assert_eq!(found.lines().count(), 1, "{found}");
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn mistakes_in_listeners_are_one_sentence_each_with_their_position() {
    let pair = "certificate = \"a.pem\"\nkey = \"a.key\"\n";
    let listener =
        |body: &str| format!("[tls]\n{pair}[[listener]]\naddress = \"127.0.0.1:5\"\n{body}{SITE}");
    let rows = [
        (
            listener("role = \"proxy\"\n"),
            "f.toml:6:8: listener[0].role: \"proxy\" must be one of \"serve\", \"redirect\"",
        ),
        (
            listener("role = \"redirect\"\ntls = true\n"),
            "f.toml:6:8: listener[0].role: \"redirect\" is for connections without TLS; remove \
             `tls`",
        ),
        (
            listener("client_certificates = \"required\"\n"),
            "f.toml:6:23: listener[0].client_certificates: needs `tls = true`",
        ),
        (
            listener("tls = true\nclient_certificates = \"required\"\n"),
            "f.toml:7:23: listener[0].client_certificates: needs `client_ca` in [tls]",
        ),
        (listener("sites = [\"b\"]\n"), "f.toml:6:9: listener[0].sites: no site has the id \"b\""),
        (
            format!("[[listener]]\naddress = \"127.0.0.1:5\"\ntls = true\n{SITE}"),
            "f.toml:3:7: listener[0].tls: needs a [tls] table with a certificate",
        ),
    ];
    assert_errors(&rows);
}

#[test]
fn a_domain_is_a_complete_https_cache() {
    let overrides = Overrides {
        origin: Some("http://127.0.0.1:3000".into()),
        domain: Some("shop.example, WWW.shop.example".into()),
        agree_to_terms: true,
        ..Overrides::default()
    };
    let config = ResolvedConfig::load(None, &overrides).unwrap();
    let listeners = addresses(&config);
    assert_eq!(listeners[..2], ["0.0.0.0:443", "0.0.0.0:80"]);
    assert!(listeners[2..] == ["[::]:443", "[::]:80"] || listeners.len() == 2, "{listeners:?}");
    assert!(config.listeners[0].tls && config.listeners[0].protocols.contains(&Protocol::H2));
    assert_eq!(config.listeners[1].role, ListenerRole::Redirect);
    let acme = config.tls.unwrap().acme.unwrap();
    assert_eq!(acme.names, ["shop.example", "www.shop.example"]);
    assert_eq!(acme.directory, forebay_tls::acme::LETS_ENCRYPT);
    assert!(acme.storage.ends_with("acme"), "{:?}", acme.storage);
    assert_eq!(config.sites[0].hosts.len(), 2);
    // Other addresses that the operator names are not replaced.
    let overrides = Overrides { listen: Some("127.0.0.1:1".into()), ..overrides };
    let config = ResolvedConfig::load(None, &overrides).unwrap();
    assert_eq!(addresses(&config), ["127.0.0.1:1"]);
}

#[test]
fn terms_are_agreed_to_by_the_operator_alone() {
    let mut overrides = flag(|o, v| o.domain = Some(v), "shop.example");
    overrides.origin = Some("http://127.0.0.1:3000".into());
    let error = ResolvedConfig::load(None, &overrides).unwrap_err().to_string();
    let expected = "--domain: automatic certificates need your agreement to the terms of service of \
                    Let's Encrypt (https://letsencrypt.org/repository/): add --agree-to-terms";
    assert!(error.starts_with(expected), "{error}");
    let alone = Overrides {
        origin: overrides.origin.clone(),
        agree_to_terms: true,
        ..Overrides::default()
    };
    let error = ResolvedConfig::load(None, &alone).unwrap_err().to_string();
    assert!(error.starts_with("--agree-to-terms: has no effect without --domain"), "{error}");
    let error = errors(&format!("[tls.acme]\nnames = [\"a.example\"]\n{SITE}"));
    assert!(error[0].starts_with("f.toml:1:1: tls.acme.agree_to_terms: automatic"), "{error:?}");
    let other = "[tls.acme]\nnames = [\"a.example\"]\ndirectory = \"https://ca.internal/d\"\n";
    let error = errors(&format!("{other}{SITE}"));
    assert!(error[0].contains("the certificate authority at https://ca.internal/d"), "{error:?}");
}

#[test]
fn each_mistake_in_automatic_certificates_is_one_sentence_with_its_place() {
    let rows = [
        ("names = [\"*.a.example\"]", "3:10: tls.acme.names[0]: \"*.a.example\" is a wildcard"),
        ("names = [\"10.0.0.1\"]", "3:10: tls.acme.names[0]: \"10.0.0.1\" is an address"),
        ("contact = [\"ops\"]", "3:12: tls.acme.contact[0]: \"ops\" is not a URL"),
        ("directory = \"http://x/\"", "3:13: tls.acme.directory: \"http://x/\" is not a URL"),
        ("challenges = []", "3:14: tls.acme.challenges: must name at least one"),
        ("challenges = [\"dns-01\"]", "3:15: tls.acme.challenges[0]: \"dns-01\" must be one of"),
        ("ca = \"none.pem\"", "3:6: tls.acme.ca: none.pem cannot be read"),
        (
            "external_account = { id = \"a\" }",
            "tls.acme.external_account.hmac_key_file: is required",
        ),
        ("storag = \"x\"", "3:1: tls.acme.storag: unknown field; did you mean \"storage\"?"),
        ("", "1:1: tls.acme.names: no name to get a certificate for"),
    ];
    for (line, expected) in rows {
        let found = errors(&format!("[tls.acme]\nagree_to_terms = true\n{line}\n{SITE}"));
        assert!(found.iter().any(|error| error.contains(expected)), "{found:?}: {expected}");
    }
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    for (text, is_valid) in
        [("c2VjcmV0_-8=", true), ("c2VjcmV0\n", true), ("a b", false), ("", false)]
    {
        std::fs::write(&key, text).unwrap();
        let account = format!("external_account = {{ id = \"a\", hmac_key_file = {key:?} }}");
        let text = format!(
            "[tls.acme]\nagree_to_terms = true\nnames = [\"a.example\"]\n{account}\n{SITE}"
        );
        assert_eq!(with(&text, &Overrides::default()).is_ok(), is_valid, "{text:?}");
    }
}

#[test]
fn names_of_sites_get_certificates() {
    let text = "[tls.acme]\nagree_to_terms = true\n[tls]\nunknown_name = \"refuse\"\n\
                listen = \"127.0.0.1:1\"\n[[site]]\nid = \"a\"\norigin = \"http://o\"\n\
                hosts = [\"b.example\", \"A.example\", \"*.c.example\", \"127.0.0.1\", \"[::1]\"]\n";
    // An address has no certificate, which `refuse` reports.
    let refused = errors(text);
    assert!(refused.iter().all(|error| error.contains("127.0.0.1") || error.contains("[::1]")));
    let tls = resolved(&text.replace("refuse", "first")).tls.unwrap();
    assert_eq!(tls.acme.unwrap().names, ["a.example", "b.example"]);
    assert_eq!(tls.certificates.managed.len(), 2);
}

#[test]
fn a_rate_limit_has_a_rate_and_a_burst() {
    let limit = |lines: &str| {
        let text = format!("{SITE}[site.rate_limit]\n{lines}\n");
        with(&text, &Overrides::default()).map(|config| config.sites[0].rate_limit)
    };
    let of = |requests, seconds, burst, exempts_hits| {
        let limit = RateLimit::new(requests, Duration::from_secs(seconds), burst);
        Some(RateLimitSettings { limit, exempts_hits })
    };
    assert_eq!(limit("requests = \"50/s\"").unwrap(), of(50, 1, 50, false));
    let all = "requests = \"600/m\"\nburst = 100\nby = \"address\"\nexempt_hits = true";
    assert_eq!(limit(all).unwrap(), of(600, 60, 100, true));
    assert_eq!(resolved(SITE).sites[0].rate_limit, None);
    for (lines, expected) in [
        ("", "site[0].rate_limit.requests: is required"),
        ("requests = \"50\"", "\"50\" is not a rate such as \"50/s\""),
        ("requests = \"0/s\"", "\"0/s\" is not a rate"),
        ("requests = \"1/d\"", "\"1/d\" is not a rate"),
        ("requests = 50", "must be a string, not an integer"),
        ("requests = \"1/s\"\nburst = 0", "0 must be at least 1 and at most 1000000"),
        ("requests = \"1/s\"\nby = \"cookie\"", "\"cookie\" must be one of \"address\""),
    ] {
        let refused = limit(lines).unwrap_err();
        assert!(refused.contains(expected), "{lines}: {refused}");
    }
}

#[test]
fn versions_of_http_are_possible_for_the_servers() {
    let protocols = |url: &str, lines: &str| {
        let text =
            format!("[[site]]\nid = \"a\"\n[site.origin]\nurls = [{url}]\nprotocols = {lines}\n");
        let resolved = with(&text, &Overrides::default());
        resolved.map(|config| config.sites[0].origin.protocols)
    };
    assert_eq!(resolved(SITE).sites[0].origin.protocols, OriginProtocols::Http1);
    let (tls, plain, both) = ("\"https://o\"", "\"http://o\"", "\"http://o\", \"https://p\"");
    for (url, lines, expected) in [
        (tls, "[\"h2\", \"http/1.1\"]", OriginProtocols::Http2First),
        (both, "[\"h2\", \"http/1.1\"]", OriginProtocols::Http2First),
        (tls, "[\"http/1.1\", \"h2\"]", OriginProtocols::Http1First),
        (tls, "[\"h2\"]", OriginProtocols::Http2),
        (plain, "[\"h2c\"]", OriginProtocols::PriorKnowledge),
        (both, "[\"http/1.1\"]", OriginProtocols::Http1),
    ] {
        assert_eq!(protocols(url, lines), Ok(expected), "{url} {lines}");
    }
    for (url, lines, expected) in [
        (tls, "[]", "site[0].origin.protocols: must be one or two different versions"),
        (tls, "[\"h2\", \"h2\"]", "must be one or two different versions"),
        (plain, "[\"h2c\", \"http/1.1\"]", "\"h2c\" must be alone"),
        (both, "[\"h2c\"]", "\"h2c\" is HTTP/2 without TLS"),
        (both, "[\"h2\"]", "a server without https:// needs [\"h2c\"]"),
        (plain, "[\"h2\", \"http/1.1\"]", "no server is https://"),
        (tls, "[\"h3\"]", "\"h3\" must be one of"),
        (tls, "\"h2\"", "must be a list"),
    ] {
        let refused = protocols(url, lines).unwrap_err();
        assert!(refused.contains(expected), "{lines}: {refused}");
    }
}

#[test]
fn compression_is_off_until_it_is_enabled() {
    let compress = |lines: &str| {
        let text = format!("{SITE}[site.compress]\n{lines}\n");
        with(&text, &Overrides::default()).map(|config| config.sites[0].origin.compress.clone())
    };
    assert_eq!(resolved(SITE).sites[0].origin.compress, None);
    assert_eq!(compress("").unwrap(), None);
    assert_eq!(compress("types = [\"text/*\"]").unwrap(), None);
    let default = compress("enabled = true").unwrap().unwrap();
    assert_eq!((default.codings, default.pass), (Codings::new(Coding::ALL), false));
    assert_eq!((default.min, default.max), (1 << 10, 8 << 20));
    let all = "enabled = true\ncodings = [\"gzip\"]\ntypes = [\"image/svg+xml\"]\nmin = \"2KiB\"\n\
        max = \"2KiB\"\npass = true";
    let expected = CompressSettings {
        codings: Codings::new([Coding::Gzip]),
        types: MediaTypes::new(MediaTypePattern::parse("image/svg+xml")),
        min: 2 << 10,
        max: 2 << 10,
        pass: true,
    };
    assert_eq!(compress(all).unwrap(), Some(expected));
    for (lines, expected) in [
        ("codings = []", "site[0].compress.codings: must name at least one coding"),
        ("codings = [\"deflate\"]", "\"deflate\" must be one of \"zstd\", \"br\", \"gzip\""),
        ("types = []", "site[0].compress.types: must name at least one media type"),
        ("types = [\"html\"]", "types[0]: \"html\" is not a media type such as \"text/html\""),
        ("min = \"2KiB\"\nmax = \"1KiB\"", "compress.max: 1KiB is less than `min` = 2KiB"),
        ("min = 0", "0 needs a unit"),
        ("min = \"0B\"", "\"0B\" must be at least \"1B\" and at most \"8MiB\""),
        ("enabled = \"yes\"", "must be true or false"),
        ("level = 9", "site[0].compress.level: unknown field"),
    ] {
        let refused = compress(lines).unwrap_err();
        assert!(refused.contains(expected), "{lines}: {refused}");
    }
}

#[test]
fn listeners_of_operators_are_apart_from_those_of_clients() {
    let with_role = |role: &str, address: &str, more: &str| {
        format!(
            "listen = \"127.0.0.1:5\"\n[[listener]]\naddress = \"{address}\"\nrole = \"{role}\"\n\
             {more}{SITE}"
        )
    };
    let config = resolved(&with_role("admin", "127.0.0.1:6", ""));
    assert_eq!((config.listeners.len(), config.admins.len(), config.probes.len()), (1, 1, 0));
    let config = resolved(&with_role("probe", "0.0.0.0:6", ""));
    assert_eq!((config.listeners.len(), config.admins.len(), config.probes.len()), (1, 0, 1));
    assert_eq!(resolved(&with_role("admin", "unix:/run/a.sock", "")).admins.len(), 1);
    let rows = [
        (
            with_role("admin", "0.0.0.0:6", ""),
            "3:11: listener[0].address: 0.0.0.0:6 is not a loopback",
        ),
        (
            with_role("admin", "127.0.0.1:5", ""),
            "3:11: listener[0].address: \"127.0.0.1:5\" is the address of another",
        ),
        (
            with_role("admin", "127.0.0.1:6", "sites = [\"a\"]\n"),
            "5:9: listener[0].sites: is only for the roles",
        ),
        (
            with_role("probe", "127.0.0.1:6", "protocols = [\"http/1.1\"]\n"),
            "5:13: listener[0].protocols: is only for the roles",
        ),
        (
            with_role("probe", "127.0.0.1:6", "").replace("listen = \"127.0.0.1:5\"\n", ""),
            "listen: at least one listener must serve clients",
        ),
    ];
    for (text, expected) in rows {
        let found = errors(&text);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}: {expected}");
    }
}
