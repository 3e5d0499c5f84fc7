//! A wall clock that jumps by an hour while the cache runs, under libfaketime.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use forebay_testkit::client::Reply;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};

use crate::world::{ANYWHERE, END_MAX, end, forebay, get, is_hit};

const HOUR: i64 = 3_600;

/// A jump counts as seen if the date is off by that much more or less than an hour.
const TOLERANCE: i64 = 300;

/// The library that `faketime` puts before the C library's clocks; from the package of that name.
fn library() -> anyhow::Result<PathBuf> {
    let name = Path::new("faketime/libfaketimeMT.so.1");
    let folders = std::fs::read_dir("/usr/lib")?.filter_map(|entry| Some(entry.ok()?.path()));
    let all = folders.chain([PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")]);
    let found = all.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.context("libfaketime is not installed: install the Debian package faketime")
}

/// Seconds by which the date of a response that the cache fetched just now is ahead of the time.
fn ahead(reply: &Reply) -> anyhow::Result<i64> {
    let date = httpdate::parse_http_date(reply.field("date").context("no Date")?)?;
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH);
    let (date, now) = (seconds(date)?.as_secs(), seconds(SystemTime::now())?.as_secs());
    Ok(i64::try_from(date)? - i64::try_from(now)?)
}

/// Asks until the origin has been asked that often; an error if that takes longer than [`END_MAX`].
async fn until_fetched(cache: &Launched, origin: &Origin, requests: u64) -> anyhow::Result<()> {
    let asking = async {
        while origin.requests_to("/short") < requests {
            get(cache, "/short").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(END_MAX, asking).await.context("served as fresh for too long")?
}

#[tokio::test]
async fn lifetimes_do_not_go_by_a_wall_clock_that_jumps() -> anyhow::Result<()> {
    let origin = Origin::start(|received| {
        let lifetime = if received.path() == "/short" { "max-age=1" } else { "max-age=600" };
        Answer::ok("a").field("Cache-Control", lifetime)
    })
    .await?;
    for jump in [HOUR, -HOUR] {
        let folder = tempfile::tempdir()?;
        let offset = folder.path().join("offset");
        std::fs::write(&offset, "+0")?;
        let launch = forebay(["serve", "--origin", &origin.url()]).args(ANYWHERE);
        let cache = launch
            .env("LD_PRELOAD", library()?)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_TIMESTAMP_FILE", &offset)
            .start()
            .await?;
        let begun = origin.requests_to("/short");
        for path in ["/long", "/short"] {
            assert!(ahead(&get(&cache, path).await?)?.abs() < TOLERANCE, "{path}");
        }

        std::fs::write(&offset, format!("{jump:+}"))?;
        let later = ahead(&get(&cache, &format!("/after{jump}")).await?)?;
        assert!((later - jump).abs() < TOLERANCE, "the clock did not jump: {later}");
        let long = get(&cache, "/long").await?;
        let age: u64 = long.field("age").context("no Age")?.parse()?;
        assert!(is_hit(&long) && age < 60, "dropped early: {:?}", long.field("cache-status"));
        until_fetched(&cache, &origin, begun + 2).await?;

        std::fs::write(&offset, "+0")?;
        let back = ahead(&get(&cache, &format!("/back{jump}")).await?)?;
        assert!(back.abs() < TOLERANCE, "the clock did not jump back: {back}");
        assert!(is_hit(&get(&cache, "/long").await?), "dropped early");
        until_fetched(&cache, &origin, begun + 3).await?;
        end(cache, Signal::Term).await?;
    }
    Ok(())
}
