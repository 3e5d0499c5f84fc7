//! Commands that need no cache: `check`, `origin` and `help`.

use forebay_testkit::client::{Client, Request};

use crate::world::{ConfigFile, forebay, get};

#[tokio::test]
async fn check_prints_the_resolved_configuration() -> anyhow::Result<()> {
    let file = ConfigFile::serving("http://127.0.0.1:9", "threads = 3", "coalesce = false")?;
    let checked = forebay(["check"]).args([&file.path]).finish().await?;
    assert_eq!((checked.status.code(), checked.stderr), (Some(0), vec![]));
    let row = |name: &str| {
        let found = checked.stdout.iter().find(|line| line.split(' ').next() == Some(name));
        found.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(row("threads").as_deref(), Some("3 line 3"));
    assert_eq!(row("site[0].coalesce").as_deref(), Some("false line 7"));
    assert_eq!(row("memory.size").as_deref(), Some("\"256MiB\" default"));
    assert!(checked.stdout.iter().any(|line| line.contains("fetches from http://127.0.0.1:9")));
    Ok(())
}

#[tokio::test]
async fn check_prints_every_error() -> anyhow::Result<()> {
    let file = ConfigFile::of("threads = \"2\"\n[[site]]\norigin = \"o\"\nid = \"A\"\n")?;
    let checked = forebay(["check"]).args([&file.path]).finish().await?;
    assert_eq!((checked.status.code(), checked.stdout), (Some(1), vec![]));
    let path = file.path.display();
    let places = ["1:11", "3:10", "4:6"].map(|place| format!("{path}:{place}: "));
    for (line, place) in checked.stderr.iter().zip(&places) {
        assert!(line.starts_with(place.as_str()), "{line}");
    }
    assert_eq!(checked.stderr[3..], ["3 errors"]);
    Ok(())
}

#[tokio::test]
async fn the_sample_origin_follows_its_parameters_and_counts() -> anyhow::Result<()> {
    let origin = forebay(["origin", "--listen", "127.0.0.1:0"]).start().await?;
    assert!(get(&origin, "/items/tea").await?.text().starts_with("This is item \"tea\""));
    let told = get(&origin, "/shop/v1/items/tea?status=404&size=7&cc=no-store").await?;
    assert_eq!((told.status, told.body_length()), (404, 7));
    assert_eq!(told.field("cache-control"), Some("no-store"));
    let mut client = Client::connect(origin.address()).await?;
    for path in ["/stats", "/any/prefix/stats"] {
        let stats = client.ask(&Request::get(path)).await?;
        let stats: serde_json::Value = serde_json::from_slice(stats.body())?;
        assert_eq!((&stats["total"], &stats["items"]["tea"]), (&2.into(), &2.into()), "{path}");
    }
    assert_eq!(get(&origin, "/elsewhere").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn help_of_help_is_the_help() -> anyhow::Result<()> {
    for flag in ["--help", "-h"] {
        let help = forebay(["help", flag]).finish().await?;
        assert_eq!(help.status.code(), Some(0), "{:?}", help.stderr);
        assert!(
            help.stdout.iter().any(|line| line.contains("Usage: forebay")),
            "{:?}",
            help.stdout
        );
    }
    Ok(())
}
