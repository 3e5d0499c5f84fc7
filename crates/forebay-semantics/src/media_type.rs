//! Agreement of a response's media type with the extension of its path.
//!
//! Web cache deception makes an origin send a private page under the path of a static file, such as
//! `/account/x.css`. Such a response has the media type of a page.

use http::header::CONTENT_TYPE;

use crate::directives::policy::Policy;
use crate::fields::FieldLines;

/// Media types of one kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Style,
    Script,
    Image,
    Font,
    Video,
    Audio,
    Document,
    Archive,
    Data,
}

impl Family {
    /// Returns the kind of a file extension in lower case. Extensions that are also used for pages
    /// have none.
    fn of(extension: &str) -> Option<Self> {
        Some(match extension {
            "css" => Self::Style,
            "js" | "mjs" | "cjs" => Self::Script,
            "png" | "jpg" | "jpeg" | "jpe" | "gif" | "webp" | "avif" | "ico" | "bmp" | "tif"
            | "tiff" | "svg" | "svgz" | "apng" | "heic" | "jxl" => Self::Image,
            "woff" | "woff2" | "ttf" | "otf" | "eot" => Self::Font,
            "mp4" | "m4v" | "webm" | "mov" | "avi" | "mkv" | "mpg" | "mpeg" | "ogv" => Self::Video,
            "mp3" | "m4a" | "aac" | "ogg" | "oga" | "opus" | "wav" | "flac" | "mid" | "midi" => {
                Self::Audio
            }
            "pdf" | "doc" | "docx" | "xls" | "xlsx" | "ppt" | "pptx" | "rtf" => Self::Document,
            "zip" | "gz" | "tgz" | "bz2" | "xz" | "zst" | "7z" | "rar" | "tar" | "jar" | "exe"
            | "dmg" | "iso" | "apk" => Self::Archive,
            "map" | "wasm" | "csv" | "txt" => Self::Data,
            _ => return None,
        })
    }

    /// Returns true if a media type in lower case, without parameters, is one of this kind.
    fn fits(self, media_type: &str) -> bool {
        let (main, sub) = media_type.split_once('/').unwrap_or((media_type, ""));
        let is_plain = media_type == "text/plain";
        match self {
            Self::Style => sub == "css" || is_plain,
            Self::Script => sub.contains("javascript") || sub.contains("ecmascript") || is_plain,
            Self::Image => main == "image",
            Self::Font => main == "font" || sub.contains("font"),
            Self::Video | Self::Audio => {
                matches!(main, "video" | "audio") || matches!(sub, "ogg" | "mp4" | "x-matroska")
            }
            // Every other type is one of a page or of data for a page.
            Self::Document | Self::Archive => main == "application" && !is_page(sub),
            Self::Data => !is_html(sub),
        }
    }
}

fn is_html(sub: &str) -> bool {
    matches!(sub, "html" | "xhtml+xml")
}

fn is_page(sub: &str) -> bool {
    is_html(sub) || matches!(sub, "json" | "xml") || sub.ends_with("+json") || sub.ends_with("+xml")
}

/// Returns true if the media type of a response contradicts the extension of its path. A response
/// without media type, with `application/octet-stream`, or with an unknown extension does not.
///
/// An extension behind a parameter or an encoded slash counts too, because the origin may read a
/// shorter path.
#[must_use]
pub fn is_contradicted(path: &str, headers: &impl FieldLines) -> bool {
    let is_end = |byte: &u8| *byte == b';';
    let Some(family) = extension(path).and_then(|extension| Family::of(&extension)) else {
        return false;
    };
    // Parameters may have any bytes.
    let media_type = headers.lines(&CONTENT_TYPE).next().and_then(|line| line.split(is_end).next());
    let Some(media_type) = media_type.and_then(|media_type| str::from_utf8(media_type).ok()) else {
        return false;
    };
    let media_type = media_type.trim().to_ascii_lowercase();
    let is_unknown = media_type.is_empty() || media_type.ends_with("/octet-stream");
    !is_unknown && !family.fits(&media_type)
}

/// Returns true if the origin declares a response fit for a shared cache: by `public` or `s-maxage`.
#[must_use]
pub fn is_declared_shared(headers: &impl FieldLines) -> bool {
    let said = Policy::of(headers).said;
    said.public || said.s_maxage.is_some()
}

/// Longest extension that is known, in bytes.
const EXTENSION_MAX: usize = 8;

fn extension(path: &str) -> Option<String> {
    let (_, extension) = path.rsplit_once('.')?;
    let is_word = extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_word && extension.len() <= EXTENSION_MAX).then(|| extension.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn a_page_under_the_path_of_a_file_is_contradicted() {
        let rows = [
            ("/account/x.css", "text/html", true),
            ("/account/x.CSS", "TEXT/HTML; charset=utf-8", true),
            ("/account;x.css", "text/html", true),
            ("/account%2fx.js", "application/json", true),
            ("/me.png", "application/json", true),
            ("/me.woff2", "text/html", true),
            ("/me.pdf", "text/html", true),
            ("/me.zip", "application/json", true),
            ("/me.txt", "text/html", true),
            ("/x.css", "text/css", false),
            ("/x.css", "text/plain", false),
            ("/x.js", "application/javascript; charset=utf-8", false),
            ("/x.mjs", "text/javascript", false),
            ("/x.svg", "image/svg+xml", false),
            ("/x.jpg", "image/webp", false),
            ("/x.woff", "application/font-woff", false),
            ("/x.ogg", "application/ogg", false),
            ("/x.zip", "application/zip", false),
            ("/x.zip", "application/octet-stream", false),
            ("/x.map", "application/json", false),
            ("/x.html", "text/html", false),
            ("/x.json", "text/html", false),
            ("/v1.2/items", "application/json", false),
            ("/x.css", "", false),
        ];
        for (path, media_type, expected) in rows {
            let value = HeaderValue::from_static(media_type);
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value)]);
            assert_eq!(is_contradicted(path, &headers), expected, "{path} {media_type}");
        }
        assert!(!is_contradicted("/x.css", &HeaderMap::new()));
        for bytes in [&b"text/html; x=\"\xe9\""[..], "text/html; x=\"\u{e9}\"".as_bytes()] {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            assert!(is_contradicted("/x.css", &HeaderMap::from_iter([(CONTENT_TYPE, value)])));
        }
    }
}
