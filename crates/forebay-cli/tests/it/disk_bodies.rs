//! Large bodies on disk: reading while writing, and byte ranges.

use std::path::Path;

use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::gate::Gate;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin};

use crate::world::{ANYWHERE, ask, end, forebay, get, is_hit, metric, written};

/// Size of a body: three times the memory tier's object limit.
const LARGE: usize = 48 << 20;

/// Offset at which the origin waits for the test.
const HALF: usize = LARGE / 2;

/// Bytes whose delivery proves that most of the first half has passed through the cache.
const MOST: u64 = HALF as u64 - (4 << 20);

async fn over(origin: &Origin, folder: &Path) -> anyhow::Result<Launched> {
    let folder = folder.to_str().expect("a plain name");
    let flags = ["--disk", folder, "--disk-size", "256MiB", "--memory", "16MiB"];
    forebay(["serve", "--origin", &origin.url()]).args(ANYWHERE).args(flags).start().await
}

/// Body of `len` bytes in which no two sections are equal.
fn body(len: usize) -> String {
    let mut all = String::with_capacity(len + 10);
    while all.len() < len {
        all.push_str(&format!("{:09}\n", all.len()));
    }
    all.truncate(len);
    all
}

fn answer(len: usize) -> Answer {
    Answer::ok(body(len)).field("Cache-Control", "max-age=600").field("ETag", "\"one\"")
}

/// Client that has requested the body and read `enough` bytes of it.
async fn reader(cache: &Launched, enough: u64) -> anyhow::Result<(Client, Reply)> {
    let mut client = Client::connect(cache.address()).await?;
    client.send(&Request::get("/film")).await?;
    let mut reply = client.head().await?;
    client.read_body_until(&mut reply, enough).await?;
    Ok((client, reply))
}

async fn range(cache: &Launched, range: &str) -> anyhow::Result<Reply> {
    ask(cache.address(), &Request::get("/film").field("Range", format!("bytes={range}"))).await
}

#[tokio::test]
async fn a_late_reader_of_a_large_body_reads_the_stored_part_from_disk() -> anyhow::Result<()> {
    let (folder, gate) = (tempfile::tempdir()?, Gate::new());
    let held = answer(LARGE).hold_at(HALF, &gate);
    let origin = Origin::always(held).await?;
    let cache = over(&origin, folder.path()).await?;
    let mut readers = vec![reader(&cache, MOST).await?];
    // These readers start far behind the in-memory window, and the origin is paused.
    for enough in [1, 1 << 20, MOST] {
        readers.push(reader(&cache, enough).await?);
    }
    gate.open();
    let wanted = body(LARGE);
    for (client, reply) in &mut readers {
        client.read_body(reply).await?;
        assert!(reply.text() == wanted, "{} bytes of something else", reply.body_length());
    }
    written(&cache).await?;
    let late = get(&cache, "/film").await?;
    assert!(is_hit(&late) && late.text() == wanted, "{:?}", late.field("cache-status"));
    assert_eq!(late.field("content-length"), Some("50331648"));
    assert_eq!(origin.requests(), 1);
    for (asked, from, to) in
        [("30000000-30000099", 30_000_000, 30_000_100), ("-100", LARGE - 100, LARGE)]
    {
        let part = range(&cache, asked).await?;
        assert_eq!((part.status, part.text().as_ref()), (206, &wanted[from..to]));
        assert!(is_hit(&part), "{:?}", part.field("cache-status"));
    }
    let several = range(&cache, "0-9,40000000-40000009").await?;
    assert!(several.status == 206 && several.text().contains(&wanted[40_000_000..40_000_010]));
    assert_eq!(metric(&cache, "forebay_tier_entries", "memory").await?, 0);
    assert_eq!(origin.requests(), 1);
    end(cache, Signal::Term).await
}

#[tokio::test]
async fn a_range_from_disk_loads_nothing_else_into_memory() -> anyhow::Result<()> {
    const LEN: usize = 3 << 20;
    let folder = tempfile::tempdir()?;
    let origin = Origin::always(answer(LEN)).await?;
    let cache = over(&origin, folder.path()).await?;
    get(&cache, "/film").await?;
    crate::servers::wait_stored(&cache, "disk", 1).await?;
    end(cache, Signal::Kill).await?;
    let cache = over(&origin, folder.path()).await?;
    for asked in ["2000000-2000009", "-10", "5-14"] {
        let part = range(&cache, asked).await?;
        assert_eq!((part.status, part.body_length()), (206, 10), "{asked}");
        let status = part.field("cache-status").unwrap_or_default().to_owned();
        assert!(status.ends_with("detail=disk"), "{asked}: {status}");
    }
    assert_eq!(metric(&cache, "forebay_tier_entries", "memory").await?, 0);
    assert!(get(&cache, "/film").await?.text() == body(LEN));
    written(&cache).await?;
    assert_eq!(metric(&cache, "forebay_tier_entries", "memory").await?, 1);
    assert_eq!(origin.requests(), 1);
    end(cache, Signal::Term).await
}
