//! Resolved origin of a site: its servers, TLS, circuit breaker, fallback response, and the
//! compression of its responses.

use super::{compress, endpoint_health, read_bounded};
use crate::config::file::{Section, SiteFile};
use crate::config::options;
use crate::config::origin_url::OriginUrl;
use crate::config::provenance::Provenance;
use crate::config::reader::{Protocol, WeightedUrl};
use crate::config::table::Table;
use forebay_core::{Allowance, CallRules, CallWindow};
use forebay_http::{
    Balance, BreakerSettings, CompressSettings, EjectionSettings, EndpointTls, Fallback,
    HealthCheckSettings, OriginProtocols, PhaseTimeouts, RetrySettings,
};
use forebay_tls::certificate::CertificateFiles;
use forebay_tls::client::{Authorities, ClientFile, ClientSettings, ServerName, TlsClient};
use http::StatusCode;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of the file with the fallback body.
const BODY_FILE_MAX: u64 = 1 << 20;

/// Value of `ca` that selects the roots of the operating system.
const SYSTEM: &str = "system";

/// Server of an origin.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedEndpoint {
    /// URL of the server.
    pub(crate) url: OriginUrl,
    /// Share of the requests, relative to the other servers; at least one.
    pub(crate) weight: u32,
    /// TLS client of an `https://` URL.
    pub(crate) tls: Option<EndpointTls>,
}

/// Origin of one site.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedOrigin {
    /// Servers; at least one.
    pub(crate) endpoints: Vec<ResolvedEndpoint>,
    /// Choice among several servers.
    pub(crate) balance: Balance,
    /// Value of `Host` to send instead of the client's.
    pub(crate) host: Option<String>,
    /// Maximum number of connections; at least one.
    pub(crate) connections_max: usize,
    /// Maximum number of concurrent requests, if it is below `connections_max`.
    pub(crate) in_flight_max: Option<usize>,
    /// Lowers the limit on concurrent requests while the origin is overloaded.
    pub(crate) adaptive: bool,
    /// Time that an idle connection is kept; zero keeps none.
    pub(crate) keep_alive: Duration,
    /// Maximum number of fields in the head of one response.
    pub(crate) fields_max: usize,
    /// Maximum number of bytes of the head of one response.
    pub(crate) head_max: usize,
    /// Versions of HTTP.
    pub(crate) protocols: OriginProtocols,
    /// Time limits of the phases of an exchange.
    pub(crate) timeouts: PhaseTimeouts,
    /// Interval of name lookups.
    pub(crate) resolve_every: Duration,
    /// Active health checks, if there are any.
    pub(crate) health: Option<HealthCheckSettings>,
    /// Ejection of servers whose requests fail.
    pub(crate) eject: EjectionSettings,
    /// Retries of failed requests.
    pub(crate) retry: RetrySettings,
    /// Budget of all instances, if there is one.
    pub(crate) budget: Option<Allowance>,
    /// Circuit breaker, if it is enabled.
    pub(crate) breaker: Option<BreakerSettings>,
    /// Response while the origin is unavailable.
    pub(crate) fallback: Option<Fallback>,
    /// Compression of responses, if it is enabled.
    pub(crate) compress: Option<CompressSettings>,
}

/// Subtable of a site, or an empty one.
fn subtable<'f>(
    typed: &'f SiteFile,
    table: Table,
    section: Option<&'f Section>,
) -> Cow<'f, Section> {
    nested(&typed.site, table, section)
}

/// Subtable of a table, or an empty one.
pub(super) fn nested<'f>(
    parent: &Section,
    table: Table,
    section: Option<&'f Section>,
) -> Cow<'f, Section> {
    section.map_or_else(
        || {
            let name = table.path().rsplit('.').next().unwrap_or_default();
            Cow::Owned(Section::empty(table, &parent.path_of(name), parent.place))
        },
        Cow::Borrowed,
    )
}

pub(super) fn origin(
    typed: &SiteFile,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedOrigin> {
    let urls = urls(typed, provenance);
    let section = &*subtable(typed, Table::SiteOrigin, typed.origin.as_ref());
    let balance = provenance.read(section, &options::ORIGIN_BALANCE);
    let host = provenance.read(section, &options::ORIGIN_HOST);
    derive(section, options::ORIGIN_HOST.spec.name, "the client's", provenance);
    let connections_max = provenance.read(section, &options::ORIGIN_CONNECTIONS_MAX);
    let in_flight_max = in_flight_max(section, connections_max, provenance);
    let adaptive = provenance.read(section, &options::ORIGIN_ADAPTIVE);
    let keep_alive = provenance.read(section, &options::ORIGIN_KEEP_ALIVE);
    let protocols = protocols(section, urls.as_deref(), provenance);
    let connect = provenance.read(section, &options::ORIGIN_CONNECT_TIMEOUT);
    let body = provenance.read(section, &options::ORIGIN_BODY_TIMEOUT);
    derive(section, options::ORIGIN_BODY_TIMEOUT.spec.name, "`fetch_timeout`", provenance);
    let resolve_every = provenance.read(section, &options::ORIGIN_RESOLVE_EVERY);
    let fields_max = provenance.read(&typed.site, &options::SITE_ORIGIN_FIELDS_MAX);
    let head_max = provenance.read(&typed.site, &options::SITE_ORIGIN_HEAD_MAX);
    let health = endpoint_health::checks(typed, provenance);
    let eject = endpoint_health::ejection(typed, section, provenance);
    let retry = endpoint_health::retries(typed, section, provenance);
    let budget = endpoint_health::budget(typed, provenance);
    let breaker = breaker(typed, provenance);
    let fallback = fallback(typed, folder, provenance);
    let compress = compress::compress(typed, provenance);
    let endpoints = endpoints(section, urls, host.as_deref(), folder, provenance);
    Some(ResolvedOrigin {
        endpoints: endpoints?,
        balance: balance?,
        host,
        connections_max: usize::try_from(connections_max?).ok()?,
        in_flight_max: in_flight_max?,
        adaptive: adaptive?,
        keep_alive: keep_alive?,
        fields_max: usize::try_from(fields_max?).ok()?,
        head_max: usize::try_from(head_max?).ok()?,
        protocols: protocols?,
        timeouts: PhaseTimeouts { connect: connect?, body },
        resolve_every: resolve_every?,
        health: health?,
        eject: eject?,
        retry: retry?,
        budget: budget?,
        breaker: breaker?,
        fallback: fallback?,
        compress: compress?,
    })
}

/// Limit on concurrent requests. The outer `None` means an error.
#[expect(clippy::option_option, reason = "an error differs from an absent option")]
fn in_flight_max(
    section: &Section,
    connections_max: Option<u64>,
    provenance: &mut Provenance<'_>,
) -> Option<Option<usize>> {
    let option = &options::ORIGIN_IN_FLIGHT_MAX;
    let own = provenance.read(section, option);
    derive(section, option.spec.name, "`connections_max`", provenance);
    match (own, connections_max?) {
        (None, _) => section.value(option.spec.name).is_none().then_some(None),
        (Some(own), most) if own > most => {
            let message = format!("{own} is above `connections_max` ({most}), which limits it");
            provenance.refuse(section, option.spec.name, message);
            None
        }
        (Some(own), _) => Some(Some(usize::try_from(own).ok()?)),
    }
}

/// Records the derived default of an option that was not typed.
pub(super) fn derive(section: &Section, name: &str, value: &str, provenance: &mut Provenance<'_>) {
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), value);
    }
}

/// URLs of the origin: the value of `origin` (which a flag may have set), or those of the table.
fn urls(typed: &SiteFile, provenance: &mut Provenance<'_>) -> Option<Vec<WeightedUrl>> {
    match &typed.origin {
        Some(table) if typed.site.value(options::SITE_ORIGIN.spec.name).is_none() => {
            provenance.read(table, &options::ORIGIN_URLS)
        }
        _ => {
            let url = provenance.read(&typed.site, &options::SITE_ORIGIN)?;
            Some(vec![WeightedUrl { url, weight: 1 }])
        }
    }
}

/// Versions of HTTP; each must be possible for a server.
fn protocols(
    section: &Section,
    urls: Option<&[WeightedUrl]>,
    provenance: &mut Provenance<'_>,
) -> Option<OriginProtocols> {
    let typed = provenance.read(section, &options::ORIGIN_PROTOCOLS)?;
    let protocols = match &*typed {
        [Protocol::Http1] => Ok(OriginProtocols::Http1),
        [Protocol::H2] => Ok(OriginProtocols::Http2),
        [Protocol::H2c] => Ok(OriginProtocols::PriorKnowledge),
        [Protocol::H2, Protocol::Http1] => Ok(OriginProtocols::Http2First),
        [Protocol::Http1, Protocol::H2] => Ok(OriginProtocols::Http1First),
        list if list.contains(&Protocol::H2c) => {
            Err("\"h2c\" must be alone, because nothing is negotiated without TLS")
        }
        _ => Err("must be one or two different versions, such as [\"h2\", \"http/1.1\"]"),
    };
    let urls = urls?;
    let has_tls = urls.iter().any(|one| one.url.is_tls());
    let has_plain = urls.iter().any(|one| !one.url.is_tls());
    let checked = match protocols {
        Ok(OriginProtocols::PriorKnowledge) if has_tls => {
            Err("\"h2c\" is HTTP/2 without TLS; an https:// server needs \"h2\"")
        }
        Ok(OriginProtocols::Http2) if has_plain => {
            Err("\"h2\" is agreed on in TLS; a server without https:// needs [\"h2c\"]")
        }
        Ok(OriginProtocols::Http2First | OriginProtocols::Http1First) if !has_tls => Err(
            "\"h2\" is agreed on in TLS, and no server is https://; [\"h2c\"] is HTTP/2 without TLS",
        ),
        protocols => protocols,
    };
    match checked {
        Ok(protocols) => Some(protocols),
        Err(message) => {
            provenance.refuse(section, options::ORIGIN_PROTOCOLS.spec.name, message);
            None
        }
    }
}

/// Servers of the origin, with their TLS clients.
fn endpoints(
    section: &Section,
    urls: Option<Vec<WeightedUrl>>,
    host: Option<&str>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<ResolvedEndpoint>> {
    let settings = tls_settings(section, folder, provenance);
    let own_name = provenance.read(section, &options::ORIGIN_SERVER_NAME);
    let host = host.filter(|host| is_name(host)).map(without_port);
    let fixed_name = own_name.as_deref().or(host);
    let urls = urls?;
    let names: Vec<&str> = match fixed_name {
        Some(name) => vec![name],
        None => urls.iter().filter_map(|one| one.url.host()).collect(),
    };
    derive(section, options::ORIGIN_SERVER_NAME.spec.name, &names.join(", "), provenance);
    let settings = settings?;
    let client = match urls.iter().any(|one| one.url.is_tls()) {
        true => Some(tls_client(section, settings, provenance)?),
        false => None,
    };
    let endpoint = |WeightedUrl { url, weight }| {
        let tls = match client.clone().filter(|_| url.is_tls()) {
            Some(client) => {
                let name = fixed_name.or_else(|| url.host()).unwrap_or_default();
                let Ok(name) = ServerName::try_from(name.to_owned()) else {
                    let message = format!("\"{name}\" is not a name of a server certificate");
                    provenance.refuse(section, options::ORIGIN_SERVER_NAME.spec.name, message);
                    return None;
                };
                Some(EndpointTls { name, client })
            }
            None => None,
        };
        Some(ResolvedEndpoint { url, weight, tls })
    };
    urls.into_iter().map(endpoint).collect()
}

/// Settings of the TLS client of `https://` servers.
fn tls_settings(
    section: &Section,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ClientSettings> {
    let ca = provenance.read(section, &options::ORIGIN_CA);
    derive(section, options::ORIGIN_CA.spec.name, "the roots of Mozilla", provenance);
    let verify = provenance.read(section, &options::ORIGIN_VERIFY);
    let certificate = pair(section, folder, provenance);
    Some(ClientSettings {
        authorities: authorities(ca.as_deref(), folder),
        verify: verify?,
        certificate: certificate?,
    })
}

/// Authorities that a value of `ca` names; a relative path begins at `folder`.
pub(crate) fn authorities(ca: Option<&Path>, folder: &Path) -> Authorities {
    match ca {
        None => Authorities::Mozilla,
        Some(path) if path.as_os_str() == SYSTEM => Authorities::System,
        Some(path) => Authorities::File(folder.join(path)),
    }
}

/// TLS client of `https://` servers; an error names the option of its file.
fn tls_client(
    section: &Section,
    settings: ClientSettings,
    provenance: &mut Provenance<'_>,
) -> Option<TlsClient> {
    match TlsClient::new(settings) {
        Ok(client) => Some(client),
        Err(error) => {
            let option = match error.role {
                ClientFile::Authorities => options::ORIGIN_CA.spec.name,
                ClientFile::Certificate => options::ORIGIN_CLIENT_CERTIFICATE.spec.name,
                ClientFile::Key => options::ORIGIN_CLIENT_KEY.spec.name,
            };
            provenance.refuse(section, option, error.to_string());
            None
        }
    }
}

/// Returns `true` if the host of a `Host` field is a name and not an IP address.
fn is_name(host: &str) -> bool {
    !host.starts_with('[') && without_port(host).parse::<std::net::IpAddr>().is_err()
}

fn without_port(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Files of the client certificate. The outer `None` means an error.
#[expect(clippy::option_option, reason = "an error differs from no certificate")]
fn pair(
    section: &Section,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Option<CertificateFiles>> {
    let (certificate, key) = (&options::ORIGIN_CLIENT_CERTIFICATE, &options::ORIGIN_CLIENT_KEY);
    let found = (provenance.read(section, certificate), provenance.read(section, key));
    let (certificate, key) = (certificate.spec.name, key.spec.name);
    derive(section, certificate, "none", provenance);
    derive(section, key, "none", provenance);
    match found {
        (Some(certificate), Some(key)) => Some(Some(CertificateFiles {
            certificate: folder.join::<PathBuf>(certificate),
            key: folder.join::<PathBuf>(key),
        })),
        (Some(_), None) if section.value(key).is_none() => {
            let message = "needs `client_key`: the file with the private key of this certificate";
            provenance.refuse(section, certificate, message);
            None
        }
        (None, Some(_)) if section.value(certificate).is_none() => {
            let message = "needs `client_certificate`: the file with the certificate of this key";
            provenance.refuse(section, key, message);
            None
        }
        (None, None) if section.value(certificate).is_none() && section.value(key).is_none() => {
            Some(None)
        }
        _ => None,
    }
}

/// Circuit breaker of the origin. The outer `None` means an error.
#[expect(clippy::option_option, reason = "an error differs from a disabled breaker")]
fn breaker(typed: &SiteFile, provenance: &mut Provenance<'_>) -> Option<Option<BreakerSettings>> {
    let section = &*subtable(typed, Table::SiteBreaker, typed.breaker.as_ref());
    let enabled = provenance.read(section, &options::BREAKER_ENABLED);
    let failed_percent = provenance.read(section, &options::BREAKER_ERROR_THRESHOLD);
    let calls_min = provenance.read(section, &options::BREAKER_MINIMUM_REQUESTS);
    let window = provenance.read(section, &options::BREAKER_WINDOW);
    let window_calls = provenance.read(section, &options::BREAKER_WINDOW_CALLS);
    let open_for = provenance.read(section, &options::BREAKER_OPEN_FOR);
    let statuses = provenance.read(section, &options::BREAKER_FAILURE_STATUSES);
    let slow_call = provenance.read(section, &options::BREAKER_SLOW_CALL);
    let slow_percent = provenance.read(section, &options::BREAKER_SLOW_THRESHOLD);
    let trials = provenance.read(section, &options::BREAKER_TRIALS);
    let small = |number: u64| u32::try_from(number).ok();
    let (calls_min, window_calls) = (calls_min?, window_calls?);
    if window_calls > 0 && window_calls < calls_min {
        let message = format!(
            "{window_calls} is less than `minimum_requests` ({calls_min}), so that the breaker would \
             never open"
        );
        provenance.refuse(section, options::BREAKER_WINDOW_CALLS.spec.name, message);
        return None;
    }
    let rules = CallRules {
        failed_percent: small(failed_percent?)?,
        calls_min: small(calls_min)?,
        window: match window_calls {
            0 => CallWindow::Time(window?),
            calls => CallWindow::Calls(small(calls)?),
        },
        slow_call: slow_call?,
        slow_percent: small(slow_percent?)?,
        open_for: open_for?,
        trials: small(trials?)?,
    };
    let failure_statuses = statuses?.into_iter().filter_map(|status| u16::try_from(status).ok());
    let failure_statuses = failure_statuses.collect();
    Some(enabled?.then_some(BreakerSettings { rules, failure_statuses }))
}

/// Response while the origin is unavailable. The outer `None` means an error.
#[expect(clippy::option_option, reason = "an error differs from an absent table")]
fn fallback(
    typed: &SiteFile,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Option<Fallback>> {
    let Some(section) = &typed.fallback else { return Some(None) };
    let status = provenance.read(section, &options::FALLBACK_STATUS);
    let body = provenance.read(section, &options::FALLBACK_BODY);
    let file = provenance.read(section, &options::FALLBACK_BODY_FILE);
    let file_name = options::FALLBACK_BODY_FILE.spec.name;
    derive(section, file_name, "none", provenance);
    let content_type = provenance.read(section, &options::FALLBACK_CONTENT_TYPE);
    let retry_after = provenance.read(section, &options::FALLBACK_RETRY_AFTER);
    let body = match file {
        None if section.value(file_name).is_some() => return None,
        None => body?.into_bytes(),
        Some(_) if section.value(options::FALLBACK_BODY.spec.name).is_some() => {
            provenance.refuse(
                section,
                file_name,
                "cannot be combined with `body`; keep one of both",
            );
            return None;
        }
        Some(path) => {
            let path = folder.join(path);
            match read_bounded(&path, BODY_FILE_MAX) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let message = format!("{} cannot be read: {error}", path.display());
                    provenance.refuse(section, file_name, message);
                    return None;
                }
            }
        }
    };
    let status = u16::try_from(status?).ok();
    Some(Some(Fallback {
        status: status.and_then(|status| StatusCode::from_u16(status).ok())?,
        body: body.into(),
        content_type: content_type?,
        retry_after: retry_after?,
    }))
}
