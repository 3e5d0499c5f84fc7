//! Resolved configuration of the access log, and of what logs and live views may show.

use super::options;
use crate::config::file::File;
use crate::config::provenance::Provenance;
use crate::config::reader::{AccessLog, ClientIp};
use std::path::{Path, PathBuf};

/// Access log of the process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResolvedAccess {
    /// Format for sites without one of their own, and for requests without a site.
    pub(crate) format: AccessLog,
    /// File; `None` means standard output.
    pub(crate) file: Option<PathBuf>,
    /// Bounds of the file and of its predecessors.
    pub(crate) rotation: Rotation,
    /// Share of plain hits that are logged, from 0 to 1.
    pub(crate) sample_hits: f64,
    /// Parts of requests that logs and live views hide.
    pub(crate) privacy: Privacy,
}

/// Bounds of a log file and of its predecessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Size in bytes from which the file is renamed; 0 means never.
    pub(crate) size: u64,
    /// Number of renamed files that are kept.
    pub(crate) keep: u32,
}

/// Parts of requests that logs and live views hide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Privacy {
    /// Part of the addresses of clients that is shown.
    pub(crate) client_ip: ClientIp,
    /// True if targets have their query.
    pub(crate) keeps_query: bool,
    /// Names of further parameters with secret values; a trailing `*` matches any ending.
    pub(crate) redact_query: Vec<String>,
}

/// Reads `access_log` and `[access]`.
pub(super) fn access(
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedAccess> {
    let section = &file.access;
    let format = provenance.read(&file.top, &options::ACCESS_LOG);
    let path = access_file(file, folder, provenance);
    let size = provenance.read(section, &options::ACCESS_ROTATE_SIZE);
    let keep = provenance.read(section, &options::ACCESS_ROTATE_KEEP);
    let sample_hits = provenance.read(section, &options::ACCESS_SAMPLE_HITS);
    let client_ip = provenance.read(section, &options::ACCESS_CLIENT_IP);
    let keeps_query = provenance.read(section, &options::ACCESS_QUERY);
    let redact_query = provenance.read(section, &options::ACCESS_REDACT_QUERY);
    Some(ResolvedAccess {
        format: format?,
        file: path?,
        rotation: Rotation { size: size?, keep: u32::try_from(keep?).ok()? },
        sample_hits: sample_hits?,
        privacy: Privacy {
            client_ip: client_ip?,
            keeps_query: keeps_query?,
            redact_query: redact_query?,
        },
    })
}

/// File of the access log. The outer `None` means that there are errors.
#[expect(clippy::option_option, reason = "an error differs from an absent option")]
fn access_file(
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Option<PathBuf>> {
    let (section, name) = (&file.access, options::ACCESS_FILE.spec.name);
    if section.value(name).is_none() {
        provenance.derived(section.path_of(name), "standard output");
        return Some(None);
    }
    Some(Some(folder.join(provenance.read(section, &options::ACCESS_FILE)?)))
}
