//! Lists of URLs: lines of URLs, access logs and sitemaps.

use std::collections::HashSet;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

use crate::log_line::LogLine;

/// Maximum number of URLs of a list. Each takes about a hundred bytes of memory.
const URLS_MAX: usize = 5_000_000;

/// URL to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WarmUrl {
    pub(crate) is_https: bool,
    /// Host and port; `None` for a line of a log without them.
    pub(crate) authority: Option<Authority>,
    pub(crate) target: PathAndQuery,
}

/// Format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListFormat {
    /// One URL per line; empty lines and lines that begin with `#` do not count.
    Lines,
    /// Access log: JSON (also of Caddy), logfmt, common or combined. Only GET requests count.
    Log,
}

/// URLs of a list, each once, in the order of their first line.
#[derive(Debug, Default)]
pub(crate) struct WarmList {
    pub(crate) urls: Vec<WarmUrl>,
    known: HashSet<WarmUrl>,
    /// Number of lines that are no URL, or no request that can be repeated.
    pub(crate) unusable: usize,
}

impl WarmList {
    pub(crate) fn parse(text: &str, format: ListFormat) -> Self {
        let mut list = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match format {
                ListFormat::Lines if line.starts_with('#') => {}
                ListFormat::Lines => list.add(WarmUrl::parse(line)),
                ListFormat::Log => list.add(of_log(line)),
            }
        }
        list
    }

    fn add(&mut self, url: Option<WarmUrl>) {
        match url {
            Some(url) if self.urls.len() < URLS_MAX => {
                if self.known.insert(url.clone()) {
                    self.urls.push(url);
                }
            }
            _ => self.unusable += 1,
        }
    }

    /// Adds the locations of a sitemap.
    pub(crate) fn add_locations(&mut self, locations: &[String]) {
        for location in locations {
            self.add(WarmUrl::parse(location));
        }
    }
}

impl WarmUrl {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_https = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let target = uri.path_and_query().cloned();
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Some(Self { is_https, authority: Some(authority.clone()), target })
    }

    fn of_parts(method: &str, host: Option<&str>, target: &str) -> Option<Self> {
        // A secret parameter is not in the log, so that its request cannot be repeated.
        if method != "GET" || target.contains("[redacted]") || !target.starts_with('/') {
            return None;
        }
        let authority = host.map(str::parse).transpose().ok()?;
        Some(Self { is_https: false, authority, target: target.parse().ok()? })
    }
}

/// URL of one line of an access log.
fn of_log(line: &str) -> Option<WarmUrl> {
    let line = LogLine::parse(line)?;
    WarmUrl::of_parts(&line.method, line.host.as_deref(), &line.target)
}

/// Kind of a sitemap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SitemapKind {
    /// Locations of pages.
    Pages,
    /// Locations of further sitemaps.
    Index,
}

/// Returns the kind of a sitemap (sitemaps.org) and its locations; a text file has one per line.
pub(crate) fn locations(text: &str) -> (SitemapKind, Vec<String>) {
    if !text.trim_start().starts_with('<') {
        return (SitemapKind::Pages, text.lines().map(|line| line.trim().to_owned()).collect());
    }
    let kind = match text.contains("<sitemapindex") {
        true => SitemapKind::Index,
        false => SitemapKind::Pages,
    };
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("<loc>") {
        let Some((location, after)) = after.split_once("</loc>") else { break };
        let location = location.trim();
        let plain = location.strip_prefix("<![CDATA[").and_then(|it| it.strip_suffix("]]>"));
        found.push(plain.map_or_else(|| unescaped(location), |plain| plain.trim().to_owned()));
        rest = after;
    }
    (kind, found)
}

/// Replaces the entities that a URL in a sitemap may have.
fn unescaped(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &WarmList) -> Vec<String> {
        let shown = |url: &WarmUrl| {
            let scheme = if url.is_https { "https" } else { "http" };
            let authority = url.authority.as_ref().map_or("-", Authority::as_str);
            format!("{scheme} {authority} {}", url.target)
        };
        list.urls.iter().map(shown).collect()
    }

    #[test]
    fn lines_are_urls_each_once() {
        let list = WarmList::parse(
            "# pages\nhttp://a.example/x?y=1\n\n  https://b.example:8443\nhttp://a.example/x?y=1\n\
             /path\nftp://a/\nhttp://u:p@a/\nno url\n",
            ListFormat::Lines,
        );
        assert_eq!(shown(&list), ["http a.example /x?y=1", "https b.example:8443 /"]);
        assert_eq!(list.unusable, 4);
    }

    #[test]
    fn logs_of_all_formats_are_read() {
        let list = WarmList::parse(
            "{\"method\":\"GET\",\"host\":\"a.example\",\"target\":\"/json?b=1\"}\n\
             ts=1 site=shop host=a.example method=GET target=\"/logfmt?b=1\" status=200\n\
             127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /common HTTP/1.1\" 200 2326\n\
             127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"POST /form HTTP/1.1\" 200 2326\n\
             127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"-\" 400 0\n\
             {\"method\":\"GET\",\"target\":\"/x?token=[redacted]\"}\n{broken\nwords\n",
            ListFormat::Log,
        );
        let expected = ["http a.example /json?b=1", "http a.example /logfmt?b=1", "http - /common"];
        assert_eq!((shown(&list), list.unusable), (expected.map(str::to_owned).into(), 5));
    }

    #[test]
    fn a_sitemap_has_the_locations_of_pages_or_of_sitemaps() {
        let pages = "<?xml version=\"1.0\"?>\n<urlset><url><loc> http://a/?x=1&amp;y=2 </loc></url>\
                     <url><loc><![CDATA[http://a/&]]></loc></url><url><loc>cut";
        let expected = ["http://a/?x=1&y=2", "http://a/&"].map(str::to_owned).to_vec();
        assert_eq!(locations(pages), (SitemapKind::Pages, expected));
        let index = "<sitemapindex><sitemap><loc>http://a/1.xml</loc></sitemap></sitemapindex>";
        assert_eq!(locations(index), (SitemapKind::Index, vec!["http://a/1.xml".to_owned()]));
        assert_eq!(locations("http://a/\nhttp://b/").1, ["http://a/", "http://b/"]);
    }
}
