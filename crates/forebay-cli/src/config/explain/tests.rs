//! Explanations as text and as JSON.

use super::super::resolved::{Overrides, ResolvedConfig};
use super::{Explained, Explanation};

const FILE: &str = "[[site]]\nid = \"shop\"\nhosts = [\"shop.example\"]\norigin = \"http://o\"\n\
    [[site.rule]]\nname = \"all\"\nttl = \"1m\"\n\
    [[site.rule]]\nname = \"pages\"\nwhen.path = \"/p/**\"\nignore_query = [\"utm_*\"]\n\
    keep_cookies = [\"currency\"]\nttl = \"10m\"\n\
    key = { headers = [\"x-app\"], cookies = [\"currency\"] }\n\
    [[site.rule]]\nname = \"account\"\nwhen.path = \"/account/**\"\nbypass = true\n\
    [[site.rule]]\nname = \"missing\"\nwhen.status = 404\nmax_ttl = \"1s\"\n";

fn explain(request: Explained) -> anyhow::Result<Explanation> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("f.toml");
    std::fs::write(&path, FILE)?;
    let config = ResolvedConfig::load(Some(&path), &Overrides::default());
    request.by(&config.unwrap_or_else(|problems| panic!("{problems}")))
}

fn get(url: &str, fields: &[&str]) -> Explained {
    Explained {
        url: url.to_owned(),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        method: "GET".to_owned(),
        client: None,
        response: None,
    }
}

#[test]
fn a_request_is_explained_line_by_line() {
    let url = "https://shop.example/p/7?utm_source=x&id=7";
    let explained = explain(get(url, &["Cookie: _ga=1; currency=EUR"])).unwrap();
    let expected = "\
site      shop
target    /p/7?id=7  without utm_source
key       https shop.example /p/7?id=7 + header x-app absent + cookie currency=EUR
rules       1 all      matches   every request
            2 pages    matches   path /p/**
            3 account  no match  path /account/**
            4 missing  no match  status 404
lookup    yes; the origin is not sent: cookie _ga
ignore_query [utm_*] pages
keep_cookies [currency] pages
key       header x-app, cookie currency pages
ttl       10m pages, over all
";
    assert_eq!(explained.text(), expected);
    let json = serde_json::to_value(&explained).unwrap();
    assert_eq!(json["settings"][2]["rule"], "pages");
}

#[test]
fn bypasses_methods_and_responses_are_explained() {
    let lookup = |request| explain(request).unwrap().text();
    assert!(lookup(get("http://shop.example/x/../account", &[])).contains("no: bypass (account)"));
    let post = Explained { method: "POST".into(), ..get("http://shop.example/p", &[]) };
    assert!(lookup(post).contains("lookup    no: method POST"));
    let response = Some("404 Content-Type: text/html; X-A: 1".to_owned());
    let missing = Explained { response, ..get("http://shop.example/p", &[]) };
    assert!(lookup(missing).contains("max_ttl   1s missing"));
}

#[test]
fn malformed_requests_are_errors() {
    let rows = [
        (get("shop.example/p", &[]), "invalid format"),
        (get("/p", &[]), "needs a URL"),
        (get("http://other.example/", &[]), "no site answers"),
        (get("http://shop.example/", &["a"]), "must be \"Name: value\""),
        (Explained { response: Some("x".into()), ..get("http://shop.example/", &[]) }, "status"),
    ];
    for (request, expected) in rows {
        let error = format!("{:#}", explain(request).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}
