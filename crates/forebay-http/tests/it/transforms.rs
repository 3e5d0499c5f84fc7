//! Transforms: policy in Rust, after the rules of each phase.

use std::sync::Arc;

use bytes::Bytes;
use forebay_http::transform::{
    FieldEdit, Inputs, KeyedView, LookupOptions, Next, RequestEdit, RequestView, ResponseEdit,
    Transform, TransformError, TransformResult, TransformsError,
};
use forebay_testkit::client::{Client, Reply, Request};
use forebay_testkit::origin::{Answer, Origin, Received};
use http::Response;

use crate::server::{TestServer, site};

/// Transform of all phases, by the path of the request.
struct Shop;

impl Transform for Shop {
    fn name(&self) -> &'static str {
        "shop"
    }

    fn inputs(&self) -> Inputs {
        Inputs::none().header("x-app").cookie("currency")
    }

    fn client_request(&self, edit: &mut RequestEdit<'_>) -> Next {
        assert!(edit.set("x-other", "1").is_err(), "it is not in the key");
        let is_get = edit.method() == http::Method::GET;
        let request = *edit.request();
        assert_ne!(request.path(), "/client-panic");
        match request.path() {
            "/answered" if is_get => {
                let mut response = Response::new(Bytes::from_static(b"mine"));
                *response.status_mut() = http::StatusCode::ACCEPTED;
                Next::Respond(response)
            }
            "/bypassed" => Next::Bypass,
            _ => {
                let app = request.header("x-app").unwrap_or("none");
                let app = app.split('.').next().unwrap_or(app).to_owned();
                assert!(edit.set("x-app", &app).is_ok() && edit.remove("x-noise").is_ok());
                Next::Continue
            }
        }
    }

    fn cache_request(&self, request: &RequestView<'_>, options: &mut LookupOptions) {
        options.ignores_client_cache_control = request.path() == "/reloaded";
    }

    fn origin_request(
        &self,
        request: &KeyedView<'_>,
        fields: &mut FieldEdit<'_>,
    ) -> TransformResult {
        assert_eq!(request.header("x-secret"), None, "it is no input");
        if request.path() == "/request-error" {
            return Err(TransformError::new("planned"));
        }
        let currency = request.cookie("currency").unwrap_or("none");
        fields.set("x-seen", &format!("{} {currency}", request.header("x-app").unwrap_or("-")))
    }

    fn origin_response(
        &self,
        request: &KeyedView<'_>,
        response: &mut ResponseEdit<'_>,
    ) -> TransformResult {
        assert_ne!(request.path(), "/response-panic");
        if request.path() == "/unstored" {
            response.do_not_store();
        }
        let status = response.status();
        response.fields().set("x-status", status.as_str())
    }

    fn cache_response(&self, _: &RequestView<'_>, fields: &mut FieldEdit<'_>) {
        assert!(fields.set("x-from", "storage").is_ok());
    }

    fn client_response(&self, request: &RequestView<'_>, fields: &mut FieldEdit<'_>) {
        assert_ne!(request.path(), "/final-panic");
        assert!(fields.set("x-to", request.header("x-secret").unwrap_or("-")).is_ok());
    }
}

async fn scene() -> anyhow::Result<(Origin, TestServer)> {
    let origin = Origin::start(|received: &Received| {
        let seen = received.fields.first("x-seen").unwrap_or("none");
        let noise = received.fields.first("x-noise").unwrap_or("quiet");
        let body = format!("{} {seen} {noise}", received.serial);
        Answer::ok(body).field("Cache-Control", "max-age=60")
    })
    .await?;
    let server = TestServer::start(origin.address(), &[]).await?;
    let settings = site(origin.address())?.with_transforms(vec![Arc::new(Shop)])?;
    server.service.reload(&[settings]);
    Ok((origin, server))
}

async fn ask(server: &TestServer, path: &str, fields: &[(&str, &str)]) -> anyhow::Result<Reply> {
    let request = fields
        .iter()
        .fold(Request::get(path), |request, (name, value)| request.field(name, *value));
    Client::connect(server.address).await?.ask(&request).await
}

#[tokio::test]
async fn inputs_are_in_the_key_and_nothing_else_shapes_what_is_stored() -> anyhow::Result<()> {
    let (origin, server) = scene().await?;
    let first = ask(&server, "/p", &[("X-App", "a.1"), ("X-Noise", "loud")]).await?;
    assert_eq!(first.text(), "1 a none quiet");
    assert_eq!((first.field("x-status"), first.field("x-from")), (Some("200"), None));
    let vary = first.field("vary").unwrap_or_default().to_ascii_lowercase();
    assert!(vary.contains("x-app") && vary.contains("cookie"), "{vary}");
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&[("X-App", "a.2"), ("X-Secret", "mine")], "1 a none quiet"),
        (&[("X-App", "b")], "2 b none quiet"),
        (&[("X-App", "a"), ("Cookie", "currency=EUR")], "3 a EUR quiet"),
        (&[("X-App", "a"), ("Cookie", "currency=EUR; other=1")], "3 a EUR quiet"),
        (&[], "4 none none quiet"),
    ];
    for (fields, expected) in rows {
        let reply = ask(&server, "/p", fields).await?;
        assert_eq!(reply.text(), expected, "{fields:?}");
    }
    let hit = ask(&server, "/p", &[("X-App", "a.3"), ("X-Secret", "mine")]).await?;
    assert_eq!((hit.field("x-from"), hit.field("x-to")), (Some("storage"), Some("mine")));
    assert_eq!(origin.requests(), 4);
    Ok(())
}

#[tokio::test]
async fn transforms_answer_bypass_and_set_options() -> anyhow::Result<()> {
    let (origin, server) = scene().await?;
    let answered = ask(&server, "/answered", &[]).await?;
    assert_eq!((answered.status, &*answered.text()), (202, "mine"));
    assert_eq!(answered.field("cache-control"), Some("no-store"));
    assert_eq!(origin.requests(), 0);
    for path in ["/bypassed", "/unstored"] {
        for _ in 0..2 {
            let said = ask(&server, path, &[]).await?;
            assert!(!said.field("cache-status").unwrap_or_default().contains("hit"), "{path}");
        }
    }
    assert_eq!(origin.requests(), 4);
    for _ in 0..2 {
        ask(&server, "/reloaded", &[("Cache-Control", "no-cache")]).await?;
    }
    assert_eq!(origin.requests(), 5);
    Ok(())
}

#[tokio::test]
async fn a_transform_that_fails_ends_its_request_and_stores_nothing() -> anyhow::Result<()> {
    let (origin, server) = scene().await?;
    for (path, status, fetches) in
        [("/client-panic", 500, 0), ("/request-error", 500, 0), ("/response-panic", 502, 1)]
    {
        let before = origin.requests_to(path);
        let reply = ask(&server, path, &[]).await?;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert_eq!(origin.requests_to(path) - before, fetches, "{path}");
    }
    for _ in 0..2 {
        let reply = ask(&server, "/final-panic", &[]).await?;
        assert_eq!((reply.status, &*reply.text()), (502, ""));
    }
    assert_eq!(ask(&server, "/p", &[]).await?.status, 200);
    Ok(())
}

/// Transform with inputs that are checked.
struct Wants(&'static str);

impl Transform for Wants {
    fn name(&self) -> &'static str {
        "wants"
    }

    fn inputs(&self) -> Inputs {
        Inputs::none().header(self.0)
    }
}

#[tokio::test]
async fn inputs_and_names_are_checked() -> anyhow::Result<()> {
    let origin = Origin::always(Answer::ok("a")).await?;
    for name in ["authorization", "Cookie", "host", "a b"] {
        let refused = site(origin.address())?.with_transforms(vec![Arc::new(Wants(name))]);
        assert!(matches!(refused, Err(TransformsError::Input("wants", _))), "{name}");
    }
    let twice: Vec<Arc<dyn Transform>> = vec![Arc::new(Wants("a")), Arc::new(Wants("b"))];
    let refused = site(origin.address())?.with_transforms(twice);
    assert_eq!(refused.err(), Some(TransformsError::Name("wants")));
    Ok(())
}
