use super::*;

const PLAN: Plan =
    Plan { budget: Duration::from_secs(60), seed: 1, patience: Duration::from_millis(50) };

fn parity(input: &[u8]) -> Outcome {
    Outcome::of(input.len() % 2)
}

/// Fails for an input with two words that no sample contains. A mutation finds the second word only
/// if the input with the first one was kept for its outcome.
fn needs_two_steps(input: &[u8]) -> Outcome {
    let holds = |word: &[u8]| input.windows(word.len()).any(|window| window == word);
    let (first, second) = (holds(b"open"), holds(b"shut"));
    assert!(!(first && second), "both");
    Outcome::of((first, second))
}

fn quadratic(input: &[u8]) -> Outcome {
    let waits = input.len() > crate::mutate::LENGTH_MAX;
    let until = Instant::now() + if waits { PLAN.patience } else { Duration::ZERO };
    while Instant::now() <= until {}
    Outcome::of(())
}

const fn target(check: fn(&[u8]) -> Outcome) -> Target {
    Target { name: "test", check, words: &["open", "shut"], outcomes_min: 1 }
}

#[test]
fn a_failure_is_found_shrunk_and_reproduced() {
    let samples = [b"a longer sample that holds neither".to_vec()];
    let find = || run(&target(needs_two_steps), &samples, PLAN).unwrap_err();
    let found = find();
    assert!(found.says.ends_with(": both"), "{found}");
    assert!(matches!(&found.input[..], b"openshut" | b"shutopen" | b"shutopen "), "{found}");
    assert_eq!(found.round, find().round);
    assert!(found.to_string().contains("FOREBAY_FUZZ_SEED=1: "), "{found}");
}

#[test]
fn a_sample_that_fails_is_found_without_a_round() {
    let samples = [b"fine".to_vec(), b"open and shut".to_vec()];
    let none = Plan { budget: Duration::ZERO, ..PLAN };
    let found = run(&target(needs_two_steps), &samples, none).unwrap_err();
    assert_eq!(found.round, None);
}

#[test]
fn a_run_without_a_failure_reports_its_counts() {
    let samples = [b"a".to_vec(), b"b".to_vec()];
    let plan = Plan { budget: Duration::from_millis(20), ..PLAN };
    let report = run(&target(parity), &samples, plan).unwrap();
    assert_eq!((report.samples, report.outcomes_of_samples), (2, 1));
    assert!(report.rounds > 0);
    assert_eq!(report.outcomes, 2);
}

#[test]
fn a_check_that_is_slow_on_long_inputs_is_found() {
    let found = run(&target(quadratic), &[b"a".to_vec()], PLAN).unwrap_err();
    assert!(found.says.contains("at most"), "{found}");
    assert_eq!(found.round, Some(STRETCH_EVERY - 1));
}
