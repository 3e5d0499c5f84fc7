//! Values of the selecting fields of a request, as the origin receives them.

use std::borrow::Cow;

use forebay_semantics::vary::selecting_value;
use forebay_semantics::{FieldLines, hop};
use http::header::CONNECTION;

use crate::client::peer::Peer;
use crate::site::{Site, UNCODED};

/// Returns the value of a selecting field in the form that the origin receives. The client's own
/// value could differ: a claimed address, or a hop-by-hop field that is not forwarded.
pub(crate) fn selecting<'a>(
    headers: &'a impl FieldLines,
    peer: &Peer,
    site: &Site,
    name: &str,
) -> Option<Cow<'a, [u8]>> {
    match name {
        "x-forwarded-for" | "forwarded" => {
            let addresses = peer.sender(false).forwarded_for().unwrap_or_default();
            Some(Cow::Owned(addresses.into_bytes()))
        }
        // Equal for all requests with one key, unless the site ignores the scheme.
        "x-forwarded-proto" => Some(Cow::Borrowed(peer.scheme.as_str().as_bytes())),
        // Equal for all requests with one key.
        "x-forwarded-host" => None,
        "client-cert" => {
            let certificate = peer.certificate()?;
            Some(Cow::Owned(certificate.as_bytes().to_vec()))
        }
        "accept-encoding" if site.settings.compress.is_some() => {
            Some(Cow::Borrowed(UNCODED.as_bytes()))
        }
        _ if !headers.has(&CONNECTION) => selecting_value(headers, name),
        _ => sent_value(headers, name),
    }
}

/// Returns the value that remains after the removal of the fields which `Connection` names.
fn sent_value<'a>(headers: &'a impl FieldLines, name: &str) -> Option<Cow<'a, [u8]>> {
    let names_it = |line: &[u8]| {
        let mut options = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        options.any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    };
    let is_removed = !hop::is_end_to_end(name) && headers.lines(&CONNECTION).any(names_it);
    if is_removed { None } else { selecting_value(headers, name) }
}
