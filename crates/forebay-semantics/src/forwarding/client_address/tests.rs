use super::*;
use proptest::prelude::*;

/// Trusted in all rows: 10.0.0.0/8, fd00::/8 and Unix sockets.
fn trust(field: &str) -> ProxyTrust {
    let mut proxies = Networks::default();
    ["10.0.0.0/8", "fd00::/8", "unix"].iter().for_each(|text| proxies.add(text).unwrap());
    ProxyTrust { proxies, field: AddressField::parse(field).unwrap() }
}

fn address(text: &str) -> PeerAddress {
    if text == "unix" {
        return PeerAddress::Unix;
    }
    PeerAddress::from(text.parse::<IpAddr>().unwrap())
}

fn fields(name: &str, lines: &[&str]) -> HeaderMap {
    let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
    lines
        .iter()
        .map(|line| (name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap()))
        .collect()
}

/// Field, its lines, peer, expected client and the proxies between client and forebay.
type Row = (&'static str, &'static [&'static str], &'static str, &'static str, &'static str);

const XFF: &str = "x-forwarded-for";
const FWD: &str = "forwarded";
const CF: &str = "cf-connecting-ip";

/// Rows with a trusted peer.
const ROWS: &[Row] = &[
    // One proxy.
    (XFF, &["203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &[" 203.0.113.9 "], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["2001:db8::9"], "10.0.0.1", "2001:db8::9", "10.0.0.1"),
    (XFF, &["2001:db8::9"], "fd00::1", "2001:db8::9", "fd00::1"),
    (XFF, &["::ffff:203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["203.0.113.9"], "::ffff:10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["203.0.113.9"], "unix", "203.0.113.9", ""),
    // Ports.
    (XFF, &["203.0.113.9:4711"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["[2001:db8::9]:4711"], "10.0.0.1", "2001:db8::9", "10.0.0.1"),
    (XFF, &["[2001:db8::9]"], "10.0.0.1", "2001:db8::9", "10.0.0.1"),
    (XFF, &["203.0.113.9:99999"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["[2001:db8::9]x"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["203.0.113.9:"], "10.0.0.1", "10.0.0.1", ""),
    // A client that claims an address: what it wrote is to the left of its own address.
    (XFF, &["8.8.8.8, 203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["10.9.9.9, 203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["garbage, 203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["8.8.8.8", "203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &["\", 203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    // Several trusted proxies.
    (XFF, &["203.0.113.9, 10.0.0.2"], "10.0.0.1", "203.0.113.9", "10.0.0.2,10.0.0.1"),
    (
        XFF,
        &["203.0.113.9,10.0.0.3,10.0.0.2"],
        "10.0.0.1",
        "203.0.113.9",
        "10.0.0.3,10.0.0.2,10.0.0.1",
    ),
    (XFF, &["203.0.113.9", "10.0.0.2"], "10.0.0.1", "203.0.113.9", "10.0.0.2,10.0.0.1"),
    (XFF, &["203.0.113.9, fd00::2"], "10.0.0.1", "203.0.113.9", "fd00::2,10.0.0.1"),
    (XFF, &["8.8.8.8, 203.0.113.9, 10.0.0.2"], "10.0.0.1", "203.0.113.9", "10.0.0.2,10.0.0.1"),
    // A proxy that is not trusted is the client.
    (XFF, &["203.0.113.9, 198.51.100.1"], "10.0.0.1", "198.51.100.1", "10.0.0.1"),
    // Only trusted addresses: the leftmost.
    (XFF, &["10.0.0.3, 10.0.0.2"], "10.0.0.1", "10.0.0.3", "10.0.0.2,10.0.0.1"),
    // An element that is no address ends the walk at the one to its right.
    (XFF, &["unknown"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.1", "10.0.0.2", "10.0.0.1"),
    (XFF, &["203.0.113.9, unix:"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["010.0.0.9"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["fe80::1%eth0"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["localhost"], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &["203.0.113.9\u{e9}"], "10.0.0.1", "10.0.0.1", ""),
    // Empty list elements do not count (RFC 9110 section 5.6.1).
    (XFF, &["203.0.113.9, ,"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (XFF, &[""], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &[], "10.0.0.1", "10.0.0.1", ""),
    (XFF, &[], "unix", "unix", ""),
    // RFC 7239.
    (FWD, &["for=203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (FWD, &["FOR=\"203.0.113.9:80\";proto=https"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (FWD, &["for=\"[2001:db8::9]:4711\""], "10.0.0.1", "2001:db8::9", "10.0.0.1"),
    (FWD, &["for=8.8.8.8, for=203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (
        FWD,
        &["for=203.0.113.9, for=10.0.0.2;by=10.0.0.1"],
        "10.0.0.1",
        "203.0.113.9",
        "10.0.0.2,10.0.0.1",
    ),
    (FWD, &["for=203.0.113.9;host=\"a,b;for=8.8.8.8\""], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (FWD, &["for=\"8.8.8.8, for=203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (FWD, &["for=\"8.8.8.8\\\", for=\"203.0.113.9\""], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (FWD, &["for=unknown"], "10.0.0.1", "10.0.0.1", ""),
    (FWD, &["for=_hidden, for=10.0.0.2"], "10.0.0.1", "10.0.0.2", "10.0.0.1"),
    (FWD, &["for=203.0.113.9;for=8.8.8.8"], "10.0.0.1", "10.0.0.1", ""),
    (FWD, &["proto=https"], "10.0.0.1", "10.0.0.1", ""),
    // A field with one address.
    (CF, &["203.0.113.9"], "10.0.0.1", "203.0.113.9", "10.0.0.1"),
    (CF, &["10.7.7.7"], "10.0.0.1", "10.7.7.7", "10.0.0.1"),
    (CF, &["203.0.113.9, 8.8.8.8"], "10.0.0.1", "10.0.0.1", ""),
    (CF, &["203.0.113.9", "8.8.8.8"], "10.0.0.1", "10.0.0.1", ""),
    (CF, &[], "10.0.0.1", "10.0.0.1", ""),
];

#[test]
fn the_client_is_the_first_untrusted_address_from_the_right() {
    assert!(ROWS.len() >= 40);
    for (field, lines, peer, client, proxies) in ROWS {
        let named = trust(field).client(address(peer), &fields(field, lines)).unwrap();
        let between: Vec<String> = named.proxies.iter().map(IpAddr::to_string).collect();
        assert_eq!(named.address, address(client), "{field}: {lines:?} from {peer}");
        assert_eq!(between.join(","), *proxies, "{field}: {lines:?} from {peer}");
    }
}

#[test]
fn the_walk_reads_a_bounded_number_of_elements() {
    let long = vec!["10.0.0.2"; ELEMENTS_MAX].join(", ");
    let fields = fields(XFF, &[&format!("203.0.113.9, {long}")]);
    let named = trust(XFF).client(address("10.0.0.1"), &fields).unwrap();
    assert_eq!(named.address, address("10.0.0.2"));
    assert_eq!(named.proxies.len(), ELEMENTS_MAX);
}

#[test]
fn the_scheme_is_the_one_that_the_peer_wrote() {
    let rows: [(&[&str], Option<Scheme>); 8] = [
        (&["https"], Some(Scheme::Https)),
        (&["HTTP"], Some(Scheme::Http)),
        (&["http, https"], Some(Scheme::Https)),
        (&["http", "https"], Some(Scheme::Https)),
        (&["https", "ftp"], None),
        (&["wss"], None),
        (&[""], None),
        (&[], None),
    ];
    for (lines, expected) in rows {
        let fields = fields("x-forwarded-proto", lines);
        let named = trust(XFF).client(address("10.0.0.1"), &fields).unwrap();
        assert_eq!(named.scheme, expected, "{lines:?}");
        // `Forwarded` has its own scheme, and a proxy that sets it may pass the other field on.
        assert_eq!(trust(FWD).client(address("10.0.0.1"), &fields).unwrap().scheme, None);
    }
    let rows = [
        ("for=203.0.113.9;proto=https", Some(Scheme::Https)),
        ("for=203.0.113.9;proto=\"http\"", Some(Scheme::Http)),
        ("for=203.0.113.9;proto=https, for=10.0.0.2;proto=http", Some(Scheme::Https)),
        ("for=8.8.8.8;proto=https, for=203.0.113.9;proto=http", Some(Scheme::Http)),
        ("for=203.0.113.9", None),
    ];
    for (line, expected) in rows {
        let named = trust(FWD).client(address("10.0.0.1"), &fields(FWD, &[line])).unwrap();
        assert_eq!(named.scheme, expected, "{line}");
    }
}

/// Claim of a client: parts of real elements, and arbitrary text.
fn claim() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("8.8.8.8"),
        Just("10.0.0.9"),
        Just("for="),
        Just("for=10.0.0.9"),
        Just("\""),
        Just("\\"),
        Just(","),
        Just(";"),
        Just("proto=https"),
        Just(" "),
    ];
    prop_oneof![
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
        "[ -~]{0,40}",
    ]
}

proptest! {
    #[test]
    fn an_untrusted_peer_never_changes_the_client(claims in prop::collection::vec(claim(), 0..4)) {
        for field in [XFF, FWD, CF] {
            let lines: Vec<&str> = claims.iter().map(String::as_str).collect();
            for peer in ["203.0.113.9", "2001:db8::1", "11.0.0.1", "9.255.255.255"] {
                prop_assert_eq!(trust(field).client(address(peer), &fields(field, &lines)), None);
            }
            let nobody = ProxyTrust { proxies: Networks::default(), ..trust(field) };
            for peer in ["10.0.0.1", "127.0.0.1", "unix"] {
                prop_assert_eq!(nobody.client(address(peer), &fields(field, &lines)), None);
            }
        }
    }

    /// A trusted proxy adds the address of its peer to the right of the client's claims.
    #[test]
    fn claims_behind_a_trusted_proxy_change_nothing(
        claims in prop::collection::vec(claim(), 0..4),
        is_same_line: bool,
    ) {
        for (field, own, scheme) in [
            (XFF, "203.0.113.9", None),
            (FWD, "for=203.0.113.9;proto=http", Some(Scheme::Http)),
            (FWD, "for=\"203.0.113.9:80\";proto=https;host=\"a\"", Some(Scheme::Https)),
        ] {
            let mut lines = claims.clone();
            match lines.last_mut().filter(|_| is_same_line) {
                Some(last) => *last = format!("{last}, {own}"),
                None => lines.push(own.to_owned()),
            }
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let named = trust(field).client(address("10.0.0.1"), &fields(field, &lines)).unwrap();
            prop_assert_eq!(named.address, address("203.0.113.9"));
            prop_assert_eq!(named.proxies, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
            prop_assert_eq!(named.scheme, scheme);
        }
    }
}
