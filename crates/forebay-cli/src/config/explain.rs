//! `forebay check FILE --explain URL`: what the rules of a site do with one request.

mod shown;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::{Context, bail, ensure};
use forebay_rules::apply::{filter_cookies, target};
use forebay_rules::request::cookies;
use forebay_rules::{Ended, KeyedFields, Kind, Outcome, Request, Rule, Target};
use forebay_semantics::{PeerAddress, Scheme};
use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;

use super::host::HostPattern;
use super::resolved::{ResolvedConfig, ResolvedSite};
use shown::{conditions, value};

/// Request to explain, as it is typed.
#[derive(Debug, Clone)]
pub(crate) struct Explained {
    /// Absolute URL.
    pub(crate) url: String,
    /// Header fields, as `Name: value`.
    pub(crate) fields: Vec<String>,
    /// Method.
    pub(crate) method: String,
    /// Address of the client.
    pub(crate) client: Option<std::net::IpAddr>,
    /// Response of the origin, as `STATUS Name: value; Name: value`.
    pub(crate) response: Option<String>,
}

/// Effect of the rules on one request.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Explanation {
    site: String,
    target: String,
    /// Parameters of the client that key and origin do not have.
    removed: Vec<String>,
    key: Vec<String>,
    rules: Vec<RuleRow>,
    lookup: String,
    /// Cookies that the origin does not get.
    dropped_cookies: Vec<String>,
    settings: Vec<SettingRow>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct RuleRow {
    name: String,
    matches: bool,
    conditions: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct SettingRow {
    name: &'static str,
    value: String,
    rule: String,
    /// Rules whose values this one replaces.
    over: Vec<String>,
}

/// Client request in parts.
struct Parts {
    scheme: Scheme,
    host: String,
    target: String,
    method: Method,
    headers: HeaderMap,
    client: PeerAddress,
}

impl Explained {
    /// Applies the rules of a configuration to the request.
    ///
    /// # Errors
    /// If the request is malformed or belongs to no site.
    pub(crate) fn by(&self, config: &ResolvedConfig) -> anyhow::Result<Explanation> {
        let parts = self.parts()?;
        let (site, stripped) = site(config, &parts)?;
        let set = &site.rules.set;
        let request = Request {
            method: &parts.method,
            scheme: parts.scheme,
            host: &parts.host,
            target: &stripped,
            headers: &parts.headers,
            client: parts.client,
            operation: None,
        };
        let matched = set.evaluate(&request);
        let outcome = match &self.response {
            Some(response) => {
                let (status, headers) = response_of(response)?;
                set.response_outcome(&matched, status, &headers)
            }
            None => set.outcome(&matched),
        };
        let of_request = set.outcome(&matched);
        let facts = super::rules::facts(
            Some(&site.ignore_query),
            Some(site.sort_query),
            Some(site.ignore_scheme),
        );
        let after = target(&facts, &of_request, Cow::Borrowed(&stripped));
        let (after, is_valid) = match after {
            Ok(after) => (after.into_owned(), true),
            Err(_) => (stripped.clone(), false),
        };
        let mut key = vec![parts.scheme.to_string(), parts.host.clone(), after.clone()];
        set.key_parts(&matched, false, |part| {
            key.push(format!("rule {:02x}", part.last().copied().unwrap_or_default()));
        });
        let keyed = KeyedFields::of(&of_request);
        let mut headers = parts.headers.clone();
        let too_long = keyed.as_ref().is_some_and(|keyed| keyed.normalise(&mut headers).is_err());
        if let Some(keyed) = &keyed {
            keyed.parts(&headers, |part| key.push(shown_part(part)));
            if keyed.user(&headers).is_some() {
                key.push("+ user".to_owned());
            }
        }
        let applying: Vec<usize> = outcome.rules().collect();
        let row = |(n, rule): (usize, &Rule)| RuleRow {
            name: rule.name.to_string(),
            matches: applying.contains(&n),
            conditions: conditions(rule),
        };
        let lookup = match lookup(&of_request, &parts, &stripped, is_valid) {
            yes if too_long && yes == "yes" => {
                "no: bypass, a key part is longer than 256 bytes".into()
            }
            lookup => lookup,
        };
        Ok(Explanation {
            site: site.id.clone(),
            removed: removed(&stripped, &after),
            target: after,
            key,
            rules: set.rules().iter().enumerate().map(row).collect(),
            dropped_cookies: if lookup.starts_with("yes") {
                dropped(&of_request, &parts.headers)
            } else {
                Vec::new()
            },
            lookup,
            settings: settings(&outcome, set.rules()),
        })
    }

    fn parts(&self) -> anyhow::Result<Parts> {
        let uri: Uri = self.url.parse().with_context(|| format!("--explain {}", self.url))?;
        let scheme = uri.scheme_str().and_then(Scheme::parse);
        let scheme =
            scheme.context("--explain needs a URL that begins with http:// or https://")?;
        let host = uri.host().context("--explain needs a URL with a host")?.to_ascii_lowercase();
        let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let method = Method::from_bytes(self.method.as_bytes())
            .with_context(|| format!("\"{}\" is not a method", self.method))?;
        let mut headers = HeaderMap::new();
        for line in &self.fields {
            let (name, value) = field(line)?;
            headers.append(name, value);
        }
        let client = self.client.map_or(PeerAddress::Unix, PeerAddress::from);
        Ok(Parts { scheme, host, target, method, headers, client })
    }
}

/// Returns a key part as text: `header x-country=de`, without a value if the field is absent.
fn shown_part(part: &[u8]) -> String {
    let (kind, rest) = match part {
        [b'c', rest @ ..] => ("cookie", rest),
        [_, rest @ ..] => ("header", rest),
        [] => ("", part),
    };
    let text = String::from_utf8_lossy(rest);
    let (name, values) = text.split_once('\0').unwrap_or((&text, ""));
    match values.strip_prefix('\u{1}') {
        Some(values) => format!("+ {kind} {name}={}", values.replace('\u{1}', ", ")),
        None => format!("+ {kind} {name} absent"),
    }
}

fn field(line: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let (name, value) =
        line.split_once(':').with_context(|| format!("\"{line}\" must be \"Name: value\""))?;
    let name = HeaderName::from_bytes(name.trim().as_bytes());
    let value = HeaderValue::from_str(value.trim());
    let (Ok(name), Ok(value)) = (name, value) else { bail!("\"{line}\" is not a header field") };
    Ok((name, value))
}

fn response_of(text: &str) -> anyhow::Result<(StatusCode, HeaderMap)> {
    let text = text.trim();
    let (status, fields) = text.split_once(' ').unwrap_or((text, ""));
    let status = status.parse::<StatusCode>();
    let status = status.with_context(|| format!("response \"{text}\" must begin with a status"))?;
    let lines = fields.split(';').map(str::trim).filter(|line| !line.is_empty());
    let headers = lines.map(field).collect::<anyhow::Result<HeaderMap>>()?;
    Ok((status, headers))
}

/// Returns the site of a request, and its target without the site's prefix.
fn site<'c>(
    config: &'c ResolvedConfig,
    parts: &Parts,
) -> anyhow::Result<(&'c ResolvedSite, String)> {
    let rank = |site: &ResolvedSite| {
        let host = site.hosts.iter().filter_map(|pattern| match pattern {
            HostPattern::Exact(host) => (*host == parts.host).then_some(usize::MAX),
            HostPattern::Below(domain) => {
                let rest = parts.host.strip_suffix(domain.as_str());
                rest.is_some_and(|rest| rest.ends_with('.')).then_some(domain.len())
            }
        });
        let every = site.hosts.is_empty().then_some(0);
        let host = host.max().or(every)?;
        let prefix = site.prefix.as_deref().unwrap_or_default();
        let rest = parts.target.strip_prefix(prefix)?;
        let is_below = rest.is_empty() || rest.starts_with(['/', '?']);
        is_below.then_some((host, prefix.len()))
    };
    let ranked = config.sites.iter().filter_map(|site| Some((rank(site)?, site)));
    let found = ranked.max_by_key(|(rank, _)| *rank);
    let Some((_, site)) = found else {
        bail!("no site answers for host {} and target {}", parts.host, parts.target);
    };
    let prefix = site.prefix.as_deref().unwrap_or_default();
    let rest = parts.target.strip_prefix(prefix).unwrap_or_default();
    ensure!(rest.len() <= parts.target.len(), "the target is shorter than the prefix");
    let slash = if rest.starts_with('/') { "" } else { "/" };
    Ok((site, format!("{slash}{rest}")))
}

fn removed(before: &str, after: &str) -> Vec<String> {
    let left: Vec<(&str, &str)> = Target::new(after).parameters().collect();
    let lost = Target::new(before).parameters().filter(|parameter| !left.contains(parameter));
    lost.map(|(name, _)| name.to_owned()).collect()
}

fn dropped(outcome: &Outcome<'_>, headers: &HeaderMap) -> Vec<String> {
    let mut kept = HeaderMap::new();
    headers.get_all(COOKIE).iter().for_each(|line| {
        kept.append(COOKIE, line.clone());
    });
    filter_cookies(outcome, &mut kept);
    let left: Vec<&str> = cookies(&kept).map(|(name, _)| name).collect();
    let all = cookies(headers).map(|(name, _)| name);
    all.filter(|name| !left.contains(name)).map(str::to_owned).collect()
}

fn lookup(outcome: &Outcome<'_>, parts: &Parts, target: &str, is_valid: bool) -> String {
    if outcome.purge().is_some() {
        let rule = outcome.rule_of(Kind::Purge).map_or("", |rule| &rule.name);
        return format!("no: purge ({rule})");
    }
    if let Some(ended) = outcome.ended(Target::new(target).path) {
        return match ended {
            Ended::Redirect(redirect) => format!("no: redirect {}", redirect.status.as_u16()),
            Ended::Respond(respond) => format!("no: response {}", respond.status.as_u16()),
        };
    }
    if !is_valid {
        return "no: 400, a rule makes an invalid target".to_owned();
    }
    if outcome.bypasses() {
        let rule = outcome.rule_of(Kind::Bypass).map_or("", |rule| &rule.name);
        return format!("no: bypass ({rule})");
    }
    match parts.method {
        Method::GET | Method::HEAD => "yes".to_owned(),
        _ => format!("no: method {}", parts.method),
    }
}

fn settings(outcome: &Outcome<'_>, rules: &[Rule]) -> Vec<SettingRow> {
    let applying: Vec<usize> = outcome.rules().collect();
    let row = |kind: &Kind| {
        let (rule, setting) = (outcome.rule_of(*kind)?, outcome.last(*kind)?);
        let others = applying.iter().filter_map(|n| rules.get(*n));
        let over = others.filter(|other| other.name != rule.name && other.setting(*kind).is_some());
        Some(SettingRow {
            name: kind.name(),
            value: value(setting),
            rule: rule.name.to_string(),
            over: over.map(|other| other.name.to_string()).collect(),
        })
    };
    Kind::ALL.iter().filter_map(row).collect()
}

impl Explanation {
    /// Returns the explanation as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:9} {}", value.trim_end());
        };
        let removed = match &*self.removed {
            [] => String::new(),
            names => format!("  without {}", names.join(", ")),
        };
        line("site", self.site.clone());
        line("target", format!("{}{removed}", self.target));
        line("key", self.key.join(" "));
        let width = self.rules.iter().map(|rule| rule.name.len()).max().unwrap_or_default();
        for (n, rule) in self.rules.iter().enumerate() {
            let matches = if rule.matches { "matches  " } else { "no match " };
            let (name, number) = (&rule.name, n + 1);
            line(
                if n == 0 { "rules" } else { "" },
                format!("{number:3} {name:width$}  {matches} {}", rule.conditions),
            );
        }
        let cookies = match &*self.dropped_cookies {
            [] => String::new(),
            names => format!("; the origin is not sent: cookie {}", names.join(", ")),
        };
        line("lookup", format!("{}{cookies}", self.lookup));
        for setting in &self.settings {
            let over = match &*setting.over {
                [] => String::new(),
                rules => format!(", over {}", rules.join(", ")),
            };
            line(setting.name, format!("{} {}{over}", setting.value, setting.rule));
        }
        text
    }
}
