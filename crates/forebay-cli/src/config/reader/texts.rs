//! Readers of names, paths and other texts.

use super::{Reader, bracketed, list, quoted, refuse, text};
use forebay_semantics::client_address::AddressField;
use forebay_semantics::coding::media_types::MediaTypePattern;
use http::HeaderValue;
use std::path::PathBuf;

readers! {
    SITE_ID: String = "name of up to 64 of a-z, 0-9 and -", text(parse_site_id);
    PREFIX: String = "path", text(parse_prefix);
    SITE_IDS: Vec<String> = "list of ids of sites", list(SITE_ID);
    QUERY_NAME: String = "name", text(parse_query_name);
    QUERY_NAMES: Vec<String> = "list of names", list(QUERY_NAME);
    NAMESPACE: String = "name of up to 64 of letters, digits, -, _, . and :", text(parse_namespace);
    WORD: String = "string", text(parse_word);
}

pub(crate) const ADDRESS_FIELD: Reader<AddressField> = Reader {
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

pub(crate) const HSTS: Reader<HeaderValue> = Reader {
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

pub(crate) const PATH: Reader<PathBuf> = Reader {
    kind: "path of a file",
    read: |typed, problems| text(typed, problems, |path| parse_word(path).map(PathBuf::from)),
    show: |path| quoted(path.display()),
    order: None,
};

pub(crate) const TEXT: Reader<String> = Reader {
    kind: "text",
    read: |typed, problems| text(typed, problems, |text| Ok(text.to_owned())),
    show: |text| format!("{text:?}"),
    order: None,
};

pub(crate) const MEDIA_TYPES: Reader<Vec<MediaTypePattern>> = Reader {
    kind: "list of media types, such as `[\"text/*\"]`",
    read: |typed, problems| {
        let types = list(typed, problems, |item, problems| text(item, problems, media_type))?;
        match types.is_empty() {
            true => refuse(typed, problems, "must name at least one media type"),
            false => Some(types),
        }
    },
    show: |types| bracketed(types, |known| quoted(known)),
    order: None,
};

fn media_type(text: &str) -> Result<MediaTypePattern, String> {
    MediaTypePattern::parse(text).ok_or_else(|| {
        format!(
            "\"{text}\" is not a media type such as \"text/html\", or a kind such as \"text/*\""
        )
    })
}

pub(crate) const FIELD_VALUE: Reader<HeaderValue> = Reader {
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

/// Maximum length of a site id, which is a metric label and a part of every key.
const SITE_ID_MAX: usize = 64;

fn parse_site_id(id: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.is_empty() || id.len() > SITE_ID_MAX || !id.bytes().all(plain) {
        return Err(format!("\"{id}\" must be 1 to {SITE_ID_MAX} of a-z, 0-9 and \"-\""));
    }
    Ok(id.to_owned())
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

fn parse_query_name(name: &str) -> Result<String, String> {
    let stem = name.strip_suffix('*').unwrap_or(name);
    if name.is_empty() || stem.contains(['*', '&', '=', '#', '?']) || !stem.is_ascii() {
        let example = "a \"*\" is allowed at the end, as in \"utm_*\"";
        return Err(format!("\"{name}\" is not the name of a query parameter; {example}"));
    }
    Ok(name.to_owned())
}

fn parse_namespace(name: &str) -> Result<String, String> {
    forebay_redis::check_namespace(name).map_err(|error| error.to_string())?;
    Ok(name.to_owned())
}

fn parse_word(word: &str) -> Result<String, String> {
    if word.is_empty() { Err("must not be empty".into()) } else { Ok(word.to_owned()) }
}
