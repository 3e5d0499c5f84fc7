//! Readers of options with a few words as values.

use super::{Reader, bracketed, list, quoted, refuse, word, word_of};
use forebay_core::WhenBlind;
use forebay_engine::TierErrors;
use forebay_http::{Balance, RetryOn};
use forebay_redis::Codec;
use forebay_semantics::coding::Coding;
use forebay_tls::acme::ChallengeKind;
use forebay_tls::server::{ClientCertificates, MinVersion};
use forebay_tls::store::UnknownName;
use http::Method;
use tracing::Level;

/// Format of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessLog {
    /// No access log.
    Off,
    /// One line per response in the common log format.
    Common,
    /// One line per response in the combined log format.
    Combined,
    /// One line of `name=value` pairs per response.
    Logfmt,
    /// One JSON object per response.
    Json,
}

/// Format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text on a terminal, else logfmt.
    Auto,
    /// Text for people.
    Text,
    /// One line of `name=value` pairs per message.
    Logfmt,
    /// One JSON object per message.
    Json,
}

/// Part of the address of a client that logs and live views show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientIp {
    /// Whole address.
    Full,
    /// Network: /24 of IPv4, /48 of IPv6.
    Prefix,
    /// No part.
    Off,
}

/// Role of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerRole {
    /// Answers requests.
    Serve,
    /// Redirects to https.
    Redirect,
    /// Serves operators like the admin listener.
    Admin,
    /// Answers `/livez` and `/readyz`.
    Probe,
}

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 and 1.0.
    Http1,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 without TLS.
    H2c,
}

/// Key of rate limits; there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByAddress;

readers! {
    PROTOCOL: Protocol = "\"h2\", \"http/1.1\" or \"h2c\"", words[
        ("h2", Protocol::H2), ("http/1.1", Protocol::Http1), ("h2c", Protocol::H2c)
    ];
    PROTOCOLS: Vec<Protocol> = "list of \"h2\", \"http/1.1\" and \"h2c\"", list(PROTOCOL);
    CHALLENGE: ChallengeKind = "\"tls-alpn-01\" or \"http-01\"", words[
        ("tls-alpn-01", ChallengeKind::TlsAlpn01), ("http-01", ChallengeKind::Http01)
    ];
    LISTENER_ROLE: ListenerRole = "\"serve\", \"redirect\", \"admin\" or \"probe\"", words[
        ("serve", ListenerRole::Serve),
        ("redirect", ListenerRole::Redirect),
        ("admin", ListenerRole::Admin),
        ("probe", ListenerRole::Probe),
    ];
    CLIENT_CERTIFICATES: ClientCertificates = "\"off\", \"optional\" or \"required\"", words[
        ("off", ClientCertificates::Off),
        ("optional", ClientCertificates::Optional),
        ("required", ClientCertificates::Required),
    ];
    MIN_VERSION: MinVersion = "\"1.2\" or \"1.3\"", words[
        ("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)
    ];
    UNKNOWN_NAME: UnknownName = "\"first\" or \"refuse\"", words[
        ("first", UnknownName::First), ("refuse", UnknownName::Refuse)
    ];
    BALANCE: Balance = "\"least\", \"hash\" or \"first\"", words[
        ("least", Balance::Least), ("hash", Balance::Hash), ("first", Balance::First)
    ];
    RETRY_CAUSE: RetryOn =
        "\"connect\", \"closed\", \"timeout\", \"502\", \"503\" or \"504\"", words[
        ("connect", RetryOn::Connect),
        ("closed", RetryOn::Closed),
        ("timeout", RetryOn::Timeout),
        ("502", RetryOn::Status(502)),
        ("503", RetryOn::Status(503)),
        ("504", RetryOn::Status(504)),
    ];
    RETRY_ON: Vec<RetryOn> =
        "list of \"connect\", \"closed\", \"timeout\", \"502\", \"503\" and \"504\"",
        list(RETRY_CAUSE);
    CODING: Coding = "\"zstd\", \"br\" or \"gzip\"", words[
        ("zstd", Coding::Zstd), ("br", Coding::Br), ("gzip", Coding::Gzip)
    ];
    RATE_BY: ByAddress = "\"address\"", words[("address", ByAddress)];
    PROXY_PROTOCOL: bool = "\"off\" or \"required\"", words[("off", false), ("required", true)];
    LEVEL: Level = "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"", words[
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    ACCESS_LOG: AccessLog = "\"off\", \"common\", \"combined\", \"logfmt\" or \"json\"", words[
        ("off", AccessLog::Off), ("common", AccessLog::Common),
        ("combined", AccessLog::Combined), ("logfmt", AccessLog::Logfmt), ("json", AccessLog::Json)
    ];
    LOG_FORMAT: LogFormat = "\"auto\", \"text\", \"logfmt\" or \"json\"", words[
        ("auto", LogFormat::Auto), ("text", LogFormat::Text),
        ("logfmt", LogFormat::Logfmt), ("json", LogFormat::Json)
    ];
    CLIENT_IP: ClientIp = "\"full\", \"prefix\" or \"off\"", words[
        ("full", ClientIp::Full), ("prefix", ClientIp::Prefix), ("off", ClientIp::Off)
    ];
    KEEP_OR_DROP: bool = "\"keep\" or \"drop\"", words[("keep", true), ("drop", false)];
    COMPRESSION: Codec = "\"none\", \"lz4\" or \"zstd\"", words[
        ("none", Codec::None), ("lz4", Codec::Lz4), ("zstd", Codec::Zstd { level: ZSTD_LEVEL })
    ];
    WHEN_BLIND: WhenBlind = "\"available\" or \"strict\"", words[
        ("available", WhenBlind::Available), ("strict", WhenBlind::Strict)
    ];
    TIER_ERRORS: TierErrors = "\"graceful\" or \"strict\"", words[
        ("graceful", TierErrors::Graceful), ("strict", TierErrors::Strict)
    ];
}

pub(crate) const CHALLENGES: Reader<Vec<ChallengeKind>> = Reader {
    kind: "list of \"tls-alpn-01\" and \"http-01\"",
    read: |typed, problems| match list(typed, problems, CHALLENGE.read)? {
        chosen if chosen.is_empty() => refuse(typed, problems, "must name at least one challenge"),
        chosen => Some(chosen),
    },
    show: |chosen| bracketed(chosen, CHALLENGE.show),
    order: None,
};

pub(crate) const CODINGS: Reader<Vec<Coding>> = Reader {
    kind: "list of \"zstd\", \"br\" and \"gzip\"",
    read: |typed, problems| match list(typed, problems, CODING.read)? {
        codings if codings.is_empty() => refuse(typed, problems, "must name at least one coding"),
        codings => Some(codings),
    },
    show: |codings| bracketed(codings, CODING.show),
    order: None,
};

pub(crate) const METHODS: Reader<Vec<Method>> = Reader {
    kind: "list of \"POST\" and \"QUERY\"",
    read: |typed, problems| {
        list(typed, problems, |item, problems| {
            let name = word(item, problems, &METHOD_NAMES)?;
            name.parse().ok()
        })
    },
    show: |methods| bracketed(methods, |method| quoted(method)),
    order: None,
};

/// Methods that `cache_methods` accepts; GET and HEAD are always cached.
const METHOD_NAMES: [(&str, &str); 2] = [("POST", "POST"), ("QUERY", "QUERY")];

/// Level of zstd: values nearly as small as at the usual level, in half of the time.
const ZSTD_LEVEL: i32 = 1;
