//! Readers that convert raw values to typed ones, one for each type of option.

use super::host::HostPattern;
use super::listen_address::ListenAddress;
use super::origin_url::OriginUrl;
use super::problem::Problems;
use super::redis_url::RedisUrl;
use super::typed::{Raw, Typed};
use super::units::{Quantity, ShortDuration, ShortSize, UnitError, parse_duration, parse_size};
use crate::machine;
use forebay_core::WhenBlind;
use forebay_engine::TierErrors;
use forebay_redis::Codec;
use forebay_semantics::Networks;
use forebay_semantics::client_address::AddressField;
use forebay_tls::acme::ChallengeKind;
use forebay_tls::server::{ClientCertificates, MinVersion};
use forebay_tls::store::UnknownName;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Uri};
use std::cmp::Ordering;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

/// Name, parser and printer of one type of value.
#[derive(Debug)]
pub(crate) struct Reader<T> {
    /// Name of the type in `docs/config.md`.
    pub(crate) kind: &'static str,
    /// Parses a value; reports every error in it.
    pub(crate) read: fn(&Typed, &mut Problems) -> Option<T>,
    /// Prints a value as it would be typed.
    pub(crate) show: fn(&T) -> String,
    /// Order of values, for types with bounds.
    pub(crate) order: Option<fn(&T, &T) -> Ordering>,
}

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

pub(super) const ADDRESS: Reader<SocketAddr> = Reader {
    kind: "address",
    read: |typed, problems| text(typed, problems, parse_address),
    show: |address| quoted(address),
    order: None,
};

pub(super) const OPTIONAL_ADDRESS: Reader<Option<SocketAddr>> = Reader {
    kind: "address, or empty",
    read: |typed, problems| match &typed.raw {
        Raw::Text(empty) if empty.is_empty() => Some(None),
        _ => (ADDRESS.read)(typed, problems).map(Some),
    },
    show: |address| address.map_or_else(|| quoted(""), quoted),
    order: None,
};

pub(super) const ADDRESSES: Reader<Vec<SocketAddr>> = Reader {
    kind: "address, or list of addresses",
    read: |typed, problems| match &typed.raw {
        Raw::Text(joined) => {
            let one = |part: &str| Typed { raw: Raw::Text(part.trim().into()), ..typed.clone() };
            let parts: Vec<Typed> = joined.split(',').map(one).collect();
            each(&parts, problems, ADDRESS.read)
        }
        _ => list(typed, problems, ADDRESS.read),
    },
    show: |addresses| bracketed(addresses, |address| quoted(address)),
    order: None,
};

pub(super) const LISTEN_ADDRESS: Reader<ListenAddress> = Reader {
    kind: "address, or \"unix:\" and a path, or \"fd:\" and a name",
    read: |typed, problems| text(typed, problems, ListenAddress::parse),
    show: |address| quoted(address),
    order: None,
};

pub(super) const NETWORKS: Reader<Networks> = Reader {
    kind: "list of networks",
    read: |typed, problems| {
        let sets = list(typed, problems, |item, problems| {
            text(item, problems, |name| {
                let mut set = Networks::default();
                set.add(name).map_err(|error| format!("\"{name}\" {error}"))?;
                Ok(set)
            })
        })?;
        let mut all = Networks::default();
        sets.iter().for_each(|set| all.extend(set));
        Some(all)
    },
    show: |networks| bracketed(&networks.texts().collect::<Vec<_>>(), |text| quoted(text)),
    order: None,
};

pub(super) const ADDRESS_FIELD: Reader<AddressField> = Reader {
    kind: "name of a field",
    read: |typed, problems| {
        text(typed, problems, |name| {
            AddressField::parse(name).ok_or_else(|| {
                let example = "\"x-forwarded-for\", \"forwarded\" or \"cf-connecting-ip\"";
                format!("\"{name}\" is not the name of a header field such as {example}")
            })
        })
    },
    show: |field| quoted(field.name()),
    order: None,
};

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

pub(super) const PROTOCOLS: Reader<Vec<Protocol>> = Reader {
    kind: "list of \"h2\", \"http/1.1\" and \"h2c\"",
    read: |typed, problems| {
        list(typed, problems, |item, problems| word(item, problems, &PROTOCOL_WORDS))
    },
    show: |all| bracketed(all, |one| quoted(word_of(&PROTOCOL_WORDS, one))),
    order: None,
};

pub(super) const LISTENER_ROLE: Reader<ListenerRole> = Reader {
    kind: "\"serve\", \"redirect\", \"admin\" or \"probe\"",
    read: |typed, problems| word(typed, problems, &LISTENER_ROLES),
    show: |chosen| quoted(word_of(&LISTENER_ROLES, chosen)),
    order: None,
};

pub(super) const CLIENT_CERTIFICATES: Reader<ClientCertificates> = Reader {
    kind: "\"off\", \"optional\" or \"required\"",
    read: |typed, problems| word(typed, problems, &CLIENT_CERTIFICATES_WORDS),
    show: |chosen| quoted(word_of(&CLIENT_CERTIFICATES_WORDS, chosen)),
    order: None,
};

pub(super) const MIN_VERSION: Reader<MinVersion> = Reader {
    kind: "\"1.2\" or \"1.3\"",
    read: |typed, problems| word(typed, problems, &MIN_VERSIONS),
    show: |chosen| quoted(word_of(&MIN_VERSIONS, chosen)),
    order: None,
};

pub(super) const UNKNOWN_NAME: Reader<UnknownName> = Reader {
    kind: "\"first\" or \"refuse\"",
    read: |typed, problems| word(typed, problems, &UNKNOWN_NAMES),
    show: |chosen| quoted(word_of(&UNKNOWN_NAMES, chosen)),
    order: None,
};

/// Number of requests in a unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestRate {
    /// Number of requests; at least one.
    pub(crate) requests: u32,
    unit: RateUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateUnit {
    Second,
    Minute,
    Hour,
}

impl RequestRate {
    /// Unit of time.
    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(match self.unit {
            RateUnit::Second => 1,
            RateUnit::Minute => 60,
            RateUnit::Hour => 3_600,
        })
    }
}

const RATE_UNITS: [(&str, RateUnit); 3] =
    [("s", RateUnit::Second), ("m", RateUnit::Minute), ("h", RateUnit::Hour)];

pub(super) const REQUEST_RATE: Reader<RequestRate> = Reader {
    kind: "rate",
    read: |typed, problems| text(typed, problems, parse_rate),
    show: |rate| quoted(format_args!("{}/{}", rate.requests, word_of(&RATE_UNITS, &rate.unit))),
    order: None,
};

/// Key of rate limits; there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByAddress;

pub(super) const RATE_BY: Reader<ByAddress> = Reader {
    kind: "\"address\"",
    read: |typed, problems| word(typed, problems, &[("address", ByAddress)]),
    show: |_| quoted("address"),
    order: None,
};

pub(super) const DNS_NAMES: Reader<Vec<String>> = Reader {
    kind: "list of host names",
    read: |typed, problems| {
        list(typed, problems, |item, problems| text(item, problems, parse_dns_name))
    },
    show: |names| bracketed(names, |name| quoted(name)),
    order: None,
};

pub(super) const CONTACTS: Reader<Vec<String>> = Reader {
    kind: "list of URLs",
    read: |typed, problems| {
        list(typed, problems, |item, problems| {
            text(item, problems, |url| match url.strip_prefix("mailto:") {
                Some(address) if address.contains('@') => Ok(url.to_owned()),
                _ => Err(format!("\"{url}\" is not a URL such as \"mailto:ops@shop.example\"")),
            })
        })
    },
    show: |urls| bracketed(urls, |url| quoted(url)),
    order: None,
};

pub(super) const HTTPS_URL: Reader<String> = Reader {
    kind: "URL with https",
    read: |typed, problems| {
        text(typed, problems, |url| match url.parse::<Uri>() {
            Ok(uri) if uri.scheme() == Some(&Scheme::HTTPS) => Ok(url.to_owned()),
            _ => Err(format!("\"{url}\" is not a URL that begins with \"https://\"")),
        })
    },
    show: |url| quoted(url),
    order: None,
};

pub(super) const CHALLENGES: Reader<Vec<ChallengeKind>> = Reader {
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

pub(super) const SITE_IDS: Reader<Vec<String>> = Reader {
    kind: "list of ids of sites",
    read: |typed, problems| list(typed, problems, SITE_ID.read),
    show: |ids| bracketed(ids, |id| quoted(id)),
    order: None,
};

pub(super) const HSTS: Reader<HeaderValue> = Reader {
    kind: "value of a field",
    read: |typed, problems| {
        text(typed, problems, |value| match HeaderValue::from_str(value) {
            // RFC 6797 section 6.1.1: max-age is required.
            Ok(parsed) if value.to_ascii_lowercase().contains("max-age=") => Ok(parsed),
            _ => Err(format!("\"{value}\" must contain max-age, such as \"max-age=31536000\"")),
        })
    },
    show: |value| quoted(value.to_str().unwrap_or_default()),
    order: None,
};

pub(super) const PROXY_PROTOCOL: Reader<bool> = Reader {
    kind: "\"off\" or \"required\"",
    read: |typed, problems| word(typed, problems, &PROXY_PROTOCOLS),
    show: |chosen| quoted(word_of(&PROXY_PROTOCOLS, chosen)),
    order: None,
};

pub(super) const PATH: Reader<PathBuf> = Reader {
    kind: "path of a file",
    read: |typed, problems| {
        text(typed, problems, |path| match path {
            "" => Err("must not be empty".into()),
            path => Ok(PathBuf::from(path)),
        })
    },
    show: |path| quoted(path.display()),
    order: None,
};

pub(super) const COUNT: Reader<u64> = Reader {
    kind: "integer",
    read: |typed, problems| match &typed.raw {
        Raw::Integer(_, Some(value)) => Some(*value),
        Raw::Integer(written, None) => {
            refuse(typed, problems, format!("{written} is negative or too large"))
        }
        other => refuse(typed, problems, format!("must be an integer, not {}", other.shape())),
    },
    show: u64::to_string,
    order: Some(Ord::cmp),
};

pub(super) const NUMBER: Reader<f64> = Reader {
    kind: "number",
    read: |typed, problems| match &typed.raw {
        Raw::Integer(written, _) | Raw::Fraction(written) => match written.parse::<f64>() {
            Ok(value) if value.is_finite() => Some(value),
            _ => refuse(typed, problems, format!("{written} is not a finite number")),
        },
        other => refuse(typed, problems, format!("must be a number, not {}", other.shape())),
    },
    show: |number| format!("{number:?}"),
    order: Some(f64::total_cmp),
};

pub(super) const RATE: Reader<u32> = Reader {
    kind: "number per second",
    read: |typed, problems| {
        text(typed, problems, |rate| {
            let number = rate.strip_suffix("/s").and_then(|number| number.parse::<u32>().ok());
            number
                .ok_or_else(|| format!("\"{rate}\" must be a number per second, such as \"10/s\""))
        })
    },
    show: |rate| quoted(format_args!("{rate}/s")),
    order: None,
};

pub(super) const SIZE: Reader<u64> = Reader {
    kind: "size",
    read: |typed, problems| measure(typed, problems, Quantity::Size, parse_size),
    show: |size| quoted(ShortSize(*size)),
    order: Some(Ord::cmp),
};

pub(super) const MEMORY_SIZE: Reader<u64> = Reader {
    kind: "size, or percentage of the memory",
    read: |typed, problems| match &typed.raw {
        Raw::Text(percentage) if percentage.ends_with('%') => {
            text(typed, problems, percentage_of_memory)
        }
        _ => (SIZE.read)(typed, problems),
    },
    show: SIZE.show,
    order: SIZE.order,
};

pub(super) const DURATION: Reader<Duration> = Reader {
    kind: "duration",
    read: |typed, problems| measure(typed, problems, Quantity::Duration, parse_duration),
    show: |duration| quoted(ShortDuration(*duration)),
    order: Some(Ord::cmp),
};

pub(super) const TRUTH: Reader<bool> = Reader {
    kind: "true or false",
    read: |typed, problems| match &typed.raw {
        Raw::Truth(truth) => Some(*truth),
        other => {
            let shape = other.shape();
            refuse(typed, problems, format!("must be true or false (without quotes), not {shape}"))
        }
    },
    show: bool::to_string,
    order: None,
};

pub(super) const LEVEL: Reader<Level> = Reader {
    kind: "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"",
    read: |typed, problems| word(typed, problems, &LEVELS),
    show: |level| quoted(level.as_str().to_ascii_lowercase()),
    order: None,
};

pub(super) const ACCESS_LOG: Reader<AccessLog> = Reader {
    kind: "\"off\", \"common\" or \"json\"",
    read: |typed, problems| word(typed, problems, &ACCESS_LOGS),
    show: |chosen| quoted(word_of(&ACCESS_LOGS, chosen)),
    order: None,
};

pub(super) const COMPRESSION: Reader<Codec> = Reader {
    kind: "\"none\", \"lz4\" or \"zstd\"",
    read: |typed, problems| word(typed, problems, &COMPRESSIONS),
    show: |chosen| quoted(word_of(&COMPRESSIONS, chosen)),
    order: None,
};

pub(super) const WHEN_BLIND: Reader<WhenBlind> = Reader {
    kind: "\"available\" or \"strict\"",
    read: |typed, problems| word(typed, problems, &WHEN_BLIND_WORDS),
    show: |chosen| quoted(word_of(&WHEN_BLIND_WORDS, chosen)),
    order: None,
};

pub(super) const TIER_ERRORS: Reader<TierErrors> = Reader {
    kind: "\"graceful\" or \"strict\"",
    read: |typed, problems| word(typed, problems, &TIER_ERRORS_WORDS),
    show: |chosen| quoted(word_of(&TIER_ERRORS_WORDS, chosen)),
    order: None,
};

pub(super) const SITE_ID: Reader<String> = Reader {
    kind: "name of up to 64 of a-z, 0-9 and -",
    read: |typed, problems| text(typed, problems, parse_site_id),
    show: |id| quoted(id),
    order: None,
};

pub(super) const HOSTS: Reader<Vec<HostPattern>> = Reader {
    kind: "list of host names",
    read: |typed, problems| {
        list(typed, problems, |item, problems| text(item, problems, HostPattern::parse))
    },
    show: |hosts| bracketed(hosts, |host| quoted(host)),
    order: None,
};

pub(super) const PREFIX: Reader<String> = Reader {
    kind: "path",
    read: |typed, problems| text(typed, problems, parse_prefix),
    show: |prefix| quoted(prefix),
    order: None,
};

pub(super) const ORIGIN: Reader<OriginUrl> = Reader {
    kind: "URL, or table `[site.origin]`",
    read: |typed, problems| text(typed, problems, OriginUrl::parse),
    show: |url| quoted(url),
    order: None,
};

pub(super) const COUNTS: Reader<Vec<u64>> = Reader {
    kind: "list of status codes",
    read: |typed, problems| {
        list(typed, problems, |item, problems| match (COUNT.read)(item, problems)? {
            status @ 100..=599 => Some(status),
            other => {
                refuse(item, problems, format!("{other} must be at least 100 and at most 599"))
            }
        })
    },
    show: |all| bracketed(all, u64::to_string),
    order: None,
};

pub(super) const TEXT: Reader<String> = Reader {
    kind: "text",
    read: |typed, problems| text(typed, problems, |text| Ok(text.to_owned())),
    show: |text| format!("{text:?}"),
    order: None,
};

pub(super) const FIELD_VALUE: Reader<HeaderValue> = Reader {
    kind: "value of a field",
    read: |typed, problems| {
        text(typed, problems, |value| {
            HeaderValue::from_str(value)
                .map_err(|_| format!("\"{}\" is not a field value", value.escape_debug()))
        })
    },
    show: |value| quoted(value.to_str().unwrap_or_default()),
    order: None,
};

pub(super) const ORIGINS: Reader<Vec<OriginUrl>> = Reader {
    kind: "list of exactly one URL",
    read: |typed, problems| {
        let urls = list(typed, problems, ORIGIN.read)?;
        match urls.len() {
            1 => Some(urls),
            0 => refuse(typed, problems, "must name the origin, such as \"http://127.0.0.1:3000\""),
            _ => {
                let later = "this version supports one origin per site; keep one of the URLs";
                refuse(typed, problems, later)
            }
        }
    },
    show: |urls| bracketed(urls, |url| quoted(url)),
    order: None,
};

pub(super) const ORIGIN_HOST: Reader<String> = Reader {
    kind: "host name, with or without a port",
    read: |typed, problems| text(typed, problems, parse_origin_host),
    show: |host| quoted(host),
    order: None,
};

pub(super) const QUERY_NAMES: Reader<Vec<String>> = Reader {
    kind: "list of names",
    read: |typed, problems| {
        list(typed, problems, |item, problems| text(item, problems, parse_query_name))
    },
    show: |names| bracketed(names, |name| quoted(name)),
    order: None,
};

pub(super) const METHODS: Reader<Vec<Method>> = Reader {
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

pub(super) const REDIS_URL: Reader<RedisUrl> = Reader {
    kind: "URL of a Redis server",
    read: |typed, problems| text(typed, problems, RedisUrl::parse),
    show: |url| quoted(url),
    order: None,
};

pub(super) const REDIS_URLS: Reader<Vec<RedisUrl>> = Reader {
    kind: "list of URLs of Redis servers",
    read: |typed, problems| {
        let urls = list(typed, problems, REDIS_URL.read)?;
        if (1..=REDIS_URLS_MAX).contains(&urls.len()) {
            return Some(urls);
        }
        refuse(typed, problems, format!("must name 1 to {REDIS_URLS_MAX} servers"))
    },
    show: |urls| bracketed(urls, |url| quoted(url)),
    order: None,
};

pub(super) const NAMESPACE: Reader<String> = Reader {
    kind: "name of up to 64 of letters, digits, -, _, . and :",
    read: |typed, problems| {
        text(typed, problems, |name| match forebay_redis::check_namespace(name) {
            Ok(()) => Ok(name.to_owned()),
            Err(error) => Err(error.to_string()),
        })
    },
    show: |name| quoted(name),
    order: None,
};

pub(super) const WORD: Reader<String> = Reader {
    kind: "string",
    read: |typed, problems| {
        text(typed, problems, |word| match word {
            "" => Err("must not be empty".into()),
            word => Ok(word.to_owned()),
        })
    },
    show: |word| quoted(word),
    order: None,
};

/// Maximum number of servers in one list; servers of a cluster discover each other.
const REDIS_URLS_MAX: usize = 64;

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

/// Maximum length of a site id, which is a metric label and a part of every key.
const SITE_ID_MAX: usize = 64;

fn parse_site_id(id: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.is_empty() || id.len() > SITE_ID_MAX || !id.bytes().all(plain) {
        return Err(format!("\"{id}\" must be 1 to {SITE_ID_MAX} of a-z, 0-9 and \"-\""));
    }
    Ok(id.to_owned())
}

/// Reads a percentage of the memory that this process may use, in whole MiB.
fn percentage_of_memory(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<u64>().ok());
    let Some(number) = number.filter(|number| (1..=100).contains(number)) else {
        return Err(format!("\"{text}\" must be a whole number from 1% to 100%"));
    };
    let Some(limit) = machine::memory() else {
        let example = Quantity::Size.example();
        return Err(format!(
            "\"{text}\" cannot be used: the memory of this machine is not known; write a size such \
             as {example}"
        ));
    };
    Ok((limit.bytes / 100 * number) >> 20 << 20)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let example = "write an IP address and a port, such as \"127.0.0.1:8080\"";
        format!("\"{text}\" is not an address; {example}")
    })
}

fn parse_rate(text: &str) -> Result<RequestRate, String> {
    let parsed = text.split_once('/').and_then(|(requests, unit)| {
        let (_, unit) = RATE_UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let requests = requests.parse().ok().filter(|requests| *requests > 0)?;
        Some(RequestRate { requests, unit })
    });
    parsed.ok_or_else(|| {
        format!("\"{text}\" is not a rate such as \"50/s\", \"600/m\" or \"1000/h\"")
    })
}

fn parse_dns_name(text: &str) -> Result<String, String> {
    match HostPattern::parse(text)? {
        HostPattern::Exact(name) if is_dns_name(&name) => Ok(name),
        HostPattern::Exact(_) => Err(format!("\"{text}\" is an address; only names are possible")),
        HostPattern::Below(_) => Err(format!(
            "\"{text}\" is a wildcard, which only a challenge by DNS could prove; list the names"
        )),
    }
}

/// Returns `true` if a host is a name, not an IP address.
pub(super) fn is_dns_name(host: &str) -> bool {
    !host.starts_with('[') && host.parse::<IpAddr>().is_err()
}

fn parse_prefix(prefix: &str) -> Result<String, String> {
    // RFC 3986 section 3.3: pchar and the slash. Other bytes never occur in a request target.
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&byte);
    let reason = if !prefix.starts_with('/') {
        "must begin with \"/\""
    } else if prefix == "/" {
        "means every path; remove the option instead"
    } else if prefix.ends_with('/') {
        "must not end with \"/\""
    } else if !prefix.bytes().all(legal) {
        "must be a plain path, without a query and with other characters percent-encoded"
    } else if prefix.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        "must not have empty, \".\" or \"..\" parts"
    } else {
        return Ok(prefix.to_owned());
    };
    Err(format!("\"{prefix}\" {reason}"))
}

fn parse_origin_host(host: &str) -> Result<String, String> {
    match host.parse::<Authority>() {
        Ok(authority) if !host.contains('@') => Ok(authority.as_str().to_owned()),
        _ => Err(format!("\"{host}\" is not a host name such as \"shop.internal\"")),
    }
}

fn parse_query_name(name: &str) -> Result<String, String> {
    let stem = name.strip_suffix('*').unwrap_or(name);
    if name.is_empty() || stem.contains(['*', '&', '=', '#', '?']) || !stem.is_ascii() {
        let example = "a \"*\" is allowed at the end, as in \"utm_*\"";
        return Err(format!("\"{name}\" is not the name of a query parameter; {example}"));
    }
    Ok(name.to_owned())
}

/// Reads a string with `parse`, whose error is the message.
pub(super) fn text<T>(
    typed: &Typed,
    problems: &mut Problems,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    match &typed.raw {
        Raw::Text(text) => match parse(text) {
            Ok(value) => Some(value),
            Err(message) => refuse(typed, problems, message),
        },
        other => refuse(typed, problems, format!("must be a string, not {}", other.shape())),
    }
}

/// Reads one of a few words.
fn word<T: Copy>(typed: &Typed, problems: &mut Problems, words: &[(&str, T)]) -> Option<T> {
    text(typed, problems, |text| {
        let found = words.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<String> = words.iter().map(|(name, _)| quoted(name)).collect();
            format!("\"{text}\" must be one of {}", names.join(", "))
        })
    })
}

/// Word of a value.
fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(name, _)| *name)
}

/// Reads a number with its unit.
fn measure<T>(
    typed: &Typed,
    problems: &mut Problems,
    quantity: Quantity,
    parse: fn(&str) -> Result<T, UnitError>,
) -> Option<T> {
    match &typed.raw {
        Raw::Integer(written, _) => {
            refuse(typed, problems, format!("{written} {}", UnitError::NoUnit(quantity)))
        }
        Raw::Text(written) => match parse(written) {
            Ok(value) => Some(value),
            Err(error) => refuse(typed, problems, format!("\"{written}\" {error}")),
        },
        other => {
            let (shape, example) = (other.shape(), quantity.example());
            let message = format!("must be a string with a unit, such as {example}, not {shape}");
            refuse(typed, problems, message)
        }
    }
}

/// Reads a list with the reader of its items; every invalid item is reported.
fn list<T>(
    typed: &Typed,
    problems: &mut Problems,
    read: impl Fn(&Typed, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    match &typed.raw {
        Raw::List(items) => each(items, problems, read),
        other => refuse(typed, problems, format!("must be a list in [ ], not {}", other.shape())),
    }
}

fn each<T>(
    items: &[Typed],
    problems: &mut Problems,
    read: impl Fn(&Typed, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    // Collected first: stopping at the first invalid item would hide the others.
    let values: Vec<Option<T>> = items.iter().map(|item| read(item, problems)).collect();
    values.into_iter().collect()
}

fn refuse<T>(typed: &Typed, problems: &mut Problems, message: impl Into<String>) -> Option<T> {
    problems.report(typed.place, &typed.path, message);
    None
}

fn quoted(value: impl Display) -> String {
    format!("\"{value}\"")
}

fn bracketed<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = items.iter().map(show).collect();
    format!("[{}]", shown.join(", "))
}

#[cfg(test)]
mod tests;
