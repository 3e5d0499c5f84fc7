//! One test per target: its samples first, then mutations for `FOREBAY_FUZZ_SECONDS`.
#![expect(clippy::print_stdout, reason = "the seed and the counts of a run")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_fuzz::{Plan, Target, run, sample, targets};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn feed(name: &str, target: &Target) {
    let folder = corpus().join(name);
    let samples = sample::load(&folder).expect("samples");
    let plan = Plan::from_environment().expect("numbers in the environment");
    let report = match run(target, &samples, plan) {
        Ok(report) => report,
        Err(found) if found.round.is_none() => panic!("{name}: {found}"),
        Err(found) => {
            let kept = sample::keep(&folder, &found.input);
            panic!("{name}: {found}\nkept for the next run: {kept:?}");
        }
    };
    println!("{name}: {report:?}");
    assert!(report.outcomes_of_samples >= target.outcomes_min, "too tame: {report:?}");
    assert!(plan.budget.is_zero() || report.rounds > 0, "{report:?}");
}

/// Makes a test for each name, and the list of the names.
macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            feed(stringify!($name), &targets::$name::TARGET);
        })*

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

targets! {
    codec conditions date directives frame framing groups head hop invalidated key lifetime parts
    policy preferences range segment served trace_context value vary
}

#[test]
fn every_folder_has_a_target() {
    let tested: BTreeSet<PathBuf> = TESTED.iter().map(|name| corpus().join(name)).collect();
    let folders = std::fs::read_dir(corpus()).expect("the corpus");
    let folders: BTreeSet<_> = folders.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(tested, folders);
}
