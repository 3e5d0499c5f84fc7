//! Resolved compression of a site.

use super::origin::nested;
use crate::config::file::SiteFile;
use crate::config::options;
use crate::config::provenance::Provenance;
use crate::config::table::Table;
use crate::config::units::ShortSize;
use forebay_http::CompressSettings;
use forebay_semantics::coding::Codings;
use forebay_semantics::coding::media_types::MediaTypes;

/// Compression. The outer `None` means an error, the inner one that there is none.
#[expect(clippy::option_option, reason = "an error differs from disabled compression")]
pub(super) fn compress(
    typed: &SiteFile,
    provenance: &mut Provenance<'_>,
) -> Option<Option<CompressSettings>> {
    let section = &*nested(&typed.site, Table::SiteCompress, typed.compress.as_ref());
    let enabled = provenance.read(section, &options::COMPRESS_ENABLED);
    let codings = provenance.read(section, &options::COMPRESS_CODINGS);
    let types = provenance.read(section, &options::COMPRESS_TYPES);
    let min = provenance.read(section, &options::COMPRESS_MIN);
    let max = provenance.read(section, &options::COMPRESS_MAX);
    let pass = provenance.read(section, &options::COMPRESS_PASS);
    let (min, max) = (min?, max?);
    if max < min {
        let (min, max) = (ShortSize(min), ShortSize(max));
        let message = format!("{max} is less than `min` = {min}; no response would be compressed");
        provenance.refuse(section, options::COMPRESS_MAX.spec.name, message);
        return None;
    }
    let settings = CompressSettings {
        codings: Codings::new(codings?),
        types: MediaTypes::new(types?),
        min,
        max,
        pass: pass?,
    };
    Some(enabled?.then_some(settings))
}
