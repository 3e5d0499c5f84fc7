//! `forebay purge`: sends a purge to the admin listener of a running cache.

use anyhow::bail;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::admin_client::{self, AdminClient};
use crate::args::{PurgeArgs, PurgeWhat};
use crate::output::{USAGE, print_error, print_line};

/// Maximum size of the answer in bytes; it is one line of JSON.
const ANSWER_MAX: usize = 64 << 10;

/// Sends the purge and prints its result.
///
/// # Errors
/// If the cache cannot be reached, or refuses the purge.
pub(crate) fn run(args: &PurgeArgs) -> anyhow::Result<u8> {
    let what = &args.what;
    let named = [&what.url, &what.prefix, &what.path_regex, &what.site];
    if !what.all && what.tag.is_empty() && named.iter().all(|one| one.is_none()) {
        let flags = "--url URL, --tag TAG, --prefix PREFIX, --path-regex REGEX, --site ID or --all";
        print_error(format_args!("forebay: name what to purge: {flags}"));
        return Ok(USAGE);
    }
    let client = AdminClient::new(&args.admin)?;
    let body = json_of(&args.what, args.hard);
    let asked = client.ask(Method::POST, "/purge", Some(&body), ANSWER_MAX);
    let (status, body) = admin_client::run(asked)?;
    let done = report(status, &serde_json::from_slice(&body).unwrap_or(Value::Null), client.url())?;
    let note = what.prefix.as_deref().and_then(port_note).unwrap_or_default();
    print_line(format_args!("{done}{note}"));
    Ok(0)
}

/// Returns a note about a prefix with an address and no port: clients of an address usually name the
/// port, which is then in the keys.
fn port_note(prefix: &str) -> Option<String> {
    let (host, _) = prefix.split_once('/')?;
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = host == "localhost" || address.parse::<std::net::IpAddr>().is_ok();
    is_local.then(|| {
        format!(
            "; the prefix matches requests for {host} without a port only: to match others, add \
             their port, such as {host}:8080/"
        )
    })
}

fn json_of(what: &PurgeWhat, hard: bool) -> Value {
    if let Some(expression) = &what.path_regex {
        return json!({ "path_regex": expression, "hard": hard });
    }
    match (&what.url, &*what.tag, &what.prefix, &what.site) {
        (Some(url), ..) => json!({ "url": url, "hard": hard }),
        (_, [tag], ..) => json!({ "tag": tag, "hard": hard }),
        (_, [_, _, ..], ..) => json!({ "tags": what.tag, "hard": hard }),
        (_, _, Some(prefix), _) => json!({ "prefix": prefix, "hard": hard }),
        (.., Some(site)) => json!({ "site": site, "hard": hard }),
        _ => json!({ "all": true, "hard": hard }),
    }
}

/// Returns the result of the purge. Only some of the failures leave the cache unchanged.
fn report(status: StatusCode, body: &Value, admin: &str) -> anyhow::Result<String> {
    let id = body["id"].as_str().unwrap_or("-");
    let sentence = body["error"].as_str().unwrap_or("The response gives no reason.");
    match status {
        StatusCode::OK => {}
        StatusCode::SERVICE_UNAVAILABLE => {
            bail!("purge {id} is complete on one instance only, that of {admin}. {sentence}")
        }
        StatusCode::INTERNAL_SERVER_ERROR => {
            bail!("the purge is carried out, but may be undone by a restart. {sentence}")
        }
        _ if status.is_client_error() => bail!("nothing was purged ({status}). {sentence}"),
        _ => bail!("{admin} answered the purge with {status}. {sentence}"),
    }
    let instances = &body["instances"];
    let found = if body["purged"] == 0 { "no stored entry matched" } else { "done" };
    Ok(format!("purge {id}: {found} (instances: {instances})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "http://127.0.0.1:8081";

    fn failure(status: StatusCode, body: &Value) -> String {
        report(status, body, ADMIN).expect_err("no success").to_string()
    }

    #[test]
    fn a_failed_purge_says_what_was_carried_out() {
        let body = json!({ "id": "7", "error": "Reason." });
        let rows = [
            (StatusCode::SERVICE_UNAVAILABLE, "purge 7 is complete on one instance only"),
            (StatusCode::INTERNAL_SERVER_ERROR, "the purge is carried out, but may be undone by a"),
            (StatusCode::FORBIDDEN, "nothing was purged (403 Forbidden)"),
            (StatusCode::BAD_GATEWAY, "http://127.0.0.1:8081 answered the purge with 502"),
        ];
        for (status, begin) in rows {
            let text = failure(status, &body);
            assert!(text.starts_with(begin) && text.ends_with(" Reason."), "{text}");
        }
        let text = failure(StatusCode::BAD_REQUEST, &Value::Null);
        assert!(text.ends_with("The response gives no reason."), "{text}");
        let body = json!({ "id": "7", "instances": 1, "purged": 1 });
        let done = report(StatusCode::OK, &body, ADMIN).unwrap();
        assert_eq!(done, "purge 7: done (instances: 1)");
    }

    #[test]
    fn a_prefix_with_an_address_and_no_port_is_noted() {
        for prefix in ["127.0.0.1/a", "localhost/", "[::1]/a"] {
            assert!(port_note(prefix).is_some(), "{prefix}");
        }
        for prefix in ["127.0.0.1:8080/a", "shop.example/a", "/a", "[::1]:80/"] {
            assert_eq!(port_note(prefix), None, "{prefix}");
        }
    }
}
