//! Disk tier that cannot be opened, or that fails: error messages, health, metrics.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};

use crate::world::{ANYWHERE, end, forebay, fresh_origin, get, get_admin, is_hit, metric, written};

async fn over(origin: &Origin, folder: &Path) -> anyhow::Result<Launched> {
    let folder = folder.to_str().expect("a plain name");
    forebay(["serve", "--origin", &origin.url()])
        .args(ANYWHERE)
        .args(["--disk", folder])
        .start()
        .await
}

/// Root file of a directory in a future format, number 1,000.
const NEWER_ROOT: [u8; 32] = [
    0x46, 0x42, 0x44, 0x49, 0x53, 0x4b, 0xf7, 0x00, 0xe8, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xf9, 0xdd, 0x73, 0xd9, 0xcd, 0x32, 0x3c, 0xfe,
];

/// All files of a directory with their contents; `None` for entries that are not regular files.
fn contents(folder: &Path) -> anyhow::Result<Vec<(PathBuf, Option<Vec<u8>>)>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_plain = path.symlink_metadata()?.is_file();
        let bytes = is_plain.then(|| fs::read(&path)).transpose()?;
        all.push((path, bytes));
    }
    all.sort();
    Ok(all)
}

/// Unusable directories, and the expected error message of each.
fn unusable(parent: &Path) -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
    let folder = |name: &str| -> anyhow::Result<PathBuf> {
        let path = parent.join(name);
        fs::create_dir(&path)?;
        fs::write(path.join("somebody's"), "file")?;
        Ok(path)
    };
    let newer = folder("newer")?;
    fs::write(newer.join("forebay.disk"), [NEWER_ROOT, NEWER_ROOT, [0; 32]].concat())?;
    // Every write to this device fails with "no space left".
    let full = folder("full")?;
    std::os::unix::fs::symlink("/dev/full", full.join("forebay.disk"))?;
    let file = parent.join("file");
    fs::write(&file, "no directory")?;
    Ok(vec![
        (
            newer,
            "newer: the directory of the disk tier has format 1000 of a newer forebay version; \
             use that version, or another directory",
        ),
        (full, "full: the directory of the disk tier cannot be used: No space left on device"),
        (file, "file: the directory of the disk tier cannot be used: File exists"),
        // No directory can be created there, not even by root.
        ("/sys/forebay".into(), "/sys/forebay: the directory of the disk tier cannot be used: "),
    ])
}

#[tokio::test]
async fn an_unusable_directory_is_one_error_message_and_stays_unchanged() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let origin = fresh_origin().await?;
    let made = parent.path().join("not there").join("yet");
    let first = over(&origin, &made).await?;
    assert!(made.join("forebay.disk").exists(), "what is missing is made");
    let mut all = unusable(parent.path())?;
    all.push((made, "yet: the directory of the disk tier is in use by another process"));
    for (path, says) in all {
        let before = contents(&path)?;
        let name = path.to_str().expect("a plain name");
        let launch = forebay(["serve", "--origin", &origin.url(), "--disk", name]).args(ANYWHERE);
        let ended = launch.finish().await?;
        assert_eq!((ended.status.code(), ended.stderr.len()), (Some(1), 1), "{:#?}", ended.stderr);
        let said = &ended.stderr[0];
        assert!(said.starts_with("forebay: ") && said.contains(says), "{said}");
        assert!(contents(&path)? == before, "{name} is not what it was");
    }
    end(first, Signal::Term).await
}

#[tokio::test]
async fn health_and_metrics_report_the_disk_tier() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let disk = folder.path().join("disk");
    let origin = Origin::start(|asked| {
        Answer::ok(asked.path().to_owned()).field("Cache-Control", "max-age=600")
    })
    .await?;
    let cache = over(&origin, &disk).await?;
    for path in ["/a", "/b"] {
        get(&cache, path).await?;
    }
    written(&cache).await?;
    let health = get_admin(&cache, "/healthz").await?.text().into_owned();
    assert!(health.contains("\"condition\":\"well\""), "{health}");
    assert!(health.contains("\"state\":\"ready\""), "{health}");
    for (name, label, least) in [
        ("forebay_tier_entries", "tier=\"disk\"", 2),
        ("forebay_tier_bytes", "tier=\"disk\"", 100),
        ("forebay_lookups_total", "tier=\"disk\",result=\"miss\"", 2),
        ("forebay_tier_writes_total", "tier=\"disk\",result=\"stored\"", 2),
        ("forebay_tier_seconds_count", "tier=\"disk\",op=\"commit\"", 2),
    ] {
        let value = metric(&cache, name, label).await?;
        assert!(value >= least, "{name}{{{label}}} {value}");
    }
    assert_eq!(
        metric(&cache, "forebay_evictions_total", "tier=\"disk\",reason=\"parent\"").await?,
        0
    );
    end(cache, Signal::Term).await
}

#[tokio::test]
async fn a_failing_disk_degrades_health_and_no_response() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let disk = folder.path().join("disk");
    let origin = fresh_origin().await?;
    let cache = over(&origin, &disk).await?;
    fs::remove_dir_all(&disk)?;
    for path in ["/a", "/b", "/c"] {
        assert_eq!(get(&cache, path).await?.text(), "hello");
        written(&cache).await?;
        assert!(is_hit(&get(&cache, path).await?), "memory has it");
    }
    let health = get_admin(&cache, "/healthz").await?.text().into_owned();
    assert!(health.contains("\"condition\":\"failing\""), "{health}");
    assert!(health.contains("\"state\":\"degraded\""), "{health}");
    assert_eq!(get_admin(&cache, "/readyz").await?.status, 200);
    let mut lost = 0;
    for result in ["failed", "refused"] {
        let label = format!("tier=\"disk\",result=\"{result}\"");
        lost += metric(&cache, "forebay_tier_writes_total", &label).await?;
    }
    assert_eq!(lost, 3);
    assert!(metric(&cache, "forebay_tier_errors_total", "reason=\"io\"").await? >= 1);
    assert_eq!(origin.requests(), 3);
    end(cache, Signal::Term).await
}
