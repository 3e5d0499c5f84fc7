//! The attribute `#[forebay::cached]`.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::{Cache, Error, KeyPart, Memory, Options, cached};

static LOADS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Counts a load of one test, and returns its number, starting at 1.
fn load(test: usize) -> usize {
    LOADS[test].fetch_add(1, Ordering::SeqCst) + 1
}

#[derive(Debug, thiserror::Error)]
#[error("no row {0}")]
struct NoRow(u64);

/// The macro keeps other attributes, such as this documentation.
#[cached(ttl = "60s", handle = names)]
async fn name(id: u64) -> Result<String, NoRow> {
    if id == 0 {
        return Err(NoRow(id));
    }
    Ok(format!("{id} by load {}", load(0)))
}

#[tokio::test]
async fn a_function_is_called_once_for_each_of_its_arguments() {
    assert_eq!(*name(7).await.expect("a name"), "7 by load 1");
    assert_eq!(*name(7).await.expect("a name"), "7 by load 1");
    assert_eq!(*name(8).await.expect("a name"), "8 by load 2");
    let error = name(0).await.expect_err("row 0 does not exist");
    let cause = error.cause().expect("the error of the loader").downcast_ref::<NoRow>();
    assert_eq!(cause.expect("unchanged").0, 0);
    assert_eq!(names().name(), "name");
    assert!(names().remove("name(7)").await, "the key is the call");
    assert_eq!(*name(7).await.expect("a name"), "7 by load 3");
}

#[cached]
async fn member(tenant: &str, id: u32) -> Result<Option<Arc<String>>, NoRow> {
    load(1);
    Ok((id > 0).then(|| Arc::new(format!("{tenant}/{id}"))))
}

#[tokio::test]
async fn an_absent_answer_is_stored_and_references_are_cloned() {
    for _ in 0..3 {
        assert_eq!(member("a", 0).await.expect("an answer"), None);
        let tenant = String::from("a");
        let found = member(&tenant, 1).await.expect("an answer");
        assert_eq!(found.expect("a member").as_str(), "a/1");
    }
    assert_eq!(LOADS[1].load(Ordering::SeqCst), 2);
}

struct Database(&'static str);

#[cached(skip(database), entries = 10, name = "rows", negative_ttl = "1s")]
async fn row(database: Arc<Database>, id: Option<u8>, part: Cow<'static, str>) -> Option<String> {
    load(2);
    Some(format!("{} {}{part}", database.0, id?))
}

#[tokio::test]
async fn skipped_arguments_are_not_part_of_the_key() {
    let (one, other) = (Arc::new(Database("one")), Arc::new(Database("other")));
    let found = row(one.clone(), Some(1), "a".into()).await.expect("an answer");
    assert_eq!(*found.expect("a row"), "one 1a");
    let found = row(other, Some(1), "a".into()).await.expect("an answer");
    assert_eq!(*found.expect("a row"), "one 1a");
    assert_eq!(row(one, None, "a".into()).await.expect("an answer"), None);
    assert_eq!(LOADS[2].load(Ordering::SeqCst), 2);
}

#[derive(Clone)]
struct Shop {
    cache: Cache<u64>,
}

struct Currency(&'static str);

impl KeyPart for Currency {
    fn write(&self, key: &mut String) {
        self.0.write(key);
    }
}

#[cached(
    cache = shop.cache,
    key = "price:{article}",
    ttl = Duration::from_secs(5),
    tags = ["prices"]
)]
async fn price(shop: &Shop, article: u32) -> u64 {
    load(3) as u64 * 100 + u64::from(article)
}

#[cached(
    cache = shop.cache,
    skip(shop, refresh),
    with = if refresh { Options::new().force_refresh() } else { Options::new() }
)]
async fn price_in(shop: Shop, currency: Currency, refresh: bool) -> Result<u64, Error> {
    Ok(load(4) as u64 * 10_000 + currency.0.len() as u64)
}

#[tokio::test]
async fn functions_with_one_cache_setting_share_the_cache() {
    let cache = Cache::builder("shop").memory(Memory::entries(10)).build().expect("valid settings");
    let shop = Shop { cache };
    assert_eq!(*price(&shop, 7).await.expect("a price"), 107);
    assert_eq!(*shop.cache.get("price:7").await.expect("a stored entry"), 107);
    let stored = shop.cache.explain("price:7").stored.expect("a stored entry");
    assert_eq!((stored.ttl, stored.tags), (Duration::from_secs(5), vec!["prices".to_owned()]));
    let ask = |refresh| price_in(shop.clone(), Currency("EUR"), refresh);
    assert_eq!(*ask(false).await.expect("a price"), 10_003);
    assert_eq!(*ask(false).await.expect("a price"), 10_003);
    assert_eq!(*ask(true).await.expect("a price"), 20_003);
    assert!(shop.cache.get("price_in(\"EUR\")").await.is_some());
    shop.cache.invalidate_tag("prices").await;
    assert_eq!(*price(&shop, 7).await.expect("a price"), 207);
}

#[cached(ttl = "1m")]
async fn slow() -> usize {
    tokio::task::yield_now().await;
    load(5)
}

#[tokio::test]
async fn a_thousand_simultaneous_calls_run_the_function_once() {
    let calls = futures_util::future::join_all((0..1_000).map(|_| slow())).await;
    assert!(calls.into_iter().all(|call| *call.expect("a number") == 1));
    assert_eq!(LOADS[5].load(Ordering::SeqCst), 1);
}

#[cached(ttl = "1m", stale_if_error = "1h", stale_while_revalidate = "10s")]
pub(crate) async fn unlucky(mut id: u32) -> Result<(), String> {
    id += 1;
    Err(format!("no {id}"))
}

#[tokio::test]
async fn a_function_may_mutate_its_arguments_and_return_unit() {
    let error = unlucky(6).await.expect_err("the load fails");
    assert_eq!(error.to_string(), "the loader failed: no 7");
}

trait Country: 'static {
    const CODE: &str;
}

struct Austria;

impl Country for Austria {
    const CODE: &str = "AT";
}

struct Chad;

impl Country for Chad {
    const CODE: &str = "TD";
}

/// The key contains the generic parameters, which the arguments do not determine.
#[cached(cache = taxes, key = format!("tax:{}:{N}", C::CODE))]
async fn tax<'c, C: Country, const N: u8>(taxes: &'c Cache<String>) -> Result<String, Error> {
    Ok(format!("{N} in {} by load {}", C::CODE, load(6)))
}

#[cached(ttl = "1m")]
async fn longest<'a>(
    one: &'a str,
    other: &'a [String],
    name: impl KeyPart + Send + 'static,
) -> usize {
    let _ = name;
    load(7);
    other.iter().map(String::len).fold(one.len(), usize::max)
}

#[tokio::test]
async fn a_generic_function_needs_its_parameters_in_the_key() {
    let taxes = Cache::builder("taxes").memory(Memory::entries(9)).build().expect("valid settings");
    for _ in 0..2 {
        let told = tax::<Austria, 1>(&taxes).await.expect("a tax");
        assert_eq!(*told, "1 in AT by load 1");
        assert_eq!(*tax::<Chad, 1>(&taxes).await.expect("a tax"), "1 in TD by load 2");
        assert_eq!(*tax::<Chad, 2>(&taxes).await.expect("a tax"), "2 in TD by load 3");
        let other = ["three".to_owned()];
        assert_eq!(*longest("one", &other, 7_u8).await.expect("a number"), 5);
        assert_eq!(*longest("one", &other, "7".to_owned()).await.expect("a number"), 5);
    }
    assert_eq!(LOADS[7].load(Ordering::SeqCst), 2);
}
