//! Metrics of the rules of a site, in the real binary.

use forebay_testkit::client::Request;
use forebay_testkit::origin::{Answer, Origin, Received};

use crate::rules::{ask_with, numbered};
use crate::world::{ConfigFile, ask, get, is_hit, metric, written};

#[tokio::test]
async fn matches_of_rules_are_counted_for_hits_and_misses() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "max-age=60")]).await?;
    let rules = "[[site.rule]]\nname = \"all\"\nsort_query = true\n\
                 [[site.rule]]\nname = \"pages\"\nwhen.path = \"/p/**\"\nsoft_timeout = \"1s\"\n\
                 [[site.rule]]\nname = \"found\"\nwhen.status = 200\nmax_ttl = \"30s\"\n";
    let config = ConfigFile::serving(&origin.url(), "", rules)?;
    let cache = config.serve().await?;
    assert_eq!(metric(&cache, "forebay_rules", "site=\"shop\"").await?, 3);
    assert_eq!(metric(&cache, "forebay_rule_matches_total", "rule=\"pages\"").await?, 0);
    get(&cache, "/p/x").await?;
    written(&cache).await?;
    for _ in 0..3 {
        assert!(is_hit(&get(&cache, "/p/x").await?));
    }
    get(&cache, "/q").await?;
    // A rule with a condition on the response counts responses of the origin.
    for (rule, expected) in [("all", 5), ("pages", 4), ("found", 2)] {
        let label = format!("rule=\"{rule}\"");
        assert_eq!(metric(&cache, "forebay_rule_matches_total", &label).await?, expected, "{rule}");
    }
    Ok(())
}

#[tokio::test]
async fn errors_of_rules_are_counted_by_kind() -> anyhow::Result<()> {
    let answer = |_: &Received| Answer::ok("{").field("Content-Type", "application/json");
    let origin = Origin::start(answer).await?;
    let config = ConfigFile::serving(
        &origin.url(),
        "",
        "[[site.rule]]\nname = \"edit\"\nwhen.path = \"/edit\"\n\
         client_response.set = { x-long = \"{query.a}{query.a}{query.a}\" }\n\
         [[site.rule]]\nname = \"move\"\nwhen.path = \"/old/**\"\n\
         redirect = { from = \"^/old(/.*)$\", to = \"$1\" }\n\
         [[site.rule]]\nname = \"rewrite\"\nwhen.path = \"/re/**\"\n\
         rewrite = { from = \"^/re(.*)$\", to = \"$1\" }\n\
         [[site.rule]]\nname = \"key\"\nwhen.path = \"/key\"\nkey.headers = [\"x-k\"]\n\
         [[site.rule]]\nname = \"purge\"\nwhen = { method = \"PURGE\" }\n\
         purge.token_file = \"token\"\n\
         [[site.rule]]\nname = \"cut\"\nwhen.path = \"/cut\"\njson.remove = [\"/a\"]\n",
    )?;
    std::fs::write(config.folder.path().join("token"), "s3cret\n")?;
    let cache = config.serve().await?;
    get(&cache, &format!("/edit?a={}", "x".repeat(4_000))).await?;
    assert_eq!(get(&cache, "/old//evil").await?.status, 400);
    assert_eq!(get(&cache, "/re//evil").await?.status, 400);
    ask_with(&cache, "/key", &[("X-K", &"k".repeat(300))]).await?;
    assert_eq!(ask(cache.address(), &Request::new("PURGE", "/x")).await?.status, 403);
    assert_eq!(get(&cache, "/cut").await?.status, 502);
    let rows = [
        ("edit", "value"),
        ("move", "target"),
        ("rewrite", "target"),
        ("key", "key"),
        ("purge", "purge"),
        ("cut", "json"),
    ];
    for (rule, kind) in rows {
        let label = format!("rule=\"{rule}\",kind=\"{kind}\"");
        let count = metric(&cache, "forebay_rule_errors_total", &label).await?;
        assert_eq!(count, 1, "{rule}");
    }
    Ok(())
}

#[tokio::test]
async fn only_words_without_which_nothing_is_stored_are_counted() -> anyhow::Result<()> {
    let origin = numbered(&[("Cache-Control", "private, max-age=60")]).await?;
    let config = ConfigFile::serving(
        &origin.url(),
        "",
        "[[site.rule]]\nname = \"open\"\nunsafe_ignore = [\"private\", \"no-store\"]\n",
    )?;
    let cache = config.serve().await?;
    get(&cache, "/x").await?;
    written(&cache).await?;
    assert!(is_hit(&get(&cache, "/x").await?));
    for (word, expected) in [("private", 1), ("no-store", 0)] {
        let label = format!("word=\"{word}\"");
        let count = metric(&cache, "forebay_rule_unsafe_stored_total", &label).await?;
        assert_eq!(count, expected, "{word}");
    }
    Ok(())
}
