use super::*;

/// First six lines of every text in these tests.
const START: &str = "# Title\norigin o1 {\n}\nclient c1 -> o1 {\n    signal b\n}\n";

fn script(text: &str) -> Script {
    parse(&format!("{START}{text}")).unwrap()
}

#[track_caller]
fn refused(text: &str, line: usize, part: &str) {
    let fault = parse(&format!("{START}{text}")).expect_err(text);
    assert!(fault.what.contains(part), "{text:?} is refused for {:?}", fault.what);
    assert_eq!(fault.line, line, "{text:?}: {}", fault.what);
}

#[test]
fn a_whole_scenario_is_understood() {
    let script = script(
        "barrier two 2
        forebay f1 -> o1 { # comment
            fetch_timeout = \"2s\"
            a.b=[1, 2]
        }
        forebay f2 -> f1 {
        }
        origin o2 {
            expect GET /a
                If-None-Match: \"x\"
                header via contains \"1.1\"
                body \"b\"
            await b
            signal two
            delay 5ms
            interim 103
                Link: </a>
            answer 200
                ETag: \"x\"
                chunked
                trailer X-Sum: a b
                body-size 10
                drip 2 1ms
                hold 3 b
                truncate 5 reset
            repeat 3
            expect any
            hang
            repeat forever
        }
        client c2 -> f1 times 3 {
            send PUT /a
                X: 1
                body \"b\"
                chunked
            send GET /b
            signal two
            expect 200
            expect header age >= 2
            expect header etag = \"\\\"x\\\"\"
            expect header date = ${now-5s}
        }
        after {
            expect o2 requests /a <= 3
            expect f1 metric forebay_requests_total{site=\"a b\"} = 2
        }",
    );
    let [first, second] = &script.origins[1].exchanges[..] else { panic!("two exchanges") };
    assert_eq!((first.times, second.times), (Some(3), None));
    assert_eq!(first.expected.fields.len(), 2);
    let keys: Vec<String> = script.fronts[0].settings.iter().map(Setting::to_string).collect();
    assert_eq!(keys, ["fetch_timeout = \"2s\"", "a.b = [1, 2]"]);
    assert_eq!(script.fronts[1].target, "f1");
    assert_eq!((script.clients[1].copies, script.clients[1].steps.len()), (3, 7));
    assert_eq!((script.after.len(), script.gates["two"].arrivals()), (2, (0, 2)));
}

#[test]
fn the_frame_is_checked() {
    assert_eq!(parse("origin o1 {\n}").unwrap_err().line, 1);
    assert!(parse("# Title\n").unwrap_err().what.contains("no `client` block"));
    refused("client c2 -> o1 {\n send GET /\n", 7, "never closed");
    refused("server s {\n}", 7, "came `server`");
    refused("origin o2", 7, "and a `{`");
    refused("origin o1 {\n}", 7, "`o1` is taken");
    refused("origin c1 {\n}", 7, "`c1` is taken");
    refused("client c2 -> f9 {\n}", 7, "called `f9`");
    refused("client c2 -> o1 times 0 {\n}", 7, "came 0");
    refused("forebay f1 -> o1 {\n nothing\n}", 8, "`key = value`");
    refused("barrier b 2", 7, "already used");
    refused("barrier x 0", 7, "at least one signal");
    refused("client c2 -> o1 {\n await never\n}", 8, "nothing signals barrier `never`");
}

#[test]
fn origins_are_checked() {
    let origin = |lines: &str| format!("origin o2 {{\n{lines}\n}}");
    refused(&origin("answer 200"), 8, "begins with `expect");
    refused(&origin("expect GET"), 8, "expected a target");
    refused(&origin("expect any\nawait b"), 8, "has no answer");
    refused(&origin("expect any\nanswer x"), 9, "expected a status");
    refused(&origin("expect any\nanswer 200\nawait b"), 10, "came `await`");
    refused(&origin("expect any\nanswer 200\nbody bare"), 10, "quoted text");
    refused(&origin("expect any\nanswer 200\nbody-size 99999999999"), 10, "at most");
    refused(&origin("expect any\nanswer 200\nDate: ${then}"), 10, "`${then}`");
    refused(&origin("expect any\nanswer 200\nrepeat 2\nA: b"), 11, "nothing here has fields");
    refused(&origin("expect any\nhang\nA: b"), 10, "nothing here has fields");
    refused(&origin("expect any\nhang\nbody \"\""), 10, "expected `repeat`");
    refused(&origin("expect any\nhang\nrepeat forever\nexpect any\nhang"), 11, "never comes");
    refused(&origin("expect any\ndelay 5\nhang"), 9, "a time such as");
}

#[test]
fn clients_and_counters_are_checked() {
    let client = |lines: &str| format!("client c2 -> o1 {{\n{lines}\n}}");
    refused(&client("A: b"), 8, "under a `send`");
    refused(&client("send GET"), 8, "expected a target");
    refused(&client("send GET / HTTP/1.1"), 8, "unexpected `HTTP/1.1`");
    refused(&client("expect ok"), 8, "came `ok`");
    refused(&client("expect header age is 5"), 8, "came `is`");
    refused(&client("wait-origin o9 1"), 8, "called `o9`");
    refused(&client("shut f1"), 8, "no origin above this line is called `f1`");
    refused(&client("wait-metric o1 hits = 1"), 8, "no forebay above this line is called `o1`");
    refused(&client("sleep 5s"), 8, "came `sleep`");
    refused("after {\n expect o9 requests = 1\n}", 8, "called `o9`");
    refused("after {\n expect o1 request = 1\n}", 8, "came `request`");
    refused("after {\n expect o1 requests 1\n}", 8, "one of = != >=");
    refused("forebay f1 -> o1 {\n}\nafter {\n expect f1 metric {} = 1\n}", 10, "is no metric");
}

#[test]
fn the_scenario_in_the_documentation_is_valid() {
    let source = include_str!("../../scenario.rs");
    let (_, example) = source.split_once("//! ```text\n").unwrap();
    let (example, _) = example.split_once("//! ```\n").unwrap();
    let text: Vec<&str> =
        example.lines().map(|line| line.trim_start_matches("//!").trim_start()).collect();
    let script = parse(&text.join("\n")).unwrap();
    assert_eq!((script.origins.len(), script.fronts.len(), script.after.len()), (1, 1, 2));
}
