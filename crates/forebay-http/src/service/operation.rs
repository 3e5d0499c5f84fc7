//! GraphQL operation in the body of a request, which conditions of rules read.

use bytes::Bytes;
use forebay_rules::{Operation, Target};
use http::request::Parts;
use http_body_util::{BodyExt, Full};

use super::by_body::{Collected, collect};
use crate::failure::Failure;
use crate::origin::{ClientFault, RequestBody};

/// Reads the body up to `most` bytes. Returns its operation, and the body from its first byte.
///
/// # Errors
/// If the client does not send the body.
pub(super) async fn read(
    parts: &Parts,
    body: RequestBody,
    most: usize,
) -> Result<(Option<Operation>, RequestBody), Failure> {
    match collect(body, most).await {
        Ok(Collected::Whole(bytes)) => {
            // Some servers prefer an operation in the query.
            let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
            let mut names = Target::new(path).parameters().map(|(name, _)| name);
            let is_elsewhere = names.any(|name| name.contains('%') || OPERATION.contains(&name));
            let operation = if is_elsewhere { None } else { Operation::of(&bytes) };
            Ok((operation, whole(bytes)))
        }
        Ok(Collected::Larger(body)) => Ok((None, body)),
        Err(error) => Err(Failure::from(ClientFault::of_body(&*error))),
    }
}

/// Parameters of a URL that can select an operation.
const OPERATION: [&str; 3] = ["query", "operationName", "id"];

fn whole(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
