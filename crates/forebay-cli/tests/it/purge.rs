//! `forebay purge` and its effect.

use forebay_testkit::launch::Launched;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::world::{ConfigFile, admin_of, forebay, get, is_hit, metric, nowhere, serve};

/// Response with a validator, and a tag named like its path.
fn tagged(asked: &Received) -> Answer {
    let answer = match asked.is_conditional() {
        true => Answer::status(304),
        false => Answer::ok(format!("body of {}", asked.path())),
    };
    let tag = asked.path().trim_start_matches('/').to_owned();
    let answer = answer.field("ETag", "\"v1\"").field("Surrogate-Key", tag);
    answer.field("Cache-Control", "max-age=60")
}

/// Cache that has stored `/red` and `/blue`.
async fn filled() -> anyhow::Result<(Origin, Launched)> {
    let origin = Origin::start(tagged).await?;
    let cache = serve(&origin).await?;
    for path in ["/red", "/blue"] {
        get(&cache, path).await?;
        assert!(is_hit(&get(&cache, path).await?));
    }
    Ok((origin, cache))
}

/// Runs the command; returns its exit code and its one line of output.
async fn purge(cache: &Launched, args: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let admin = format!("http://{}", admin_of(cache)?);
    let launch = forebay(["purge", "--admin", &admin]).args(args.iter().copied());
    let done = launch.finish().await?;
    let lines: Vec<String> = done.stdout.into_iter().chain(done.stderr).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    Ok((done.status.code(), lines.concat()))
}

async fn done(cache: &Launched, args: &[&str]) -> anyhow::Result<String> {
    let (code, line) = purge(cache, args).await?;
    assert_eq!(code, Some(0), "{line}");
    Ok(line)
}

#[tokio::test]
async fn several_tags_are_purged_at_once() -> anyhow::Result<()> {
    let (_origin, cache) = filled().await?;
    get(&cache, "/green").await?;
    assert!(is_hit(&get(&cache, "/green").await?));
    done(&cache, &["--hard", "--tag", "red", "--tag", "blue"]).await?;
    for (path, expected) in [("/red", false), ("/blue", false), ("/green", true)] {
        assert_eq!(is_hit(&get(&cache, path).await?), expected, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn a_purged_url_is_stale_or_removed() -> anyhow::Result<()> {
    let (origin, cache) = filled().await?;
    let url = "http://test.example/red";
    assert_eq!(done(&cache, &["--url", url]).await?, "purge 1: done (instances: 1)");
    assert_eq!(get(&cache, "/red").await?.text(), "body of /red");
    assert_eq!((origin.requests(), origin.counts().conditional), (3, 1), "stale: asked about");
    done(&cache, &["--url", url, "--hard"]).await?;
    assert_eq!(get(&cache, "/red").await?.text(), "body of /red");
    assert_eq!((origin.requests(), origin.counts().conditional), (4, 1), "removed: fetched");
    assert!(is_hit(&get(&cache, "/red").await?) && is_hit(&get(&cache, "/blue").await?));
    let nothing = done(&cache, &["--url", "http://test.example/green"]).await?;
    assert!(nothing.contains("no stored entry matched"), "{nothing}");
    let (code, said) = purge(&cache, &["--url", "/red"]).await?;
    assert!(code == Some(1) && said.contains("The URL must be complete"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_purge_by_tag_reaches_the_entries_with_the_tag() -> anyhow::Result<()> {
    let (origin, cache) = filled().await?;
    done(&cache, &["--tag", "blue", "--hard"]).await?;
    assert!(is_hit(&get(&cache, "/red").await?));
    assert!(!is_hit(&get(&cache, "/blue").await?));
    assert_eq!((origin.requests(), origin.counts().conditional), (3, 0));
    done(&cache, &["--tag", "blue"]).await?;
    assert!(!is_hit(&get(&cache, "/blue").await?));
    assert_eq!((origin.requests(), origin.counts().conditional), (4, 1));
    Ok(())
}

#[tokio::test]
async fn a_purge_by_expression_reaches_the_paths_that_match() -> anyhow::Result<()> {
    let (origin, cache) = filled().await?;
    for path in ["/red?x=blue", "/bluer"] {
        get(&cache, path).await?;
        assert!(is_hit(&get(&cache, path).await?));
    }
    assert_eq!(metric(&cache, "forebay_purges_standing", "kind=\"prefix\"").await?, 0);
    done(&cache, &["--path-regex", "^/bl[a-z]{2}$"]).await?;
    assert_eq!(metric(&cache, "forebay_purges_standing", "kind=\"prefix\"").await?, 1);
    for path in ["/red", "/red?x=blue", "/bluer"] {
        assert!(is_hit(&get(&cache, path).await?), "{path}");
    }
    let conditional = origin.counts().conditional;
    assert!(!is_hit(&get(&cache, "/blue").await?));
    assert_eq!(origin.counts().conditional, conditional + 1, "stale: asked about");
    assert!(is_hit(&get(&cache, "/blue").await?));
    done(&cache, &["--path-regex", "blue", "--hard"]).await?;
    for (path, expected) in [("/red?x=blue", true), ("/blue", false), ("/bluer", false)] {
        assert_eq!(is_hit(&get(&cache, path).await?), expected, "{path}");
    }
    let (code, said) = purge(&cache, &["--path-regex", "("]).await?;
    let expected = "The expression is not a regular expression.";
    assert!(code == Some(1) && said.contains(expected), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_purge_by_site_and_of_everything_reaches_all_entries() -> anyhow::Result<()> {
    let (origin, cache) = filled().await?;
    for (args, fetches, conditional) in [
        (&["--site", "default"][..], 4, 2),
        (&["--all"][..], 6, 4),
        (&["--site", "default", "--hard"][..], 8, 4),
        (&["--all", "--hard"][..], 10, 4),
    ] {
        done(&cache, args).await?;
        for path in ["/red", "/blue"] {
            assert!(!is_hit(&get(&cache, path).await?), "{args:?}");
            assert!(is_hit(&get(&cache, path).await?), "{args:?}");
        }
        assert_eq!((origin.requests(), origin.counts().conditional), (fetches, conditional));
    }
    let (code, said) = purge(&cache, &["--site", "shop"]).await?;
    assert!(code == Some(1) && said.contains("No site has the id \"shop\""), "{said}");
    Ok(())
}

#[tokio::test]
async fn two_targets_are_wrong_usage() -> anyhow::Result<()> {
    let two = forebay(["purge", "--all", "--tag", "red"]).finish().await?;
    assert_eq!(two.status.code(), Some(2));
    Ok(())
}

#[tokio::test]
async fn an_unreachable_cache_is_an_error_with_its_address() -> anyhow::Result<()> {
    let admin = format!("http://{}", nowhere()?);
    let failed = forebay(["purge", "--all", "--admin", &admin]).finish().await?;
    assert_eq!((failed.status.code(), failed.stderr.len()), (Some(1), 1));
    let said = &failed.stderr[0];
    assert!(said.contains(&format!("no cache answers at {admin}")), "{said}");
    assert!(said.contains("--admin"), "{said}");
    let failed = forebay(["purge", "--all", "--admin", "8081"]).finish().await?;
    assert!(failed.stderr[0].contains("such as http://127.0.0.1:8081"), "{:?}", failed.stderr);
    assert_eq!(failed.status.code(), Some(1));
    Ok(())
}

#[tokio::test]
async fn an_admin_listener_off_the_loopback_requires_the_token() -> anyhow::Result<()> {
    let origin = Origin::start(tagged).await?;
    let file = ConfigFile::serving(&origin.url(), "admin_token_file = \"token\"", "")?;
    let token = file.folder.path().join("token");
    let wrong = file.folder.path().join("wrong");
    std::fs::write(&token, "secret\n")?;
    std::fs::write(&wrong, "secrets\n")?;
    let launch = forebay(["serve", "--admin", "0.0.0.0:0", "--config"]).args([&file.path]);
    let cache = launch.start().await?;
    get(&cache, "/red").await?;
    let (token, wrong) = (token.display().to_string(), wrong.display().to_string());
    for args in [&["--all", "--hard"][..], &["--all", "--hard", "--token-file", &wrong][..]] {
        let (code, said) = purge(&cache, args).await?;
        assert!(code == Some(1) && said.contains("A token is required"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
    assert!(is_hit(&get(&cache, "/red").await?));
    done(&cache, &["--all", "--hard", "--token-file", &token]).await?;
    assert!(!is_hit(&get(&cache, "/red").await?));
    let (code, said) = purge(&cache, &["--all", "--token-file", "no/such/file"]).await?;
    assert!(code == Some(1) && said.contains("no/such/file cannot be read"), "{said}");
    Ok(())
}
