//! The HTTP interface.

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

/// Maximum length of a request body in bytes.
const BODY_MAX: usize = 64 << 10;

/// The web service. Clones share its users.
#[derive(Clone, Debug)]
pub struct Service {
    /// Access to the users.
    pub users: Users,
    /// The database, for the number of its queries.
    pub database: Database,
}

type Answer = Response<Full<Bytes>>;

impl Service {
    /// Serves connections until an error.
    ///
    /// # Errors
    /// The listener cannot accept connections.
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
            // A client that disconnects is not an error of the service.
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
                Ok(users) => json_response(
                    StatusCode::OK,
                    &users.iter().map(|one| &**one).collect::<Vec<_>>(),
                ),
                Err(error) => failed(&error),
            },
            (&Method::DELETE, ["teams", team, "cache"]) => {
                self.users.forget_team(team).await;
                json_response(StatusCode::NO_CONTENT, &())
            }
            (&Method::GET, ["stats"]) => self.stats(),
            (&Method::GET, ["metrics"]) => self.metrics(),
            _ => json_response(StatusCode::NOT_FOUND, &json!({ "error": "unknown path" })),
        }
    }

    async fn user(&self, id: &str) -> Answer {
        let Ok(id) = id.parse() else { return bad_request("the user id is not a number") };
        match self.users.user(id).await {
            Ok(Some(user)) => json_response(StatusCode::OK, &*user),
            Ok(None) => json_response(StatusCode::NOT_FOUND, &json!({ "error": "unknown user" })),
            Err(error) => failed(&error),
        }
    }

    async fn write(&self, id: &str, request: Request<Incoming>) -> Answer {
        let Ok(id) = id.parse::<i64>() else { return bad_request("the user id is not a number") };
        let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
        let Ok(body) = body else {
            return bad_request("the body is longer than 64 KiB or incomplete");
        };
        let Ok(mut sent) = serde_json::from_slice::<serde_json::Value>(&body.to_bytes()) else {
            return bad_request("the body is not JSON");
        };
        sent["id"] = json!(id);
        let Ok(user) = serde_json::from_value::<User>(sent) else {
            return bad_request("the body needs a name and a team, both strings");
        };
        match self.users.write(user).await {
            Ok(()) => json_response(StatusCode::NO_CONTENT, &()),
            Err(error) => {
                eprintln!("writing a user failed: {error}");
                json_response(
                    StatusCode::SERVICE_UNAVAILABLE,
                    &json!({ "error": "temporarily unavailable" }),
                )
            }
        }
    }

    fn stats(&self) -> Answer {
        let stats = self.users.stats();
        json_response(
            StatusCode::OK,
            &json!({
                "hits": stats.hits,
                "misses": stats.misses,
                "coalesced": stats.coalesced,
                "fallbacks": stats.fallbacks,
                "loads": stats.loads,
                "queries": self.database.queries(),
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

fn json_response(status: StatusCode, body: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let bytes = if status == StatusCode::NO_CONTENT { Bytes::new() } else { bytes.into() };
    let mut answer = Response::new(Full::new(bytes));
    *answer.status_mut() = status;
    answer
}

fn bad_request(what: &str) -> Answer {
    json_response(StatusCode::BAD_REQUEST, &json!({ "error": what }))
}

/// Logs the error. The client only learns whether a retry can help: 503 or 500.
fn failed(error: &Error) -> Answer {
    eprintln!("reading users failed: {error}");
    let status = if error.is_transient() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    json_response(status, &json!({ "error": "temporarily unavailable" }))
}
