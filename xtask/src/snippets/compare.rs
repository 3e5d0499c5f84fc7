//! Comparison of the output on a page with the real output.

/// Matches any lines when alone on a line, and any rest of a line at its end.
const ANYTHING: &str = "...";

/// Returns true if `printed` equals `expected`, except for what may vary.
pub(super) fn agrees(expected: &[String], printed: &str) -> bool {
    let expected: Vec<String> = expected.iter().map(|line| varying(line)).collect();
    let printed: Vec<String> = printed.trim_end().lines().map(varying).collect();
    // agreeing[n]: the lines so far match the first n printed lines.
    let mut agreeing = vec![false; printed.len() + 1];
    agreeing[0] = true;
    for line in &expected {
        agreeing = if line == ANYTHING {
            reached(&agreeing)
        } else {
            let same =
                agreeing.iter().zip(&printed).map(|(&yes, other)| yes && is_same(line, other));
            std::iter::once(false).chain(same).collect()
        };
    }
    agreeing.last() == Some(&true)
}

/// Every position at or after one that agrees.
fn reached(agreeing: &[bool]) -> Vec<bool> {
    let mut any = false;
    agreeing
        .iter()
        .map(|&yes| {
            any |= yes;
            any
        })
        .collect()
}

fn is_same(expected: &str, printed: &str) -> bool {
    match expected.strip_suffix(ANYTHING) {
        Some(start) => printed.starts_with(start),
        None => printed == expected,
    }
}

/// The line with a placeholder for each number and each date: they vary between runs.
///
/// A status line stays as it is, or a page could promise 200 where 504 comes.
fn varying(line: &str) -> String {
    let line = line.trim_end();
    if line.starts_with("HTTP/") {
        return line.to_owned();
    }
    match line.get(..5) {
        Some(name) if name.eq_ignore_ascii_case("date:") => name.to_owned(),
        _ => without_numbers(line),
    }
}

fn without_numbers(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut before = ' ';
    for c in line.chars() {
        match c.is_ascii_digit() {
            true if before.is_ascii_digit() => {}
            true => out.push('0'),
            false => out.push(c),
        }
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn agree(expected: &str, printed: &str) -> bool {
        agrees(&lines(expected), printed)
    }

    #[test]
    fn equal_lines_agree_and_others_do_not() {
        assert!(agree("one\ntwo", "one\ntwo\n"));
        assert!(agree("one\n\ntwo", "one  \r\n\r\ntwo\r\n\n"));
        assert!(!agree("one\ntwo", "one\n"));
        assert!(!agree("one", "one\ntwo\n"));
        assert!(!agree("one", "two\n"));
        assert!(!agree("one", ""));
    }

    #[test]
    fn dots_alone_stand_for_any_lines() {
        assert!(agree("one\n...\nfour", "one\ntwo\nthree\nfour\n"));
        assert!(agree("one\n...\nfour", "one\nfour\n"));
        assert!(agree("...\nfour\n...", "one\nfour\nfour\nfive\n"));
        assert!(agree("...", ""));
        assert!(!agree("one\n...\nfour", "one\ntwo\n"));
        assert!(!agree("...\nfive", "four\n"));
    }

    #[test]
    fn dots_at_the_end_stand_for_the_rest_of_the_line() {
        assert!(agree("forebay ready...", "forebay ready: http://there\n"));
        assert!(!agree("forebay ready...", "forebay\n"));
        assert!(!agree("forebay ready...", "forebay ready\nmore\n"));
    }

    #[test]
    fn numbers_may_vary() {
        assert!(agree("age: 3, 127.0.0.1:8080, 250ms", "age: 12, 127.0.0.1:40123, 7ms"));
        assert!(!agree("age: 3", "age: young"));
        assert!(!agree("ttl=60; hit", "ttl=60"));
    }

    #[test]
    fn a_date_may_vary_wholly_and_a_status_not_at_all() {
        let date = "Date: Sun, 01 Nov 2026 00:00:00 GMT";
        assert!(agree(date, "date: Mon, 30 Dec 2030 01:02:03 GMT").eq(&false));
        assert!(agree(date, "Date: Mon, 30 Dec 2030 01:02:03 GMT"));
        assert!(!agree("HTTP/1.1 200 OK", "HTTP/1.1 504 OK"));
    }
}
