//! Disk tier across restarts.

use std::path::Path;

use forebay_testkit::client::Request;
use forebay_testkit::launch::{Launched, Signal};
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::world::{
    ANYWHERE, ConfigFile, admin_of, ask, end, forebay, get, is_hit, metric, written,
};

/// Maximum number of writes until an entry is stored.
const WRITES_MAX: usize = 20;

const SMALL: usize = 3_000;
/// Size of a body that gets its own file, in bytes.
const LARGE: usize = 3 << 20;

fn answer(asked: &Received) -> Answer {
    let len = if asked.path() == "/large" { LARGE } else { SMALL };
    let answer = Answer::ok(asked.path().repeat(len / asked.path().len()));
    answer.field("Cache-Control", "max-age=600").field("Surrogate-Key", "all-of-it")
}

async fn over(origin: &Origin, folder: &Path) -> anyhow::Result<Launched> {
    let folder = folder.to_str().expect("a plain name");
    let flags = ["--disk", folder, "--disk-size", "64MiB"];
    forebay(["serve", "--origin", &origin.url()]).args(ANYWHERE).args(flags).start().await
}

async fn filled(origin: &Origin, folder: &Path) -> anyhow::Result<Launched> {
    let cache = over(origin, folder).await?;
    for (path, stored) in [("/small", 1), ("/large", 2)] {
        // On a busy machine a write may time out, so it is repeated.
        for _ in 0..WRITES_MAX {
            let again = Request::get(path).field("Cache-Control", "no-cache");
            assert!(!is_hit(&ask(cache.address(), &again).await?));
            written(&cache).await?;
            if metric(&cache, "forebay_tier_writes_total", "result=\"stored\"").await? >= stored {
                break;
            }
        }
    }
    Ok(cache)
}

#[tokio::test]
async fn stored_entries_are_hits_after_a_restart_and_after_a_kill() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let origin = Origin::start(answer).await?;
    end(filled(&origin, folder.path()).await?, Signal::Term).await?;
    let fetches = origin.requests();
    for signal in [Signal::Kill, Signal::Term] {
        let cache = over(&origin, folder.path()).await?;
        for (path, len) in [("/small", SMALL), ("/large", LARGE)] {
            let reply = get(&cache, path).await?;
            assert!(is_hit(&reply), "{path}: {:?}", reply.field("cache-status"));
            assert_eq!(reply.text(), path.repeat(len / path.len()));
        }
        end(cache, signal).await?;
    }
    assert_eq!(origin.requests(), fetches);
    Ok(())
}

#[tokio::test]
async fn entries_purged_before_a_kill_stay_purged() -> anyhow::Result<()> {
    let by_url = ["--hard", "--url", "http://test.example/small"];
    let purges: [&[&str]; 4] =
        [&by_url, &["--tag", "all-of-it"], &["--site", "default"], &["--all", "--hard"]];
    for purge in purges {
        let folder = tempfile::tempdir()?;
        let origin = Origin::start(answer).await?;
        let cache = filled(&origin, folder.path()).await?;
        let admin = format!("http://{}", admin_of(&cache)?);
        let done = forebay(["purge", "--admin", &admin]).args(purge.iter().copied());
        assert_eq!(done.finish().await?.status.code(), Some(0));
        end(cache, Signal::Kill).await?;
        let cache = over(&origin, folder.path()).await?;
        assert!(!is_hit(&get(&cache, "/small").await?), "{purge:?}");
        let is_left = purge == by_url;
        assert_eq!(is_hit(&get(&cache, "/large").await?), is_left, "{purge:?}");
        end(cache, Signal::Term).await?;
    }
    Ok(())
}

#[tokio::test]
async fn entries_purged_softly_before_a_kill_are_revalidated_after_it() -> anyhow::Result<()> {
    let purges: [&[&str]; 5] = [
        &["--url", "http://test.example/page"],
        &["--tag", "all-of-it"],
        &["--prefix", "/pa"],
        &["--site", "default"],
        &["--all"],
    ];
    let origin = Origin::start(|asked: &Received| {
        let answer = match asked.fields.first("if-none-match") {
            Some(_) => Answer::status(304),
            None => Answer::ok(asked.fields.first("accept-language").unwrap_or("none").to_owned()),
        };
        let answer = answer.field("Cache-Control", "max-age=600").field("Vary", "Accept-Language");
        answer.field("Surrogate-Key", "all-of-it").field("ETag", "\"v1\"")
    })
    .await?;
    for purge in purges {
        let folder = tempfile::tempdir()?;
        let cache = over(&origin, folder.path()).await?;
        let languages = ["de", "en"];
        let ask_in = |cache: &Launched, language: &str| {
            let request = Request::get("/page").field("Accept-Language", language);
            let address = cache.address();
            async move { ask(address, &request).await }
        };
        for language in languages {
            let stored = metric(&cache, "forebay_tier_writes_total", "result=\"stored\"").await?;
            for _ in 0..WRITES_MAX {
                let request = Request::get("/page").field("Accept-Language", language);
                ask(cache.address(), &request.field("Cache-Control", "no-cache")).await?;
                written(&cache).await?;
                let written = metric(&cache, "forebay_tier_writes_total", "result=\"stored\"");
                if written.await? > stored {
                    break;
                }
            }
        }
        let admin = format!("http://{}", admin_of(&cache)?);
        let done = forebay(["purge", "--admin", &admin]).args(purge.iter().copied());
        assert_eq!(done.finish().await?.status.code(), Some(0));
        end(cache, Signal::Kill).await?;
        let cache = over(&origin, folder.path()).await?;
        for language in languages {
            let reply = ask_in(&cache, language).await?;
            let said = reply.field("cache-status").unwrap_or_default();
            assert!(said.contains("; fwd-status=304; stored"), "{purge:?} {said}");
            assert_eq!(reply.text(), language);
            assert!(is_hit(&ask_in(&cache, language).await?), "{purge:?}");
        }
        end(cache, Signal::Term).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_relative_path_in_a_file_starts_at_the_file() -> anyhow::Result<()> {
    let origin = Origin::start(answer).await?;
    let top = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[disk]\npath = \"kept\"\n";
    let site = format!("[[site]]\nid = \"default\"\norigin = \"{}\"\n", origin.url());
    let file = ConfigFile::of(&format!("{top}{site}"))?;
    let cache = file.serve().await?;
    get(&cache, "/small").await?;
    written(&cache).await?;
    end(cache, Signal::Term).await?;
    let kept = std::fs::read_dir(file.folder.path().join("kept"))?;
    assert_eq!(kept.count(), 2, "the root and a segment");
    Ok(())
}
