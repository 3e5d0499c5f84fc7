//! `forebay warm`: fetches a list of URLs through a running cache.

use std::io::{IsTerminal, Read, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;

use super::cache::Cache;
use super::list::{ListFormat, SitemapKind, WarmList, WarmUrl, locations};
use super::{Fetched, WarmSummary, rate, result_of, warm};
use crate::args::WarmArgs;
use crate::output::{FAILED, USAGE, print_error, print_line};

/// Maximum time for one response. The cache ends most fetches sooner.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum size of a sitemap in bytes, as sitemaps.org defines it.
const SITEMAP_MAX: usize = 50 << 20;

/// Maximum number of sitemaps of an index, as sitemaps.org defines it.
const SITEMAPS_MAX: usize = 50_000;

/// Minimum interval of progress lines.
const PROGRESS: Duration = Duration::from_millis(200);

/// Fetches the URLs and prints a summary.
///
/// # Errors
/// If the list cannot be read.
pub(crate) fn run(args: &WarmArgs) -> anyhow::Result<u8> {
    let sources = [args.file.is_some(), args.sitemap.is_some(), args.log.is_some()];
    if sources.into_iter().filter(|is_given| *is_given).count() != 1 {
        print_error(format_args!("forebay: name one list: FILE, -, --sitemap URL or --log FILE"));
        return Ok(USAGE);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cache = Cache::at(&args.via, args.ca.as_deref())?;
        let list = read_list(args, &cache).await?;
        if list.unusable > 0 {
            let unusable = list.unusable;
            print_error(format_args!("{unusable} lines are no URLs of GET requests: skipped"));
        }
        let urls = list.urls.get(args.skip..).unwrap_or_default();
        Ok(fetch_all(urls, args, &cache).await)
    })
}

async fn read_list(args: &WarmArgs, cache: &Cache) -> anyhow::Result<WarmList> {
    if let Some(sitemap) = &args.sitemap {
        return cache.sitemap(sitemap).await;
    }
    let (path, format) = match (&args.file, &args.log) {
        (Some(file), _) => (file, ListFormat::Lines),
        (None, Some(log)) => (log, ListFormat::Log),
        (None, None) => bail!("no list of URLs is named"),
    };
    Ok(WarmList::parse(&read(path)?, format))
}

/// Reads a file, or stdin for `-`.
fn read(path: &Path) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("stdin cannot be read")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

async fn fetch_all(urls: &[WarmUrl], args: &WarmArgs, cache: &Cache) -> u8 {
    let (begun, mut shown) = (Instant::now(), Instant::now());
    let is_terminal = std::io::stderr().is_terminal();
    let mut last = WarmSummary::default();
    let fetch = |url| cache.fetch(url);
    let report = |summary: &WarmSummary| {
        last.clone_from(summary);
        if is_terminal && (shown.elapsed() >= PROGRESS || summary.done() == urls.len()) {
            shown = Instant::now();
            show_progress(summary, urls.len(), begun);
        }
    };
    let is_complete = tokio::select! {
        _ = warm(urls, args.concurrency, fetch, report) => true,
        _ = tokio::signal::ctrl_c() => false,
    };
    if is_terminal {
        print_error(format_args!(""));
    }
    let WarmSummary { hits, stored, not_stored, failed, .. } = last;
    let seconds = begun.elapsed().as_secs_f64();
    print_line(format_args!(
        "{} of {} URLs in {seconds:.1} s: {stored} stored, {hits} stored before, {not_stored} not \
         storable, {failed} failed",
        last.done(),
        urls.len()
    ));
    if let Some(failure) = &last.first_failure {
        print_error(format_args!("forebay: first failure: {failure}"));
    }
    if !is_complete {
        let skip = args.skip + last.done_in_order;
        print_error(format_args!("forebay: interrupted; to continue, add --skip {skip}"));
    }
    if is_complete && failed == 0 { 0 } else { FAILED }
}

/// Replaces the progress line.
fn show_progress(summary: &WarmSummary, total: usize, begun: Instant) {
    const WIDTH: usize = 30;
    let filled = WIDTH * summary.done() / total.max(1);
    let (bar, rest) = ("#".repeat(filled), "-".repeat(WIDTH - filled));
    let (done, failed) = (summary.done(), summary.failed);
    let per_second = rate(done, begun);
    let _ = write!(
        std::io::stderr(),
        "\r[{bar}{rest}] {done}/{total}, {failed} failed, {per_second:.0}/s \x1b[K"
    );
}

impl Cache {
    async fn fetch(&self, url: WarmUrl) -> Fetched {
        match timeout(TIMEOUT, self.exchange(&url)).await {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(error)) => Fetched::Failed(format!("{error:#}")),
            Err(_) => Fetched::Failed(format!("no whole response within {TIMEOUT:?}")),
        }
    }

    /// Receives the whole response, because only then it is stored.
    async fn exchange(&self, url: &WarmUrl) -> anyhow::Result<Fetched> {
        let mut exchange = self.get(url).await?;
        let fetched = result_of(exchange.response.status(), exchange.response.headers());
        while let Some(frame) = exchange.response.frame().await {
            frame.context("the response was cut off")?;
        }
        exchange.keep();
        Ok(fetched)
    }

    /// Returns the pages of a sitemap, which is fetched through the cache, too.
    async fn sitemap(&self, url: &str) -> anyhow::Result<WarmList> {
        let mut list = WarmList::default();
        let (mut waiting, mut count) = (vec![url.to_owned()], 0);
        while let Some(url) = waiting.pop() {
            count += 1;
            if count > SITEMAPS_MAX {
                bail!("the sitemap has more than {SITEMAPS_MAX} sitemaps");
            }
            let text = timeout(TIMEOUT, self.text(&url)).await;
            let text =
                text.with_context(|| format!("sitemap {url}: no response in {TIMEOUT:?}"))?;
            let (kind, found) = locations(&text.with_context(|| format!("sitemap {url}"))?);
            match kind {
                SitemapKind::Index => waiting.extend(found.into_iter().rev()),
                SitemapKind::Pages => list.add_locations(&found),
            }
        }
        Ok(list)
    }

    async fn text(&self, url: &str) -> anyhow::Result<String> {
        let url = WarmUrl::parse(url).context("must be a URL such as http://HOST/sitemap.xml")?;
        let mut exchange = self.get(&url).await?;
        let status = exchange.response.status();
        anyhow::ensure!(status.is_success(), "status {status}");
        let body = Limited::new(exchange.response.body_mut(), SITEMAP_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        String::from_utf8(body.into())
            .context("it is not UTF-8 text; compressed sitemaps are not read")
    }
}
