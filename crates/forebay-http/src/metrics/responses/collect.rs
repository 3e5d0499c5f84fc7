//! Export of the metrics of responses.

use std::fmt;
use std::sync::Arc;

use forebay_core::Why;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{ResponseMetrics, SiteCounters};
use crate::record::End;

/// Sums the stripes at each scrape.
#[derive(Debug)]
pub(in crate::metrics) struct ResponseCollector(pub(in crate::metrics) Arc<ResponseMetrics>);

impl Collector for ResponseCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sites: Vec<_> = self.0.sites().collect();
        encode_requests(&sites, &mut encoder)?;
        encode_seconds(&sites, &mut encoder)?;
        encode_bytes(&sites, &mut encoder)?;
        encode_reasons(&sites, &mut encoder)
    }
}

fn encode_requests(sites: &[&SiteCounters], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Requests answered, by site, method, status code and cache result; site is - for \
                rejected requests, and method is - if it is not known.";
    let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
    for site in sites {
        for (place, combination) in site.combinations.all() {
            let count = site.sum(|stripe| &stripe.requests[place]);
            let named = combination.status;
            if named.is_none() && count == 0 {
                continue;
            }
            let status = named.map_or_else(|| "other".to_owned(), |status| status.to_string());
            let labels = [
                ("site", &*site.id),
                ("method", named.map_or("other", |_| combination.method.label())),
                ("status", &status),
                ("cache", combination.cache.label()),
            ];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn encode_seconds(sites: &[&SiteCounters], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Seconds from the receipt of a request head to its response head, by site and cache \
                result.";
    let kind = MetricType::Histogram;
    let mut family = encoder.encode_descriptor("request_seconds", help, None, kind)?;
    for site in sites {
        for &cache in site.caches() {
            let labels = [("site", &*site.id), ("cache", cache.label())];
            let sum = site.latency(|stripe| &stripe.heads[cache as usize]);
            let (seconds, count, buckets) = (sum.seconds(), sum.count(), sum.exported());
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)?;
        }
    }
    let help = "Seconds from the receipt of a request head to the end of its response, by site.";
    let mut family = encoder.encode_descriptor("response_seconds", help, None, kind)?;
    for site in sites {
        let sum = site.latency(|stripe| &stripe.totals);
        let (seconds, count, buckets) = (sum.seconds(), sum.count(), sum.exported());
        let labels = [("site", &*site.id)];
        let mut metric = family.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)?;
    }
    Ok(())
}

fn encode_bytes(sites: &[&SiteCounters], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Bytes of response bodies that client connections took, by site and cache result.";
    let mut family = encoder.encode_descriptor("body_bytes", help, None, MetricType::Counter)?;
    for site in sites {
        for &cache in site.caches() {
            let labels = [("site", &*site.id), ("cache", cache.label())];
            let count = site.sum(|stripe| &stripe.bytes[cache as usize]);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn encode_reasons(sites: &[&SiteCounters], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let kind = MetricType::Counter;
    let help = "Responses that ended before their last byte, by site and cause.";
    let mut family = encoder.encode_descriptor("responses_truncated", help, None, kind)?;
    for site in sites {
        for (place, end) in End::TRUNCATED.into_iter().enumerate() {
            let labels = [("site", &*site.id), ("end", end.label().unwrap_or_default())];
            let count = site.sum(|stripe| &stripe.truncated[place]);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    let help = "Requests that memory did not answer alone, by reason; answers from disk or Redis and \
                requests that bypass the cache count, and rejected requests do not. Reason \
                early-refresh means that memory answered with a fresh response, which is being \
                refreshed.";
    let mut family = encoder.encode_descriptor("misses", help, None, kind)?;
    for site in sites.iter().filter(|site| site.is_site) {
        for why in Why::ALL {
            let labels = [("site", &*site.id), ("reason", why.code())];
            let count = site.sum(|stripe| &stripe.misses[why as usize]);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}
