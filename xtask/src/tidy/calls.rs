//! What code may not call or carry, where, and what to do instead.

use super::Finding;
use super::source::{self, Source};

/// Something that must not stand in some code.
struct Ban {
    pattern: &'static str,
    code: Code,
    /// Beginnings of the paths it is banned under; none means everywhere.
    under: &'static [&'static str],
    /// Beginnings of paths that may nevertheless, and why.
    but: &'static [(&'static str, &'static str)],
    instead: &'static str,
}

/// Which code a ban is about.
#[derive(Clone, Copy)]
enum Code {
    All,
    Product,
    /// Tests in which time really passes; where the clock is paused, a sleep steps it.
    WakingTests,
}

/// The crates that are told the time.
const TIMELESS: &[&str] =
    &["crates/forebay-core/", "crates/forebay-semantics/", "crates/forebay-engine/"];
const CLOCK: &[(&str, &str)] =
    &[("crates/forebay-engine/src/clock", "the engine's one clock, for whoever wants real time")];
const TAKE_TIME: &str = "take the time as an argument, or ask the Clock";

/// The crates whose output belongs to their callers.
const SILENT: &[&str] = &[
    "crates/forebay-core/",
    "crates/forebay-semantics/",
    "crates/forebay-engine/",
    "crates/forebay-http/",
];
const BE_SILENT: &str = "return it, or make it an event";

const NO_SLEEP: &str = "wait for a counter or a barrier, or step the clock";
const MAY_SLEEP: &[(&str, &str)] = &[
    ("xtask/src/process.rs", "waits for programs that tell nobody when they end"),
    ("crates/forebay-http/tests/it/door.rs", "polls a counter, within a bound"),
    ("crates/forebay-engine/tests/it/cluster", "the clock is paused, in tasks of the model, too"),
    (
        "crates/forebay-http/src/front/stream/tests.rs",
        "its service is slow where the clock is paused",
    ),
    ("crates/forebay-http/tests/it/continued.rs", "a slow upload is what the test is about"),
];

const BANS: &[Ban] = &[
    Ban {
        pattern: "Instant::now",
        code: Code::Product,
        under: TIMELESS,
        but: CLOCK,
        instead: TAKE_TIME,
    },
    Ban {
        pattern: "SystemTime::now",
        code: Code::Product,
        under: TIMELESS,
        but: CLOCK,
        instead: TAKE_TIME,
    },
    Ban { pattern: "println!", code: Code::Product, under: SILENT, but: &[], instead: BE_SILENT },
    Ban { pattern: "eprintln!", code: Code::Product, under: SILENT, but: &[], instead: BE_SILENT },
    Ban {
        pattern: "sleep(",
        code: Code::WakingTests,
        under: &[],
        but: MAY_SLEEP,
        instead: NO_SLEEP,
    },
    Ban {
        pattern: "sleep_until(",
        code: Code::WakingTests,
        under: &[],
        but: MAY_SLEEP,
        instead: NO_SLEEP,
    },
    everywhere("todo!", "write it"),
    everywhere("unimplemented!", "write it"),
    everywhere("#[ignore", "make it fast enough to run, or a soak"),
    everywhere("#[allow(", "use #[expect(lint, reason = \"...\")]"),
    everywhere("#![allow(", "use #![expect(lint, reason = \"...\")]"),
    everywhere("unbounded_channel", "give the channel a bound with a name"),
    everywhere("mpsc::unbounded", "give the channel a bound with a name"),
];

const fn everywhere(pattern: &'static str, instead: &'static str) -> Ban {
    Ban { pattern, code: Code::All, under: &[], but: &[], instead }
}

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let bans = BANS.iter().filter(|ban| ban.is_about(&source.path));
    bans.flat_map(|ban| {
        let lines = source.lines_with(&source::tokens(ban.pattern));
        let lines = lines.into_iter().filter(|line| ban.code.covers(source, *line));
        lines.map(|line| {
            let says = format!("`{}` may not stand here; {}", ban.pattern, ban.instead);
            Finding::new(&source.path, line, says)
        })
    })
    .collect()
}

impl Ban {
    fn is_about(&self, path: &str) -> bool {
        let is_under = self.under.is_empty() || self.under.iter().any(|one| path.starts_with(one));
        is_under && !self.but.iter().any(|(start, _)| path.starts_with(start))
    }
}

impl Code {
    fn covers(self, source: &Source, line: usize) -> bool {
        match self {
            Self::All => true,
            Self::WakingTests => source.is_test(line) && !source.is_paused(line),
            Self::Product => !source.is_test(line) && !source.is_example(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "crates/forebay-engine/src/flight.rs";

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Source::parse(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_ban_trips_and_is_reported_with_its_line() {
        for ban in BANS {
            let path = match ban.code {
                Code::WakingTests => "crates/forebay-engine/tests/a.rs",
                Code::All | Code::Product => ENGINE,
            };
            let found = findings(path, &format!("\n{} x", ban.pattern));
            assert_eq!(found.len(), 1, "{}", ban.pattern);
            assert!(found[0].starts_with(&format!("{path}:2: `{}`", ban.pattern)), "{found:?}");
        }
    }

    #[test]
    fn each_exception_has_a_reason() {
        let reasons = BANS.iter().flat_map(|ban| ban.but);
        assert!(reasons.clone().count() > 0);
        assert!(reasons.into_iter().all(|(_, why)| why.split(' ').count() > 2));
    }

    #[test]
    fn the_clock_alone_asks_for_the_time() {
        let text = "fn a() { Instant::now(); SystemTime::now(); }";
        assert_eq!(findings(ENGINE, text).len(), 2);
        assert_eq!(findings("crates/forebay-core/src/judge.rs", text).len(), 2);
        assert_eq!(findings("crates/forebay-engine/src/clock.rs", text), [""; 0]);
        assert_eq!(findings("crates/forebay-http/src/origin.rs", text), [""; 0]);
        assert_eq!(findings("crates/forebay-engine/tests/a.rs", text), [""; 0]);
    }

    #[test]
    fn tests_do_not_sleep_but_code_may() {
        let tests = "#[cfg(test)]\nmod tests { fn a() { tokio::time::sleep(x).await; } }";
        assert_eq!(findings(ENGINE, tests).len(), 1);
        let bare = "use tokio::time::{sleep, Duration};\nfn a() { sleep(x).await; }";
        assert_eq!(findings("crates/a/tests/b.rs", bare).len(), 1);
        let paused = "#[tokio::test(start_paused = true)]\nasync fn a() { sleep(x).await; }";
        assert_eq!(findings("crates/a/tests/b.rs", paused), [""; 0]);
        assert_eq!(findings(ENGINE, "fn a() { tokio::time::sleep(x).await; }"), [""; 0]);
    }

    #[test]
    fn printing_is_for_programs() {
        let text = "fn a() { println!(); }";
        assert_eq!(findings("crates/forebay-http/src/service.rs", text).len(), 1);
        for path in [
            "crates/forebay-cli/src/main.rs",
            "crates/forebay-http/examples/bare_hyper.rs",
            "xtask/src/main.rs",
        ] {
            assert_eq!(findings(path, text), [""; 0], "{path}");
        }
    }

    #[test]
    fn comments_and_texts_are_not_code() {
        let text = "// todo!()\nconst A: &str = \"todo!() #[allow(x)] unbounded_channel\";";
        assert_eq!(findings(ENGINE, text), [""; 0]);
    }
}
