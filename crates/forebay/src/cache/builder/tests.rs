use super::*;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn plain() -> Builder<u64> {
    Cache::builder("numbers").memory(Memory::bytes(1 << 20))
}

fn build_error<V: Send + Sync + 'static>(builder: Builder<V>) -> String {
    builder.build().expect_err("the settings are invalid").to_string()
}

#[test]
fn invalid_settings_are_rejected_with_the_name_of_the_setting() {
    let minute = || plain().ttl(secs(60));
    let rows = [
        (Cache::builder("numbers"), "`memory` is missing"),
        (plain().memory(Memory::bytes(0)), "`memory` is zero"),
        (plain().memory(Memory::entries(0)), "`memory` is zero"),
        (plain().memory(Memory::bytes(u64::MAX)), "the maximum is 562949953421312"),
        (plain().memory(Memory::entries(9)).value_max(3), "`value_max`"),
        (plain().memory(Memory::entries(9)).weigher(|_, _| 1), "`weigher`"),
        (plain().value_max(2 << 20), "`value_max` is 2097152"),
        (plain().value_max(0), "`value_max` is 0"),
        (plain().ttl(Duration::ZERO), "`ttl`"),
        (plain().negative_ttl(Duration::ZERO), "`negative_ttl`"),
        (plain().stale_if_error(secs(1)), "need values that become stale"),
        (
            minute().stale_while_revalidate(secs(9)).stale_if_error(secs(8)),
            "`stale_if_error` is 8s and `stale_while_revalidate` is 9s",
        ),
        (plain().beta(-1.0), "`beta` is -1"),
        (plain().beta(f64::NAN), "`beta` is NaN"),
        (plain().load_timeout(Duration::ZERO), "must be longer than zero"),
        (plain().hard_timeout(Duration::ZERO), "must be longer than zero"),
        (minute().soft_timeout(secs(1)), "`stale_if_error`"),
        (minute().soft_timeout(secs(2)).hard_timeout(secs(2)), "`soft_timeout` is 2s"),
        (plain().loads_max(0), "`loads_max` is zero"),
        (minute().expires_at(nightly()), "`ttl`, `expires_at` and `sliding` exclude each other"),
        (minute().sliding(secs(1), secs(2)), "`ttl`, `expires_at` and `sliding` exclude"),
        (plain().sliding(secs(2), secs(2)), "`sliding` is (idle 2s, max 2s)"),
        (plain().sliding(Duration::ZERO, secs(2)), "`sliding` is (idle 0ns"),
        (plain().expires_at(Schedule::every(Duration::from_millis(1))), "whole number of seconds"),
        (plain().expires_at(Schedule::every(secs(9)).spread(secs(9))), "its `spread`"),
        (plain().adaptive(secs(9)), "`adaptive` needs a `ttl`"),
        (minute().adaptive(secs(60)), "`adaptive` is 60s and `ttl` is 60s"),
        (minute().memory_ttl(secs(9)), "`memory_ttl` needs `tiers`"),
    ];
    for (builder, expected) in rows {
        let message = build_error(builder);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_bound_in_bytes_needs_a_weigher_if_values_own_memory() {
    let texts = || Cache::<String>::builder("texts");
    let message = build_error(texts().memory(Memory::bytes(1 << 20)));
    assert!(message.contains("`weigher`"), "{message}");
    assert!(texts().memory(Memory::entries(9)).build().is_ok());
    let weighed = texts().memory(Memory::bytes(1 << 20)).weigher(|_, text| text.len());
    assert!(weighed.build().is_ok());
}

#[test]
fn the_default_value_max_is_a_quarter_of_a_small_cache_and_a_64th_of_a_large_one() {
    let max =
        |bytes| plain().memory(Memory::bytes(bytes)).limits().expect("valid settings").object_max;
    assert_eq!(max(64 << 10), 16 << 10);
    assert_eq!(max(4 << 20), 256 << 10);
    assert_eq!(max(1 << 30), 16 << 20);
    let limits = plain().memory(Memory::entries(9)).limits().expect("valid settings");
    assert_eq!(limits.memory - limits.in_flight_max, 9);
}

fn nightly() -> Schedule {
    Schedule::daily(Duration::ZERO)
}

/// A tier whose operations these tests do not call.
struct UnusedTier;

impl forebay_engine::Tier for UnusedTier {
    fn name(&self) -> &'static str {
        "unused"
    }

    fn open<'a>(
        &'a self,
        _: forebay_core::KeyRef<'a>,
    ) -> futures_util::future::BoxFuture<
        'a,
        Result<Option<forebay_engine::Stored>, forebay_engine::TierError>,
    > {
        unreachable!("no cache with this tier is used")
    }

    fn begin<'a>(
        &'a self,
        _: forebay_core::KeyRef<'a>,
        _: &'a forebay_core::Meta,
        _: &'a bytes::Bytes,
        _: forebay_engine::WriteMode<'a>,
    ) -> futures_util::future::BoxFuture<
        'a,
        Result<Box<dyn forebay_engine::Writer>, forebay_engine::TierError>,
    > {
        unreachable!("no cache with this tier is used")
    }

    fn remove<'a>(
        &'a self,
        _: forebay_core::KeyRef<'a>,
    ) -> futures_util::future::BoxFuture<'a, Result<bool, forebay_engine::TierError>> {
        unreachable!("no cache with this tier is used")
    }
}

#[test]
fn a_tier_that_keeps_values_longer_than_the_tier_below_it_is_rejected() {
    let bytes = || Cache::<Vec<u8>>::builder("bytes").memory(Memory::entries(9)).ttl(secs(60));
    let raw = || Codec::new(crate::codec::Raw);
    let capped = |seconds| TierConfig::new(Arc::new(UnusedTier)).ttl(secs(seconds));
    let plain = || [TierConfig::new(Arc::new(UnusedTier))];
    let sliding = || {
        let builder = Cache::<Vec<u8>>::builder("bytes").memory(Memory::entries(9));
        builder.sliding(secs(1), secs(2))
    };
    let rows = [
        (
            bytes().memory_ttl(secs(61)).tiers(raw(), plain()),
            "the ttl of memory (61s) is longer than that of the cache (60s)",
        ),
        (
            bytes().memory_ttl(secs(30)).tiers(raw(), [capped(20)]),
            "the ttl of memory (30s) is longer than that of unused (20s)",
        ),
        (bytes().tiers(raw(), [capped(40), capped(30)]), "unused (40s) is longer"),
        (bytes().tiers(raw(), [capped(0)]), "the ttl of unused is zero"),
        (bytes().memory_ttl(Duration::ZERO).tiers(raw(), plain()), "the ttl of memory is zero"),
        (bytes().tiers(raw(), [] as [TierConfig; 0]), "there are no `tiers`"),
        (Cache::builder("").memory(Memory::entries(9)).tiers(raw(), plain()), "the name is empty"),
        (
            sliding().memory_ttl(secs(1)).tiers(raw(), plain()),
            "`sliding` sets the lifetime in all tiers: remove `memory_ttl`",
        ),
        (sliding().tiers(raw(), [capped(1)]), "remove `memory_ttl` and the `ttl` of each tier"),
    ];
    for (builder, expected) in rows {
        let message = build_error(builder);
        assert!(message.contains(expected), "{message}");
    }
    let ordered = bytes().memory_ttl(secs(10)).tiers(raw(), [capped(20), capped(60)]);
    assert!(ordered.build().is_ok());
    assert!(sliding().tiers(raw(), plain()).build().is_ok());
    let grows = bytes().adaptive(secs(600)).tiers(raw(), [capped(300)]);
    assert!(grows.build().is_ok(), "the lifetime can grow to ten minutes");
}
