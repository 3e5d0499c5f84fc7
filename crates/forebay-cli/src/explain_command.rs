//! `forebay explain`: asks a running cache what it would do with a request, and why.

mod text;

use anyhow::{Context, bail};
use forebay_http::explanation::Explanation;
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::admin_client::{self, AdminClient, sentence};
use crate::args::ExplainUrlArgs;
use crate::output::print_line;

/// Maximum size of the answer in bytes: 64 variants with their fields take less.
const ANSWER_MAX: usize = 4 << 20;

/// Exit code with `--exit-code`, if the request would not be a hit.
const NO_HIT: u8 = 3;

/// Asks for the explanation, and prints it.
///
/// # Errors
/// If the cache cannot be reached, or refuses to explain.
pub(crate) fn run(args: &ExplainUrlArgs) -> anyhow::Result<u8> {
    let client = AdminClient::new(&args.admin)?;
    let (status, body) = admin_client::run(async {
        if args.live {
            let body = json!({
                "url": args.url,
                "headers": args.fields,
                "method": args.method,
                "client": args.client,
            });
            client.ask(Method::POST, "/explain", Some(&body), ANSWER_MAX).await
        } else {
            client.ask(Method::GET, &path_of(args), None, ANSWER_MAX).await
        }
    })?;
    if status != StatusCode::OK {
        bail!("{} did not explain the request ({status}). {}", client.url(), sentence(&body));
    }
    let explanation: Explanation = serde_json::from_slice(&body).with_context(|| {
        format!("the answer of {} is of another version of forebay", client.url())
    })?;
    let text = if args.json {
        serde_json::to_string_pretty(&explanation)?
    } else {
        text::of(&explanation)
    };
    print_line(format_args!("{}", text.trim_end()));
    let is_missing = args.exit_code && !explanation.is_hit();
    Ok(if is_missing { NO_HIT } else { 0 })
}

fn path_of(args: &ExplainUrlArgs) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut path = format!("/explain?url={}&method={}", encoded(&args.url), encoded(&args.method));
    for field in &args.fields {
        path.push_str("&header=");
        path.push_str(&encoded(field));
    }
    if let Some(client) = args.client {
        path.push_str("&client=");
        path.push_str(&encoded(&client.to_string()));
    }
    path
}
