//! Resolved configuration of the disk tier.

use std::path::Path;

use super::{ResolvedDisk, default_from};
use crate::config::file::File;
use crate::config::options;
use crate::config::provenance::Provenance;
use crate::config::units::ShortSize;

/// Maximum of the default for the largest body, in bytes.
const OBJECT_MAX_DEFAULT: u64 = 1 << 30;

/// Divisor of the size that limits the default for the largest body.
const OBJECT_SHARE_DEFAULT: u64 = 4;

/// Divisor of the size that limits the largest body; replacing a body needs space for both.
const OBJECT_SHARE_MAX: u64 = 2;

/// Disk tier. The outer `None` means that there are errors, the inner one that there is no tier.
pub(super) fn disk(
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Option<ResolvedDisk>> {
    let section = &file.disk;
    let name = options::DISK_PATH.spec.name;
    let is_wanted = section.value(name).is_some();
    let path = if is_wanted { provenance.read(section, &options::DISK_PATH) } else { None };
    if !is_wanted {
        provenance.derived(section.path_of(name), "none");
    }
    let size = provenance.read(section, &options::DISK_SIZE);
    let object_max = default_from(
        size.map(|size| (size / OBJECT_SHARE_DEFAULT).min(OBJECT_MAX_DEFAULT)),
        section,
        &options::DISK_OBJECT_MAX,
        provenance,
    );
    if !is_wanted {
        return without(file, provenance);
    }
    let (path, size, object_max) = (folder.join(path?), size?, object_max?);
    if object_max > size / OBJECT_SHARE_MAX {
        let half = ShortSize(size / OBJECT_SHARE_MAX);
        let message = format!("must be at most half of the size of the disk tier, {half}");
        provenance.refuse(section, options::DISK_OBJECT_MAX.spec.name, message);
    }
    Some(Some(ResolvedDisk { path, size, object_max }))
}

/// Result without a path: an error if a limit was typed.
fn without(file: &File, provenance: &mut Provenance<'_>) -> Option<Option<ResolvedDisk>> {
    let section = &file.disk;
    let bounds = [options::DISK_SIZE.spec.name, options::DISK_OBJECT_MAX.spec.name];
    let typed = bounds.into_iter().find(|name| section.value(name).is_some());
    if let Some(name) = typed {
        provenance.refuse(section, name, "there is no disk tier; set disk.path or --disk");
        return None;
    }
    Some(None)
}
