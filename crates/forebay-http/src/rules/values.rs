//! Values of placeholders.

use std::io::Write;

use forebay_rules::request::{cookies, device};
use forebay_rules::{Placeholder, Placeholders, Target};
use http::{HeaderMap, StatusCode};

use crate::client::peer::Peer;
use crate::transform::Asked;

/// Values of placeholders of one exchange. Absent parts have no value.
#[derive(Clone, Copy, Default)]
pub(crate) struct Values<'a> {
    pub(crate) id: &'a str,
    pub(crate) authority: &'a str,
    /// Target that the origin gets.
    pub(crate) target: &'a str,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) peer: Option<&'a Peer>,
    pub(crate) response: Option<(StatusCode, &'a HeaderMap)>,
}

impl<'a> Values<'a> {
    /// Returns the request as transforms see it.
    pub(crate) fn asked(&self) -> Asked<'a> {
        Asked {
            scheme: self.peer.map_or("http", |peer| peer.scheme.as_str()),
            host: self.authority,
            target: self.target,
            client: self.peer.and_then(|peer| peer.client.ip()),
        }
    }
}

impl Placeholders for Values<'_> {
    fn append(&self, placeholder: &Placeholder, to: &mut Vec<u8>) {
        let target = Target::new(self.target);
        let field = |headers: Option<&HeaderMap>, name: &http::HeaderName| {
            headers.and_then(|headers| headers.get(name)).map(|value| value.as_bytes().to_vec())
        };
        match placeholder {
            Placeholder::Scheme => {
                to.extend(self.peer.map_or("", |peer| peer.scheme.as_str()).as_bytes());
            }
            Placeholder::Host => to.extend(self.authority.as_bytes()),
            Placeholder::Path => to.extend(target.path.as_bytes()),
            Placeholder::Query(name) => {
                let value = target.parameters().find(|(its, _)| **its == **name);
                to.extend(value.map_or("", |(_, value)| value).as_bytes());
            }
            Placeholder::Header(name) => to.extend(field(self.headers, name).unwrap_or_default()),
            Placeholder::Response(name) => {
                let headers = self.response.map(|(_, headers)| headers);
                to.extend(field(headers, name).unwrap_or_default());
            }
            Placeholder::Cookie(name) => {
                let value = self.headers.and_then(|headers| {
                    cookies(headers).find(|(its, _)| **its == **name).map(|(_, value)| value)
                });
                to.extend(value.unwrap_or_default());
            }
            Placeholder::Client => {
                if let Some(peer) = self.peer {
                    // Writing to a vector does not fail.
                    let _ = write!(to, "{}", peer.client);
                }
            }
            Placeholder::Device => {
                let device = self.headers.map(device);
                to.extend(device.map_or("", |device| device.as_str()).as_bytes());
            }
            Placeholder::Status => {
                to.extend(
                    self.response
                        .map(|(status, _)| status.as_str().as_bytes().to_vec())
                        .unwrap_or_default(),
                );
            }
            Placeholder::Id => to.extend(self.id.as_bytes()),
        }
    }
}
