//! Start of the binary, and the errors that prevent it.

use std::net::{Ipv4Addr, TcpListener};

use forebay_testkit::launch::{Finished, Launch};

use crate::world::{
    ANYWHERE, ConfigFile, admin_of, forebay, fresh_origin, get, get_admin, is_hit, nowhere,
};

/// Runs a command that must fail; returns its exit code and stderr. Stdout must be empty.
async fn refused(launch: Launch) -> anyhow::Result<(Option<i32>, String)> {
    let Finished { status, stdout, stderr } = launch.finish().await?;
    assert_eq!(stdout, [""; 0], "nothing is ready");
    Ok((status.code(), stderr.join("\n")))
}

#[tokio::test]
async fn every_flag_has_an_environment_variable() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let launch = forebay(["serve"])
        .env("FOREBAY_LISTEN", "127.0.0.1:0")
        .env("FOREBAY_ADMIN", "127.0.0.1:0")
        .env("FOREBAY_ORIGIN", origin.url())
        .env("FOREBAY_MEMORY", "1MiB");
    let cache = launch.start().await?;
    assert_eq!(get(&cache, "/").await?.text(), "hello");
    assert_eq!(get_admin(&cache, "/livez").await?.status, 200);

    let file = ConfigFile::serving(&origin.url(), "", "")?;
    let cache = forebay(["serve"]).env("FOREBAY_CONFIG", &file.path).start().await?;
    assert_eq!(get(&cache, "/").await?.text(), "hello");

    let demo = forebay(["serve"]).args(ANYWHERE).env("FOREBAY_DEMO", "true").start().await?;
    assert!(get(&demo, "/items/a").await?.text().contains("item \"a\""));
    Ok(())
}

#[tokio::test]
async fn flags_override_variables_which_override_the_file() -> anyhow::Result<()> {
    let (from_file, wanted) = (nowhere()?.to_string(), fresh_origin().await?);
    let file = ConfigFile::serving(&format!("http://{from_file}"), "", "")?;
    let cache = forebay(["serve", "--config"])
        .args([&file.path])
        .env("FOREBAY_ORIGIN", wanted.url())
        .env("FOREBAY_MEMORY", "a variable that is not looked at")
        .args(["--memory", "2MiB"]);
    let cache = cache.start().await?;
    assert_eq!(get(&cache, "/").await?.text(), "hello");
    assert!(is_hit(&get(&cache, "/").await?));
    assert_eq!(wanted.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn several_addresses_are_served() -> anyhow::Result<()> {
    let origin = fresh_origin().await?;
    let listen = ["serve", "--listen", "127.0.0.1:0,[::1]:0", "--admin", "127.0.0.1:0"];
    let cache = forebay(listen).args(["--origin", &origin.url()]).start().await?;
    let ready = cache.wait_stdout("forebay ready").await?;
    let second = ready.split(' ').find_map(|word| word.strip_prefix("http://[::1]:"));
    let second = format!("[::1]:{}", second.unwrap_or_default());
    let request = forebay_testkit::client::Request::get("/");
    assert_eq!(crate::world::ask(second.parse()?, &request).await?.text(), "hello");
    assert_eq!(get(&cache, "/").await?.text(), "hello");
    assert_eq!(origin.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn a_port_in_use_is_an_error_with_the_address() -> anyhow::Result<()> {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let taken = taken.local_addr()?.to_string();
    let origin = ["--origin", "http://127.0.0.1:9"];
    for (flag, other) in [("--listen", "--admin"), ("--admin", "--listen")] {
        let launch = forebay(["serve", flag, &taken, other, "127.0.0.1:0"]).args(origin);
        let (code, said) = refused(launch).await?;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("cannot listen on {taken}: ")), "{said}");
        assert!(said.contains(&format!("with {flag}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let (code, said) = refused(forebay(["origin", "--listen", &taken])).await?;
    assert!(code == Some(1) && said.contains(&format!("cannot listen on {taken}: ")), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_misspelled_flag_is_wrong_usage_with_a_suggestion() -> anyhow::Result<()> {
    for (args, meant) in [
        (["serve", "--orign", "http://o"], "'--origin'"),
        (["serve", "--memori", "1MiB"], "'--memory'"),
        (["purge", "--al", "--hard"], "'--all'"),
        (["serv", "--origin", "http://o"], "'serve'"),
    ] {
        let (code, said) = refused(forebay(args)).await?;
        assert!(code == Some(2) && said.contains(meant), "{args:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_flag_of_a_later_version_is_refused_with_a_message() -> anyhow::Result<()> {
    for (flag, tier) in [("--memcached", "memcached tier")] {
        let (code, said) = refused(forebay(["serve", "--demo", flag, "x"])).await?;
        let expected = format!("forebay: {flag}: this version has no {tier}; remove the flag");
        assert_eq!((code, said), (Some(2), expected));
    }
    let launch = forebay(["serve", "--demo"]).env("FOREBAY_MEMCACHED", "x");
    assert_eq!(refused(launch).await?.0, Some(2));
    let (code, said) = refused(forebay(["purge"])).await?;
    assert!(code == Some(2) && said.contains("--prefix PREFIX"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_invalid_flag_value_is_wrong_usage() -> anyhow::Result<()> {
    let origin = "http://127.0.0.1:9";
    for (flag, value, says) in [
        ("--memory", "12", "\"12\" needs a unit"),
        ("--memory", "many", "--memory: "),
        ("--redis", "http://127.0.0.1:6379", "--redis: is not a URL such as"),
        ("--listen", "8080", "--listen: "),
        ("--admin", "nowhere", "--admin: "),
        ("--origin", "ftp://o", "must begin with http://, https:// or unix:/"),
    ] {
        let launch = forebay(["serve", flag, value]);
        let launch = if flag == "--origin" { launch } else { launch.args(["--origin", origin]) };
        let (code, said) = refused(launch).await?;
        assert!(code == Some(2) && said.contains(says), "{flag} {value}: {said}");
    }
    // A valid file beside it does not change that.
    let file = ConfigFile::serving(origin, "", "")?;
    let launch = forebay(["serve", "--memory", "12", "--config"]).args([&file.path]);
    assert_eq!(refused(launch).await?.0, Some(2));
    Ok(())
}

#[tokio::test]
async fn serve_without_an_origin_is_wrong_usage() -> anyhow::Result<()> {
    let (code, said) = refused(forebay(["serve"])).await?;
    assert_eq!(code, Some(2));
    assert!(said.contains("--origin") && said.contains("--config") && said.contains("--demo"));
    let (code, said) = refused(forebay(["purge"])).await?;
    assert!(code == Some(2) && said.contains("--url URL"), "{said}");
    let (code, said) = refused(forebay([])).await?;
    assert!(code == Some(2) && said.contains("forebay serve --demo"), "{said}");
    Ok(())
}

#[tokio::test]
async fn every_error_of_a_file_is_printed_with_its_position() -> anyhow::Result<()> {
    let free = nowhere()?;
    let text = format!(
        "listen = \"{free}\"\nthreds = 2\n\n[memory]\nsize = 64\n\n\
         [[site]]\nid = \"shop\"\norigin = \"http://127.0.0.1:9\"\nfetch_timeout = \"soon\"\n"
    );
    let file = ConfigFile::of(&text)?;
    let (code, said) = refused(forebay(["serve", "--config"]).args([&file.path])).await?;
    assert_eq!(code, Some(1), "{said}");
    let path = file.path.display();
    let expected = [
        format!("{path}:2:1: threds: unknown field; did you mean \"threads\"?"),
        format!("{path}:5:8: memory.size: 64 needs a unit"),
        format!("{path}:10:17: site[0].fetch_timeout: "),
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.starts_with(expected.as_str()), "{line}");
    }
    TcpListener::bind(free)?;
    let (code, said) = refused(forebay(["serve", "--config", "no/such/file"])).await?;
    assert!(code == Some(1) && said.contains("no/such/file: cannot be read"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_admin_listener_off_the_loopback_requires_a_token() -> anyhow::Result<()> {
    let open = ["serve", "--admin", "0.0.0.0:0", "--listen", "127.0.0.1:0"];
    let (code, said) = refused(forebay(open).args(["--origin", "http://127.0.0.1:9"])).await?;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("admin_token_file"), "{said}");

    let file = ConfigFile::serving("http://127.0.0.1:9", "admin_token_file = \"token\"", "")?;
    std::fs::write(file.folder.path().join("token"), "secret\n")?;
    let cache = forebay(["serve", "--admin", "0.0.0.0:0", "--config"]).args([&file.path]);
    let cache = cache.start().await?;
    assert_eq!(
        crate::world::ask(
            admin_of(&cache)?,
            &forebay_testkit::client::Request::get("/livez")
                .field("Authorization", "Bearer secret"),
        )
        .await?
        .status,
        200
    );
    Ok(())
}
