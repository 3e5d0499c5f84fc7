//! Readers of options with a few words as values.

use super::{Problems, Reader, Typed, bracketed, list, quoted, refuse, word, word_of};
use forebay_core::WhenBlind;
use forebay_engine::TierErrors;
use forebay_redis::Codec;
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
    /// One JSON object per response.
    Json,
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

pub(crate) const PROTOCOLS: Reader<Vec<Protocol>> = Reader {
    kind: "list of \"h2\", \"http/1.1\" and \"h2c\"",
    read: |typed, problems| {
        list(typed, problems, |item, problems| word(item, problems, &PROTOCOL_WORDS))
    },
    show: |all| bracketed(all, |one| quoted(word_of(&PROTOCOL_WORDS, one))),
    order: None,
};

pub(crate) const LISTENER_ROLE: Reader<ListenerRole> = Reader {
    kind: "\"serve\", \"redirect\", \"admin\" or \"probe\"",
    read: |typed, problems| word(typed, problems, &LISTENER_ROLES),
    show: |chosen| quoted(word_of(&LISTENER_ROLES, chosen)),
    order: None,
};

pub(crate) const CLIENT_CERTIFICATES: Reader<ClientCertificates> = Reader {
    kind: "\"off\", \"optional\" or \"required\"",
    read: |typed, problems| word(typed, problems, &CLIENT_CERTIFICATES_WORDS),
    show: |chosen| quoted(word_of(&CLIENT_CERTIFICATES_WORDS, chosen)),
    order: None,
};

pub(crate) const MIN_VERSION: Reader<MinVersion> = Reader {
    kind: "\"1.2\" or \"1.3\"",
    read: |typed, problems| word(typed, problems, &MIN_VERSIONS),
    show: |chosen| quoted(word_of(&MIN_VERSIONS, chosen)),
    order: None,
};

pub(crate) const UNKNOWN_NAME: Reader<UnknownName> = Reader {
    kind: "\"first\" or \"refuse\"",
    read: |typed, problems| word(typed, problems, &UNKNOWN_NAMES),
    show: |chosen| quoted(word_of(&UNKNOWN_NAMES, chosen)),
    order: None,
};

/// Key of rate limits; there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByAddress;

pub(crate) const RATE_BY: Reader<ByAddress> = Reader {
    kind: "\"address\"",
    read: |typed, problems| word(typed, problems, &[("address", ByAddress)]),
    show: |_| quoted("address"),
    order: None,
};

pub(crate) const CHALLENGES: Reader<Vec<ChallengeKind>> = Reader {
    kind: "list of \"tls-alpn-01\" and \"http-01\"",
    read: |typed, problems| {
        let read = |item: &Typed, problems: &mut Problems| word(item, problems, &CHALLENGE_WORDS);
        match list(typed, problems, read)? {
            chosen if chosen.is_empty() => {
                refuse(typed, problems, "must name at least one challenge")
            }
            chosen => Some(chosen),
        }
    },
    show: |chosen| bracketed(chosen, |one| quoted(word_of(&CHALLENGE_WORDS, one))),
    order: None,
};

pub(crate) const PROXY_PROTOCOL: Reader<bool> = Reader {
    kind: "\"off\" or \"required\"",
    read: |typed, problems| word(typed, problems, &PROXY_PROTOCOLS),
    show: |chosen| quoted(word_of(&PROXY_PROTOCOLS, chosen)),
    order: None,
};

pub(crate) const LEVEL: Reader<Level> = Reader {
    kind: "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"",
    read: |typed, problems| word(typed, problems, &LEVELS),
    show: |level| quoted(level.as_str().to_ascii_lowercase()),
    order: None,
};

pub(crate) const ACCESS_LOG: Reader<AccessLog> = Reader {
    kind: "\"off\", \"common\" or \"json\"",
    read: |typed, problems| word(typed, problems, &ACCESS_LOGS),
    show: |chosen| quoted(word_of(&ACCESS_LOGS, chosen)),
    order: None,
};

pub(crate) const COMPRESSION: Reader<Codec> = Reader {
    kind: "\"none\", \"lz4\" or \"zstd\"",
    read: |typed, problems| word(typed, problems, &COMPRESSIONS),
    show: |chosen| quoted(word_of(&COMPRESSIONS, chosen)),
    order: None,
};

pub(crate) const WHEN_BLIND: Reader<WhenBlind> = Reader {
    kind: "\"available\" or \"strict\"",
    read: |typed, problems| word(typed, problems, &WHEN_BLIND_WORDS),
    show: |chosen| quoted(word_of(&WHEN_BLIND_WORDS, chosen)),
    order: None,
};

pub(crate) const TIER_ERRORS: Reader<TierErrors> = Reader {
    kind: "\"graceful\" or \"strict\"",
    read: |typed, problems| word(typed, problems, &TIER_ERRORS_WORDS),
    show: |chosen| quoted(word_of(&TIER_ERRORS_WORDS, chosen)),
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

const LEVELS: [(&str, Level); 5] = [
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
];

const PROTOCOL_WORDS: [(&str, Protocol); 3] =
    [("h2", Protocol::H2), ("http/1.1", Protocol::Http1), ("h2c", Protocol::H2c)];

const LISTENER_ROLES: [(&str, ListenerRole); 4] = [
    ("serve", ListenerRole::Serve),
    ("redirect", ListenerRole::Redirect),
    ("admin", ListenerRole::Admin),
    ("probe", ListenerRole::Probe),
];

const CLIENT_CERTIFICATES_WORDS: [(&str, ClientCertificates); 3] = [
    ("off", ClientCertificates::Off),
    ("optional", ClientCertificates::Optional),
    ("required", ClientCertificates::Required),
];

const MIN_VERSIONS: [(&str, MinVersion); 2] =
    [("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)];

const UNKNOWN_NAMES: [(&str, UnknownName); 2] =
    [("first", UnknownName::First), ("refuse", UnknownName::Refuse)];

const CHALLENGE_WORDS: [(&str, ChallengeKind); 2] =
    [("tls-alpn-01", ChallengeKind::TlsAlpn01), ("http-01", ChallengeKind::Http01)];

const PROXY_PROTOCOLS: [(&str, bool); 2] = [("off", false), ("required", true)];

const ACCESS_LOGS: [(&str, AccessLog); 3] =
    [("off", AccessLog::Off), ("common", AccessLog::Common), ("json", AccessLog::Json)];

const COMPRESSIONS: [(&str, Codec); 3] =
    [("none", Codec::None), ("lz4", Codec::Lz4), ("zstd", Codec::Zstd { level: ZSTD_LEVEL })];

/// Level of zstd: values nearly as small as at the usual level, in half of the time.
const ZSTD_LEVEL: i32 = 1;

const WHEN_BLIND_WORDS: [(&str, WhenBlind); 2] =
    [("available", WhenBlind::Available), ("strict", WhenBlind::Strict)];

const TIER_ERRORS_WORDS: [(&str, TierErrors); 2] =
    [("graceful", TierErrors::Graceful), ("strict", TierErrors::Strict)];
