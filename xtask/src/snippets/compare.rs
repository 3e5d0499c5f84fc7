//! Comparison of the output on a page with the real output.

use regex::Regex;

/// Matches any lines when alone on a line, and any rest of a line at its end.
const ANYTHING: &str = "...";

/// Returns true if `printed` equals `expected`, except for what may vary.
pub(super) fn agrees(expected: &[String], printed: &str) -> bool {
    let expected: String = expected.iter().map(|line| pattern(line.trim_end())).collect();
    let lines = printed.trim_end().lines();
    let printed: String = lines.map(|line| format!("{}\n", line.trim_end())).collect();
    Regex::new(&format!("^{expected}$")).is_ok_and(|pattern| pattern.is_match(&printed))
}

/// Pattern of a line. Numbers and dates vary between runs. A status line stays as it is, or a page
/// could promise 200 where 504 comes.
fn pattern(line: &str) -> String {
    if line == ANYTHING {
        return "(?:.*\n)*".to_owned();
    }
    let (start, rest) = line.strip_suffix(ANYTHING).map_or((line, ""), |start| (start, ".*"));
    let text = regex::escape(start);
    let is_date = line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("date:"));
    match (is_date, line.starts_with("HTTP/"), Regex::new("[0-9]+")) {
        (true, ..) => format!("{}.*\n", &line[..5]),
        (_, false, Ok(number)) => format!("{}{rest}\n", number.replace_all(&text, "[0-9]+")),
        _ => format!("{text}{rest}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_vary_may_differ() {
        for (expected, printed, agree) in [
            ("one\n\ntwo", "one  \r\n\r\ntwo\r\n\n", true),
            ("one\ntwo", "one\n", false),
            ("one", "one\ntwo\n", false),
            ("one", "", false),
            ("one\n...\nfour", "one\ntwo\nthree\nfour\n", true),
            ("one\n...\nfour", "one\nfour\n", true),
            ("...\nfour\n...", "one\nfour\nfour\nfive\n", true),
            ("...", "", true),
            ("one\n...\nfour", "one\ntwo\n", false),
            ("forebay ready...", "forebay ready: http://there\n", true),
            ("forebay ready...", "forebay ready\nmore\n", false),
            ("age: 3, 127.0.0.1:8080, 250ms", "age: 12, 127.0.0.1:40123, 7ms", true),
            ("age: 3 (or so)", "age: young", false),
            ("Date: Sun, 01 Nov 2026", "Date: Mon, 30 Dec 2030", true),
            ("Date: Sun, 01 Nov 2026", "date: Mon, 30 Dec 2030", false),
            ("HTTP/1.1 200 OK", "HTTP/1.1 504 OK", false),
        ] {
            let lines: Vec<String> = expected.lines().map(str::to_owned).collect();
            assert_eq!(agrees(&lines, printed), agree, "{expected:?} {printed:?}");
        }
    }
}
