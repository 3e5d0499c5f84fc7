use super::*;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn plain() -> Builder<u64> {
    Cache::builder("numbers").memory(Memory::bytes(1 << 20))
}

fn refusal<V: Send + Sync + 'static>(builder: Builder<V>) -> String {
    builder.build().expect_err("it cannot work").to_string()
}

#[test]
fn what_cannot_work_is_refused_with_the_name_of_the_setting() {
    let minute = || plain().ttl(secs(60));
    let rows = [
        (Cache::builder("numbers"), "`memory`"),
        (plain().memory(Memory::bytes(0)), "`memory` is zero"),
        (plain().memory(Memory::entries(0)), "`memory` is zero"),
        (plain().memory(Memory::bytes(u64::MAX)), "larger than any machine"),
        (plain().memory(Memory::entries(9)).value_max(3), "`value_max`"),
        (plain().memory(Memory::entries(9)).weigher(|_, _| 1), "`weigher`"),
        (plain().value_max(2 << 20), "`value_max` is 2097152"),
        (plain().value_max(0), "`value_max` is 0"),
        (plain().ttl(Duration::ZERO), "`ttl`"),
        (plain().negative_ttl(Duration::ZERO), "`negative_ttl`"),
        (plain().stale_if_error(secs(1)), "without a `ttl`"),
        (
            minute().stale_while_revalidate(secs(9)).stale_if_error(secs(8)),
            "`stale_if_error` (8s) ends before `stale_while_revalidate` (9s)",
        ),
        (plain().beta(-1.0), "`beta` is -1"),
        (plain().beta(f64::NAN), "`beta` is NaN"),
        (plain().load_timeout(Duration::ZERO), "timeout of zero"),
        (plain().hard_timeout(Duration::ZERO), "timeout of zero"),
        (minute().soft_timeout(secs(1)), "`stale_if_error`"),
        (minute().soft_timeout(secs(2)).hard_timeout(secs(2)), "`soft_timeout` (2s)"),
        (plain().loads_max(0), "`loads_max` is zero"),
        (plain().loads_max(1).load_group(&LoadGroup::at_most(1)), "not both"),
    ];
    for (builder, expected) in rows {
        let says = refusal(builder);
        assert!(says.contains(expected), "{says}");
    }
}

#[test]
fn values_that_own_memory_need_a_weigher_for_a_bound_in_bytes() {
    let texts = || Cache::<String>::builder("texts");
    let says = refusal(texts().memory(Memory::bytes(1 << 20)));
    assert!(says.contains("`weigher`"), "{says}");
    assert!(texts().memory(Memory::entries(9)).build().is_ok());
    let weighed = texts().memory(Memory::bytes(1 << 20)).weigher(|_, text| text.len());
    assert!(weighed.build().is_ok());
}

#[test]
fn one_value_may_take_a_quarter_of_a_small_cache_and_a_64th_of_a_large_one() {
    let max = |bytes| plain().memory(Memory::bytes(bytes)).limits().expect("it works").object_max;
    assert_eq!(max(64 << 10), 16 << 10);
    assert_eq!(max(4 << 20), 256 << 10);
    assert_eq!(max(1 << 30), 16 << 20);
    let limits = plain().memory(Memory::entries(9)).limits().expect("it works");
    assert_eq!(limits.memory - limits.in_flight_max, 9);
}
