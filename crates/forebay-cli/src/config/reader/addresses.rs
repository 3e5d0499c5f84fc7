//! Readers of addresses, networks, host names and URLs.

use super::{Problems, Raw, Reader, Typed, bracketed, each, list, quoted, refuse, text};
use crate::config::host::HostPattern;
use crate::config::listen_address::ListenAddress;
use crate::config::origin_url::OriginUrl;
use crate::config::redis_url::RedisUrl;
use forebay_semantics::Networks;
use http::Uri;
use http::uri::{Authority, Scheme};
use std::net::{IpAddr, SocketAddr};

readers! {
    ADDRESS: SocketAddr = "address", text(parse_address);
    LISTEN_ADDRESS: ListenAddress =
        "address, or \"unix:\" and a path, or \"fd:\" and a name", text(ListenAddress::parse);
    ORIGIN: OriginUrl = "URL, or table `[site.origin]`", text(OriginUrl::parse);
    ORIGIN_HOST: String = "host name, with or without a port", text(parse_origin_host);
    REDIS_URL: RedisUrl = "URL of a Redis server", text(RedisUrl::parse);
    HOST: HostPattern = "host name", text(HostPattern::parse);
    HOSTS: Vec<HostPattern> = "list of host names", list(HOST);
    DNS_NAME: String = "host name", text(parse_dns_name);
    DNS_NAMES: Vec<String> = "list of host names", list(DNS_NAME);
    CONTACT: String = "URL", text(parse_contact);
    CONTACTS: Vec<String> = "list of URLs", list(CONTACT);
    HTTPS_URL: String = "URL with https", text(parse_https_url);
    COLLECTOR: Uri = "URL with http", text(parse_collector);
}

pub(crate) const OPTIONAL_ADDRESS: Reader<Option<SocketAddr>> = Reader {
    kind: "address, or empty",
    read: |typed, problems| match &typed.raw {
        Raw::Text(empty) if empty.is_empty() => Some(None),
        _ => (ADDRESS.read)(typed, problems).map(Some),
    },
    show: |address| address.map_or_else(|| quoted(""), quoted),
    order: None,
};

pub(crate) const ADDRESSES: Reader<Vec<SocketAddr>> = Reader {
    kind: "address, or list of addresses",
    read: |typed, problems| match &typed.raw {
        Raw::Text(joined) => {
            let one = |part: &str| Typed { raw: Raw::Text(part.trim().into()), ..typed.clone() };
            let parts: Vec<Typed> = joined.split(',').map(one).collect();
            each(&parts, problems, ADDRESS.read)
        }
        _ => list(typed, problems, ADDRESS.read),
    },
    show: |addresses| bracketed(addresses, ADDRESS.show),
    order: None,
};

pub(crate) const NETWORKS: Reader<Networks> = Reader {
    kind: "list of networks",
    read: |typed, problems| list(typed, problems, network).map(joined),
    show: |networks| bracketed(&networks.texts().collect::<Vec<_>>(), |text| quoted(text)),
    order: None,
};

pub(crate) const REDIS_URLS: Reader<Vec<RedisUrl>> = Reader {
    kind: "list of URLs of Redis servers",
    read: |typed, problems| {
        let urls = list(typed, problems, REDIS_URL.read)?;
        if (1..=REDIS_URLS_MAX).contains(&urls.len()) {
            return Some(urls);
        }
        refuse(typed, problems, format!("must name 1 to {REDIS_URLS_MAX} servers"))
    },
    show: |urls| bracketed(urls, REDIS_URL.show),
    order: None,
};

/// Maximum number of servers in one list; servers of a cluster discover each other.
const REDIS_URLS_MAX: usize = 64;

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let example = "write an IP address and a port, such as \"127.0.0.1:8080\"";
        format!("\"{text}\" is not an address; {example}")
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

fn parse_contact(url: &str) -> Result<String, String> {
    match url.strip_prefix("mailto:") {
        Some(address) if address.contains('@') => Ok(url.to_owned()),
        _ => Err(format!("\"{url}\" is not a URL such as \"mailto:ops@shop.example\"")),
    }
}

fn parse_collector(url: &str) -> Result<Uri, String> {
    let uri = url.parse::<Uri>().ok();
    let is_valid = |uri: &Uri| {
        let authority = uri.authority().map(Authority::as_str);
        uri.scheme_str() == Some("http")
            && authority.is_some_and(|authority| !authority.contains('@'))
            && uri.query().is_none()
    };
    uri.filter(is_valid).ok_or_else(|| {
        let example = "\"http://127.0.0.1:4318\"";
        format!("\"{url}\" must be a URL with http, such as {example}; a collector on this host can forward to others with TLS")
    })
}

fn parse_https_url(url: &str) -> Result<String, String> {
    match url.parse::<Uri>() {
        Ok(uri) if uri.scheme() == Some(&Scheme::HTTPS) => Ok(url.to_owned()),
        _ => Err(format!("\"{url}\" is not a URL that begins with \"https://\"")),
    }
}

/// Returns `true` if a host is a name, not an IP address.
pub(crate) fn is_dns_name(host: &str) -> bool {
    !host.starts_with('[') && host.parse::<IpAddr>().is_err()
}

fn parse_origin_host(host: &str) -> Result<String, String> {
    match host.parse::<Authority>() {
        Ok(authority) if !host.contains('@') => Ok(authority.as_str().to_owned()),
        _ => Err(format!("\"{host}\" is not a host name such as \"shop.internal\"")),
    }
}

/// Reads one network, address or name of networks.
pub(crate) fn network(typed: &Typed, problems: &mut Problems) -> Option<Networks> {
    text(typed, problems, |name| {
        let mut set = Networks::default();
        set.add(name).map_err(|error| format!("\"{name}\" {error}"))?;
        Ok(set)
    })
}

/// Joins sets of networks.
pub(crate) fn joined(sets: Vec<Networks>) -> Networks {
    let mut all = Networks::default();
    sets.iter().for_each(|set| all.extend(set));
    all
}
