//! Resolved configuration of distributed tracing.

use super::options;
use crate::config::file::File;
use crate::config::provenance::Provenance;
use forebay_http::TraceSettings;
use http::Uri;

/// Export of traces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedTrace {
    /// URL of the collector.
    pub(crate) endpoint: Uri,
    /// Selection of the requests that are traced.
    pub(crate) settings: TraceSettings,
}

/// Reads `[trace]`. The outer `None` means that there are errors, the inner one that nothing is traced.
#[expect(clippy::option_option, reason = "an error differs from an absent option")]
pub(super) fn trace(file: &File, provenance: &mut Provenance<'_>) -> Option<Option<ResolvedTrace>> {
    let (section, name) = (&file.trace, options::TRACE_ENDPOINT.spec.name);
    let endpoint = provenance.read(section, &options::TRACE_ENDPOINT);
    let sample = provenance.read(section, &options::TRACE_SAMPLE);
    let slow = provenance.read(section, &options::TRACE_SLOW);
    let trusts_incoming = provenance.read(section, &options::TRACE_TRUST_INCOMING);
    let settings =
        TraceSettings { sample: sample?, slow: slow?, trusts_incoming: trusts_incoming? };
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), "no tracing");
        return Some(None);
    }
    Some(Some(ResolvedTrace { endpoint: endpoint?, settings }))
}
