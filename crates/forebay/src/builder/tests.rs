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
        (minute().expires_at(nightly()), "one of `ttl`, `expires_at` and `sliding`"),
        (minute().sliding(secs(1), secs(2)), "one of `ttl`, `expires_at` and `sliding`"),
        (plain().sliding(secs(2), secs(2)), "`sliding` is 2s unused and 2s in all"),
        (plain().sliding(Duration::ZERO, secs(2)), "`sliding` is 0ns unused"),
        (plain().expires_at(Schedule::every(Duration::from_millis(1))), "whole seconds"),
        (
            plain().expires_at(Schedule::every(secs(9)).spread(secs(9))),
            "spread beyond its next time",
        ),
        (plain().adaptive(secs(9)), "`adaptive` begins with a `ttl`"),
        (minute().adaptive(secs(60)), "`adaptive` ends at 60s"),
        (minute().memory_ttl(secs(9)), "`memory_ttl` is for caches with `tiers`"),
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

fn nightly() -> Schedule {
    Schedule::daily(Duration::ZERO)
}

/// A tier that nobody asks.
struct Nowhere;

impl Tier for Nowhere {
    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn open<'a>(
        &'a self,
        _: forebay_core::KeyRef<'a>,
    ) -> futures_util::future::BoxFuture<
        'a,
        Result<Option<forebay_engine::Stored>, forebay_engine::TierError>,
    > {
        unreachable!("it is not built")
    }

    fn begin<'a>(
        &'a self,
        _: forebay_core::KeyRef<'a>,
        _: &'a forebay_core::Meta,
        _: &'a bytes::Bytes,
    ) -> futures_util::future::BoxFuture<
        'a,
        Result<Box<dyn forebay_engine::Writer>, forebay_engine::TierError>,
    > {
        unreachable!("it is not built")
    }

    fn remove<'a>(
        &'a self,
        _: forebay_core::KeyRef<'a>,
    ) -> futures_util::future::BoxFuture<'a, Result<bool, forebay_engine::TierError>> {
        unreachable!("it is not built")
    }
}

#[test]
fn a_tier_must_not_outlive_the_one_below_it() {
    let bytes = || Cache::<Vec<u8>>::builder("bytes").memory(Memory::entries(9)).ttl(secs(60));
    let raw = || Codec::new(crate::codec::Raw);
    let below = |seconds| TierConfig::new(Arc::new(Nowhere)).ttl(secs(seconds));
    let plain = || [TierConfig::new(Arc::new(Nowhere))];
    let sliding = || {
        let builder = Cache::<Vec<u8>>::builder("bytes").memory(Memory::entries(9));
        builder.sliding(secs(1), secs(2))
    };
    let rows = [
        (
            bytes().memory_ttl(secs(61)).tiers(raw(), plain()),
            "the ttl of memory (61s) is longer than that of everything (60s)",
        ),
        (
            bytes().memory_ttl(secs(30)).tiers(raw(), [below(20)]),
            "the ttl of memory (30s) is longer than that of nowhere (20s)",
        ),
        (bytes().tiers(raw(), [below(40), below(30)]), "nowhere (40s) is longer"),
        (bytes().tiers(raw(), [below(0)]), "the ttl of nowhere is zero"),
        (bytes().memory_ttl(Duration::ZERO).tiers(raw(), plain()), "the ttl of memory is zero"),
        (bytes().tiers(raw(), [] as [TierConfig; 0]), "`tiers` is empty"),
        (Cache::builder("").memory(Memory::entries(9)).tiers(raw(), plain()), "needs a name"),
        (
            sliding().memory_ttl(secs(1)).tiers(raw(), plain()),
            "`sliding` says how long values live, in all tiers: leave out `memory_ttl`",
        ),
        (sliding().tiers(raw(), [below(1)]), "leave out `memory_ttl` and the `ttl` of each tier"),
    ];
    for (builder, expected) in rows {
        let says = refusal(builder);
        assert!(says.contains(expected), "{says}");
    }
    let ordered = bytes().memory_ttl(secs(10)).tiers(raw(), [below(20), below(60)]);
    assert!(ordered.build().is_ok());
    assert!(sliding().tiers(raw(), plain()).build().is_ok());
    let grows = bytes().adaptive(secs(600)).tiers(raw(), [below(300)]);
    assert!(grows.build().is_ok(), "values may live for ten minutes");
}
