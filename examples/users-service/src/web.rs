//! Requests and answers.

use std::convert::Infallible;

use bytes::Bytes;
use forebay::Error;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;

use crate::database::{Database, User};
use crate::metrics;
use crate::users::Users;

/// The largest body that is read.
const BODY_MAX: usize = 64 << 10;

/// The service. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Service {
    /// The users.
    pub users: Users,
    /// Where they come from, to say how often it was asked.
    pub database: Database,
}

type Answer = Response<Full<Bytes>>;

impl Service {
    /// Answers whoever connects, for ever.
    ///
    /// # Errors
    /// If no connection can be taken any more.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<Infallible> {
        loop {
            let (stream, _) = listener.accept().await?;
            let service = self.clone();
            let answering = service_fn(move |request| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.answer(request).await) }
            });
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), answering);
            // A client that breaks off is no trouble of ours.
            tokio::spawn(async move { drop(connection.await) });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (&method, parts.as_slice()) {
            (&Method::GET, ["users", id]) => self.user(id).await,
            (&Method::PUT, ["users", id]) => self.write(id, request).await,
            (&Method::GET, ["teams", team]) => match self.users.team(team).await {
                Ok(users) => {
                    told(StatusCode::OK, &users.iter().map(|one| &**one).collect::<Vec<_>>())
                }
                Err(error) => failed(&error),
            },
            (&Method::DELETE, ["teams", team, "cache"]) => {
                self.users.forget_team(team).await;
                told(StatusCode::NO_CONTENT, &())
            }
            (&Method::GET, ["stats"]) => self.stats(),
            (&Method::GET, ["metrics"]) => self.metrics(),
            _ => told(StatusCode::NOT_FOUND, &json!({ "error": "there is no such page" })),
        }
    }

    async fn user(&self, id: &str) -> Answer {
        let Ok(id) = id.parse() else { return wrong("a user has a number") };
        match self.users.user(id).await {
            Ok(Some(user)) => told(StatusCode::OK, &*user),
            Ok(None) => told(StatusCode::NOT_FOUND, &json!({ "error": "there is no such user" })),
            Err(error) => failed(&error),
        }
    }

    async fn write(&self, id: &str, request: Request<Incoming>) -> Answer {
        let Ok(id) = id.parse::<i64>() else { return wrong("a user has a number") };
        let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
        let Ok(body) = body else { return wrong("the body is too long, or broke off") };
        let Ok(mut sent) = serde_json::from_slice::<serde_json::Value>(&body.to_bytes()) else {
            return wrong("the body is JSON");
        };
        sent["id"] = json!(id);
        let Ok(user) = serde_json::from_value::<User>(sent) else {
            return wrong("a user has a name and a team");
        };
        match self.users.write(user).await {
            Ok(()) => told(StatusCode::NO_CONTENT, &()),
            Err(error) => {
                eprintln!("a user was not written: {error}");
                told(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "not now" }))
            }
        }
    }

    fn stats(&self) -> Answer {
        let stats = self.users.stats();
        told(
            StatusCode::OK,
            &json!({
                "hits": stats.hits,
                "misses": stats.misses,
                "coalesced": stats.coalesced,
                "fallbacks": stats.fallbacks,
                "loads": stats.loads,
                "questions": self.database.questions(),
            }),
        )
    }

    fn metrics(&self) -> Answer {
        let mut answer = Response::new(Full::from(metrics::text(&self.users).unwrap_or_default()));
        let form = HeaderValue::from_static(metrics::CONTENT_TYPE);
        answer.headers_mut().insert(CONTENT_TYPE, form);
        answer
    }
}

fn told(status: StatusCode, body: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let bytes = if status == StatusCode::NO_CONTENT { Bytes::new() } else { bytes.into() };
    let mut answer = Response::new(Full::new(bytes));
    *answer.status_mut() = status;
    answer
}

fn wrong(what: &str) -> Answer {
    told(StatusCode::BAD_REQUEST, &json!({ "error": what }))
}

/// What went wrong is for the log; whether to come again is for the client.
fn failed(error: &Error) -> Answer {
    eprintln!("a user was not found out: {error}");
    let status = if error.is_transient() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    told(status, &json!({ "error": "not now" }))
}
