//! Path and query parameters of a request to the sample origin.

use super::etag::ETag;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use std::str::FromStr;
use std::time::Duration;

/// Maximum of `delay` and `drip` in milliseconds, above every timeout that a test waits for.
const WAIT_MAX_MS: u64 = 600_000;
/// Maximum of `size` in bytes, above every object limit of a cache.
const SIZE_MAX: u64 = 4 << 30;
/// Maximum number of items in `vary` and `tag`.
const LIST_MAX: usize = 64;
/// `Cache-Control` without the parameter `cc`: long enough to see a hit, short enough to see it
/// expire.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("max-age=60");

/// Resource that a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// `…/items/NAME`; holds the name, percent-encoded as in the path.
    Item(&'a str),
    /// `…/stats`
    Stats,
    /// Any other path; answered with 404.
    Unknown,
}

impl<'a> Target<'a> {
    /// Reads a path. A prefix before `/items/` or `/stats` is ignored, because a cache may forward
    /// it.
    pub(super) fn of(path: &'a str) -> Self {
        match path.split_once("/items/") {
            Some((_, name)) if !name.is_empty() => Self::Item(name),
            Some(_) => Self::Unknown,
            None if path.ends_with("/stats") => Self::Stats,
            None => Self::Unknown,
        }
    }
}

/// Response that the query parameters of an item describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Delay before the head.
    pub(super) delay: Duration,
    /// `Cache-Control`; `None` sends none.
    pub(super) cache_control: Option<HeaderValue>,
    /// Size of the body in bytes; without it the body is a sentence.
    pub(super) size: Option<u64>,
    pub(super) status: StatusCode,
    pub(super) etag: Option<ETag>,
    /// Request fields that the body depends on.
    pub(super) vary: Vec<HeaderName>,
    pub(super) vary_value: Option<HeaderValue>,
    /// `Surrogate-Key`
    pub(super) tags: Option<HeaderValue>,
    /// `Set-Cookie`
    pub(super) cookie: Option<HeaderValue>,
    /// Time over which the body is spread.
    pub(super) drip: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            cache_control: Some(CACHE_CONTROL),
            size: None,
            status: StatusCode::OK,
            etag: None,
            vary: Vec::new(),
            vary_value: None,
            tags: None,
            cookie: None,
            drip: Duration::ZERO,
        }
    }
}

impl Parameters {
    /// Reads the parameters of a URL. Unknown names are ignored; of equal names the last one counts.
    ///
    /// # Errors
    /// One sentence that names the wrong parameter, for the body of a 400 response.
    pub(super) fn of(uri: &Uri) -> Result<Self, String> {
        let mut parameters = Self::default();
        for parameter in uri.query().unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decoded(value)
                .ok_or_else(|| format!("{name}: \"{value}\" is not percent-encoded correctly\n"))?;
            parameters.set(name, &value).map_err(|reason| format!("{name}: {reason}\n"))?;
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        match name {
            "delay" => self.delay = wait(value)?,
            "drip" => self.drip = wait(value)?,
            "size" => self.size = Some(number(value, 0..=SIZE_MAX)?),
            "status" => self.status = status(value)?,
            "cc" => self.cache_control = field_value(value)?,
            "cookie" => self.cookie = field_value(value)?,
            "tag" => self.tags = field_value(&spaced(list(value)?))?,
            "vary" => {
                self.vary = field_names(value)?;
                self.vary_value = field_value(value)?;
            }
            "etag" => {
                let tag =
                    ETag::parse(value).ok_or("it must be an entity tag without quotes inside")?;
                self.etag = Some(tag);
            }
            _ => {}
        }
        Ok(())
    }
}

fn wait(value: &[u8]) -> Result<Duration, String> {
    number(value, 0..=WAIT_MAX_MS).map(Duration::from_millis)
}

fn status(value: &[u8]) -> Result<StatusCode, String> {
    let code = number(value, 200..=599)?;
    StatusCode::from_str(&code.to_string()).map_err(|error| error.to_string())
}

fn number(value: &[u8], bounds: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number
        .filter(|number| bounds.contains(number))
        .ok_or_else(|| format!("it must be a number from {} to {}", bounds.start(), bounds.end()))
}

/// Value of a field; an empty parameter means that the field is absent.
fn field_value(value: &[u8]) -> Result<Option<HeaderValue>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let field = HeaderValue::from_bytes(value);
    field.map(Some).map_err(|_| "control characters are not allowed in a field value".to_owned())
}

fn field_names(value: &[u8]) -> Result<Vec<HeaderName>, String> {
    let name = |name: &&[u8]| **name != *b"*";
    let names = list(value)?.into_iter().filter(name);
    let parsed: Result<Vec<_>, _> = names.map(HeaderName::from_bytes).collect();
    parsed.map_err(|_| "it must be a list of field names separated by commas".to_owned())
}

fn list(value: &[u8]) -> Result<Vec<&[u8]>, String> {
    let items = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let items: Vec<&[u8]> = items.filter(|item| !item.is_empty()).take(LIST_MAX + 1).collect();
    if items.len() > LIST_MAX {
        return Err(format!("it must have at most {LIST_MAX} items"));
    }
    Ok(items)
}

fn spaced(items: Vec<&[u8]>) -> Vec<u8> {
    items.join(&b' ')
}

/// Decodes percent-encoding, and `+` as a space, which forms and `curl --data-urlencode` send.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let is_valid = text.split('%').skip(1).all(is_escape);
    is_valid.then(|| percent_decode_str(&text.replace('+', " ")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(query: &str) -> Result<Parameters, String> {
        Parameters::of(&format!("/items/a?{query}").parse().unwrap())
    }

    #[test]
    fn a_prefix_is_no_part_of_the_target() {
        assert_eq!(Target::of("/items/a"), Target::Item("a"));
        assert_eq!(Target::of("/shop/v1/items/a/b"), Target::Item("a/b"));
        assert_eq!(Target::of("/stats"), Target::Stats);
        assert_eq!(Target::of("/shop/stats"), Target::Stats);
        assert_eq!(Target::of("/items/stats"), Target::Item("stats"));
        for unknown in ["/", "/items", "/items/", "/mystats", "*", ""] {
            assert_eq!(Target::of(unknown), Target::Unknown, "{unknown}");
        }
    }

    #[test]
    fn every_parameter_is_read() {
        let parameters = parameters(
            "delay=5&cc=no-cache%2C+private&size=7&status=404&etag=v&vary=Accept,x-a\
             &tag=a,%20b&cookie=c%3D1&drip=9&other=%01",
        )
        .unwrap();
        let value = |text| Some(HeaderValue::from_static(text));
        assert_eq!((parameters.delay.as_millis(), parameters.drip.as_millis()), (5, 9));
        assert_eq!(parameters.cache_control, value("no-cache, private"));
        assert_eq!((parameters.size, parameters.status.as_u16()), (Some(7), 404));
        assert_eq!(parameters.etag, ETag::parse(b"v"));
        assert_eq!(parameters.vary, ["accept", "x-a"]);
        assert_eq!(parameters.vary_value, value("Accept,x-a"));
        assert_eq!((parameters.tags, parameters.cookie), (value("a b"), value("c=1")));
    }

    #[test]
    fn absent_parameters_have_defaults_and_empty_ones_remove_the_field() {
        assert_eq!(parameters("").unwrap(), Parameters::default());
        assert_eq!(parameters("nonsense&&=").unwrap(), Parameters::default());
        assert_eq!(Parameters::default().cache_control.unwrap(), "max-age=60");
        assert_eq!(parameters("cc=").unwrap().cache_control, None);
        assert_eq!(parameters("tag=,&vary=*").unwrap().tags, None);
        assert_eq!(parameters("vary=*").unwrap().vary_value.unwrap(), "*");
    }

    #[test]
    fn invalid_parameters_are_refused_with_their_name() {
        for (query, reason) in [
            ("delay=600001", "delay: it must be a number from 0 to 600000\n"),
            ("drip=x", "drip: it must be a number"),
            ("size=4294967297", "size: it must be a number from 0 to 4294967296"),
            ("size=-1", "size: it must be a number"),
            ("status=199", "status: it must be a number from 200 to 599"),
            ("status=600", "status: it must be"),
            ("cc=a%0d%0aX:1", "cc: control characters"),
            ("cookie=%00", "cookie: control characters"),
            ("tag=a%7f", "tag: control characters"),
            ("etag=a%22b", "etag: it must be an entity tag"),
            ("vary=a%20b", "vary: it must be a list of field names"),
            ("cc=%g0", "cc: \"%g0\" is not percent-encoded correctly"),
            ("x=%1", "x: \"%1\" is not percent-encoded correctly"),
        ] {
            let error = parameters(query).unwrap_err();
            assert!(error.starts_with(reason), "{query}: {error}");
        }
        assert!(
            parameters(&format!("tag={}", "a,".repeat(65))).unwrap_err().contains("at most 64")
        );
    }
}
