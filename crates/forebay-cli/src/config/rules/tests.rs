//! Errors with their positions, and rules as they are read.

use std::time::Duration;

use forebay_rules::setting::{BrowserTtl, ByStatus, StatusTest};
use forebay_rules::{Kind, Setting};

use super::super::problem::Problems;
use super::super::resolved::{Overrides, ResolvedConfig};

/// Resolves a file with one site, whose lines after the fifth are `rules`.
fn resolved(rules: &str) -> Result<ResolvedConfig, Problems> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), " s3cret\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let path = folder.path().join("f.toml");
    let text = format!("\n\n[[site]]\nid = \"shop\"\norigin = \"http://o\"\n{rules}");
    std::fs::write(&path, text).unwrap();
    ResolvedConfig::load(Some(&path), &Overrides::default())
}

/// Errors without the path of the file.
fn errors(rules: &str) -> Vec<String> {
    let problems = resolved(rules).unwrap_err();
    let after_name =
        |line: String| line.split_once("f.toml:").map_or_else(|| line.clone(), |(_, l)| l.into());
    problems.lines().map(after_name).collect()
}

fn settings(rule: &str) -> Vec<Setting> {
    let config =
        resolved(&format!("[[site.rule]]\nname = \"r\"\n{rule}")).unwrap_or_else(|p| panic!("{p}"));
    config.sites[0].rules.set.rules()[0].settings.clone()
}

#[test]
fn settings_are_read_as_they_are_typed() {
    let secs = Duration::from_secs;
    assert_eq!(settings("ttl = \"10m\""), [Setting::Ttl(ByStatus::Plain(secs(600)))]);
    let table = ByStatus::Table {
        statuses: vec![(StatusTest::Exact(200), secs(60)), (StatusTest::Class(5), secs(0))],
        any: Some(secs(1)),
    };
    let rows = settings("ttl = { \"200\" = \"1m\", \"5xx\" = \"0s\", any = \"1s\" }");
    assert_eq!(rows, [Setting::Ttl(table)]);
    let rows = settings("browser_ttl = \"no-store\"");
    assert_eq!(rows, [Setting::BrowserTtl(BrowserTtl::NoStore)]);
    let rows = settings("origin_request.set = { x-key = { file = \"token\" } }");
    let Setting::OriginRequest(edits) = &rows[0] else { panic!("{rows:?}") };
    assert!(format!("{edits:?}").contains("(secret)"), "{edits:?}");
}

#[test]
fn rules_of_every_site_come_first() {
    let config = resolved(
        "[[site.rule]]\nname = \"own\"\nbypass = true\n\
         [[site.transform]]\nphase = \"client-response\"\nremove = [\"x-a\"]\n\
         [[rule]]\nname = \"every\"\nttl = \"1s\"\n",
    );
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    let set = &config.sites[0].rules.set;
    let names: Vec<&str> = set.rules().iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["every", "own", "transform-1"]);
    assert!(set.rules()[2].setting(Kind::ClientResponse).is_some());
}

/// Rules with a mistake, and a part of the message.
const MISTAKES: &[(&str, &str)] = &[
    ("bypass = true", "6:1: site[0].rule[0].name: is required"),
    ("name = \"R\"\nbypass = true", "7:8: site[0].rule[0].name: \"R\" must be 1 to 64"),
    ("name = \"r\"", "6:1: rule \"r\": has no setting"),
    (
        "name = \"r\"\nbypas = true",
        "8:1: site[0].rule[0].bypas: unknown field; did you mean \"bypass\"",
    ),
    ("name = \"r\"\nkey = {}", "8:7: site[0].rule[0].key: must have a part"),
    ("name = \"r\"\nkey.headers = [\"cookie\"]", "\"cookie\" cannot be a key part"),
    ("name = \"r\"\nkey.accept = [\"image/*\"]", "\"image/*\" is not a value"),
    (
        "name = \"r\"\nwhen.status = 404\nkey.device = true",
        "rule \"r\": the key is made before the response; move `key` to a rule without status",
    ),
    ("name = \"r\"\nper_user = \"cookie\"", "must be \"authorization\" or { cookie"),
    ("name = \"r\"\npurge = {}", "a GET could purge; add `when.method`"),
    (
        "name = \"r\"\nwhen.method = \"PURGE\"\npurge = {}",
        "rule \"r\": any client could purge; add `when.client` or `purge.token_file`",
    ),
    ("name = \"r\"\ntags = [\"a b\"]", "\"a b\" must be 1 to 256 characters"),
    ("name = \"r\"\njson.remove = [\"a\"]", "\"a\" must begin with \"/\""),
    ("name = \"r\"\njson.max = \"1MiB\"", "needs `remove` or `keep`"),
    ("name = \"r\"\ncache_methods = [\"PUT\"]\n", "rule[0].cache_methods"),
    ("name = \"r\"\nbypass = 1", "8:10: site[0].rule[0].bypass: must be true or false"),
    ("name = \"r\"\nttl = 5", "8:7: site[0].rule[0].ttl: 5 needs a unit"),
    ("name = \"r\"\nttl = { \"20x\" = \"1s\" }", "\"20x\" must be a status"),
    ("name = \"r\"\nstore = true", "8:9: site[0].rule[0].store: can only be false"),
    ("name = \"r\"\nwhen = {}\nbypass = true", "8:8: site[0].rule[0].when: must have a condition"),
    (
        "name = \"r\"\nwhen.pth = \"/a\"\nbypass = true",
        "8:6: site[0].rule[0].when.pth: unknown field; did you mean \"path\"",
    ),
    (
        "name = \"r\"\nwhen.path = \"a\"\nbypass = true",
        "8:13: site[0].rule[0].when.path: \"a\" must begin with",
    ),
    (
        "name = \"r\"\nwhen.path_regex = \"(\"\nbypass = true",
        "is not a regular expression: unclosed group",
    ),
    ("name = \"r\"\nwhen.client = \"x\"\nbypass = true", "8:15: site[0].rule[0].when.client"),
    ("name = \"r\"\nwhen.method = \"get\"\nbypass = true", "\"get\" is not a method"),
    ("name = \"r\"\nwhen.extension = \".css\"\nbypass = true", "without a dot"),
    ("name = \"r\"\nwhen.status = 99\nbypass = true", "must be a status from 200 to 599"),
    ("name = \"r\"\nwhen.header = { x-a = 1 }\nbypass = true", "must be true, false, a pattern"),
    (
        "name = \"r\"\nwhen.status = 404\nbypass = true",
        "9:1: rule \"r\": `bypass` applies before the response; move it to a rule without status",
    ),
    (
        "name = \"r\"\norigin_response.set = { x-a = \"{header.x-a}\" }",
        "8:1: rule \"r\": {header.x-a} in `origin_response` would be stored for every client; move the \
         edit to `client_response`, or add \"x-a\" to `key.headers`",
    ),
    ("name = \"r\"\norigin_response.set = { x-a = \"{nope}\" }", "unknown placeholder {nope}"),
    ("name = \"r\"\nclient_response.remove = [\"connection\"]", "\"connection\" cannot be edited"),
    ("name = \"r\"\nclient_response = {}", "must have an edit"),
    ("name = \"r\"\norigin_request.set = { a = { file = \"none\" } }", "\"none\" cannot be read"),
    ("name = \"r\"\norigin_request.set = { a = { file = \"empty\" } }", "\"empty\" is empty"),
    ("name = \"r\"\nredirect = { to = \"/a\", status = 200 }", "must be one of 301, 302"),
    ("name = \"r\"\nredirect = { from = \"^/a\" }", "needs `to`"),
    ("name = \"r\"\nrewrite = { to = \"x\" }", "must be a path"),
    ("name = \"r\"\nunsafe_ignore = [\"public\"]", "\"public\" must be one of"),
    ("name = \"r\"\nrespond = { body = \"a\", file = \"token\" }", "keep one of them"),
];

#[test]
fn errors_have_position_problem_and_remedy() {
    let name = "name = \"r\"\n";
    for (rule, expected) in MISTAKES {
        let found = errors(&format!("[[site.rule]]\n{rule}\n"));
        assert!(found.iter().any(|line| line.contains(expected)), "{rule}: {expected}\n{found:?}");
    }
    let twice = errors(&format!(
        "[[site.rule]]\n{name}bypass = true\n[[site.rule]]\n{name}bypass = true\n"
    ));
    assert_eq!(twice, ["9:1: rule.name: \"r\" is already the name of another rule"]);
    assert_eq!(
        errors("rule = 1\n"),
        [
            "6:8: site[0].rule: must be a list of tables; write [[site.rule]] above each one's fields"
        ]
    );
    let phase = errors("[[site.transform]]\nphase = \"x\"\nset = { a = \"1\" }\n");
    assert!(phase[0].contains("\"x\" must be one of client-request"), "{phase:?}");
}

#[test]
fn all_errors_of_a_rule_are_reported_at_once() {
    let found = errors(
        "[[site.rule]]\nname = \"r\"\nttl = 5\nbypass = 1\nwhen = { path = \"a\", method = \"b\" }\n",
    );
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn the_examples_have_only_the_warnings_that_they_mention() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules");
    let mut seen = 0;
    for found in std::fs::read_dir(&folder).unwrap() {
        let path = found.unwrap().path();
        if path.extension() != Some("toml".as_ref()) {
            continue;
        }
        let config = ResolvedConfig::load(Some(&path), &Overrides::default());
        let config = config.unwrap_or_else(|problems| panic!("{problems}"));
        let warnings = config.sites.iter().flat_map(|site| site.rules.warnings());
        let topics: Vec<&str> = warnings.map(|warning| warning.topic.as_str()).collect();
        let name = path.file_name().unwrap().to_str().unwrap();
        let expected: &[&str] = match &name[..2] {
            "03" | "10" => &["opens"],
            _ => &[],
        };
        assert_eq!(topics, expected, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 12);
}
