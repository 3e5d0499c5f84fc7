use super::*;

const PLAN: Plan =
    Plan { budget: Duration::from_secs(60), seed: 1, patience: Duration::from_millis(50) };

/// Fails for an input with two words that no sample contains together.
fn refuses_both(input: &[u8]) -> Outcome {
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
    Target { check, outcomes_min: 1 }
}

#[test]
fn a_failure_is_found_shrunk_and_reproduced() {
    let samples = [b"a door that is open".to_vec(), b"a door that is shut".to_vec()];
    let find = || run(&target(refuses_both), &samples, PLAN).unwrap_err();
    let found = find();
    assert!(found.says.ends_with(": both") && found.input.len() < 12, "{found}");
    assert_eq!(found.round, find().round);
    assert!(found.to_string().contains("FOREBAY_FUZZ_SEED=1: "), "{found}");
}

#[test]
fn a_check_that_is_slow_on_long_inputs_is_found() {
    let found = run(&target(quadratic), &[b"a".to_vec()], PLAN).unwrap_err();
    assert!(found.says.contains("at most"), "{found}");
    assert_eq!(found.round, Some(STRETCH_EVERY - 1));
}
