//! Readers of the servers of an origin and of their health checks.

use super::{COUNT, ORIGIN, Reader, bracketed, each, list, quoted, refuse, text};
use crate::config::origin_url::OriginUrl;
use crate::config::problem::Problems;
use crate::config::suggestion::nearest;
use crate::config::typed::{Member, Raw, Typed};
use http::uri::PathAndQuery;
use std::ops::RangeInclusive;

/// Maximum number of endpoints of one origin.
const ENDPOINTS_MAX: usize = 64;

/// Maximum weight of an endpoint.
const WEIGHT_MAX: u64 = 1_000;

/// Largest status code.
const STATUS_MAX: u16 = 599;

/// Smallest status code of a final response.
const STATUS_MIN: u16 = 200;

/// Members of the table of one endpoint.
const MEMBERS: [&str; 2] = ["url", "weight"];

/// URL of an endpoint, with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WeightedUrl {
    /// URL of the server.
    pub(crate) url: OriginUrl,
    /// Share of the requests, relative to the other endpoints; at least one.
    pub(crate) weight: u32,
}

impl WeightedUrl {
    /// Returns the endpoint as it would be typed.
    fn typed(&self) -> String {
        match self.weight {
            1 => format!("\"{}\"", self.url),
            weight => format!("{{ url = \"{}\", weight = {weight} }}", self.url),
        }
    }
}

/// Reads the list; reports every error in it.
fn read(typed: &Typed, problems: &mut Problems) -> Option<Vec<WeightedUrl>> {
    let Raw::List(items) = &typed.raw else {
        let message = format!("must be a list in [ ], not {}", typed.raw.shape());
        return refuse(typed, problems, message);
    };
    let message = match items.len() {
        0 => Some("must name the origin, such as \"http://127.0.0.1:3000\"".to_owned()),
        1..=ENDPOINTS_MAX => None,
        more => Some(format!("has {more} URLs; at most {ENDPOINTS_MAX} are possible")),
    };
    if let Some(message) = message {
        return refuse(typed, problems, message);
    }
    let endpoints = each(items, problems, endpoint)?;
    for (number, item) in items.iter().enumerate() {
        let address = endpoints[number].url.address();
        let same = endpoints[..number].iter().position(|other| other.url.address() == address);
        if let Some(same) = same {
            let url = &endpoints[same].url;
            let message =
                format!("is the server of urls[{same}] ({url}); remove one, or use `weight`");
            return refuse(item, problems, message);
        }
    }
    Some(endpoints)
}

fn endpoint(typed: &Typed, problems: &mut Problems) -> Option<WeightedUrl> {
    match &typed.raw {
        Raw::Text(_) => Some(WeightedUrl { url: (ORIGIN.read)(typed, problems)?, weight: 1 }),
        Raw::Table(members) => from_table(typed, members, problems),
        other => {
            let example = "{ url = \"https://b.internal\", weight = 2 }";
            let message =
                format!("must be a URL or a table such as {example}, not {}", other.shape());
            refuse(typed, problems, message)
        }
    }
}

fn from_table(typed: &Typed, members: &[Member], problems: &mut Problems) -> Option<WeightedUrl> {
    let (mut url, mut weight, mut is_valid) = (None, Some(1), true);
    for Member { name, place, value } in members {
        match name.as_str() {
            "url" => url = Some((ORIGIN.read)(value, problems)),
            "weight" => weight = read_weight(value, problems),
            _ => {
                is_valid = false;
                let message = match nearest(MEMBERS.into_iter(), name) {
                    Some(near) => format!("unknown field; did you mean \"{near}\"?"),
                    None => "unknown field; the fields of an endpoint are url, weight".to_owned(),
                };
                problems.report(*place, &value.path, message);
            }
        }
    }
    let Some(url) = url else {
        return refuse(typed, problems, "needs `url`: the URL of the server");
    };
    let (url, weight) = (url?, weight?);
    is_valid.then_some(WeightedUrl { url, weight })
}

pub(crate) const ORIGINS: Reader<Vec<WeightedUrl>> = Reader {
    kind: "list of URLs, or of tables such as `{ url = \"https://b.internal\", weight = 2 }`",
    read,
    show: |urls| bracketed(urls, WeightedUrl::typed),
    order: None,
};

pub(crate) const CHECK_PATH: Reader<PathAndQuery> = Reader {
    kind: "path, with or without a query",
    read: |typed, problems| {
        text(typed, problems, |path| match path.parse::<PathAndQuery>() {
            Ok(parsed) if path.starts_with('/') && !path.contains('#') => Ok(parsed),
            _ => Err(format!("\"{path}\" is not a path such as \"/healthz\"")),
        })
    },
    show: |path| quoted(path),
    order: None,
};

pub(crate) const STATUS_RANGES: Reader<Vec<RangeInclusive<u16>>> = Reader {
    kind: "list of status codes and ranges, such as `[\"200-399\"]`",
    read: |typed, problems| {
        let ranges = list(typed, problems, |item, problems| text(item, problems, status_range))?;
        match ranges.is_empty() {
            true => refuse(typed, problems, "must name at least one status code"),
            false => Some(ranges),
        }
    },
    show: |ranges| {
        bracketed(ranges, |range| match (range.start(), range.end()) {
            (first, last) if first == last => quoted(first),
            (first, last) => quoted(format_args!("{first}-{last}")),
        })
    },
    order: None,
};

fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if STATUS_MIN <= first && first <= last && last <= STATUS_MAX => {
            Ok(first..=last)
        }
        _ => Err(format!(
            "\"{text}\" is not a status code or a range from {STATUS_MIN} to {STATUS_MAX}, such as \
             \"200-399\""
        )),
    }
}

fn read_weight(typed: &Typed, problems: &mut Problems) -> Option<u32> {
    let weight = (COUNT.read)(typed, problems)?;
    match u32::try_from(weight) {
        Ok(small) if (1..=WEIGHT_MAX).contains(&weight) => Some(small),
        _ => {
            let message = format!("{weight} must be at least 1 and at most {WEIGHT_MAX}");
            refuse(typed, problems, message)
        }
    }
}
