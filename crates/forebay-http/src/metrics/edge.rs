//! Metrics of listeners, TLS and certificates.

use std::time::{Duration, UNIX_EPOCH};

use forebay_tls::store::CertificateStore;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

use super::{ResultLabel, SECONDS, SiteLabel, raise};
use crate::client::peer::AddressOrigin;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    listener: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    listener: String,
    protocol: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    listener: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Debug)]
pub(super) struct EdgeMetrics {
    open: Family<ListenerLabel, Gauge>,
    connections_max: Gauge,
    open_by_protocol: Family<ProtocolLabels, Gauge>,
    connections: Family<ProtocolLabels, NamedTotal>,
    handshakes: Family<HandshakeLabels, Counter>,
    handshake_seconds: Family<ListenerLabel, Histogram, fn() -> Histogram>,
    certificate_ends: Family<NameLabel, Gauge>,
    certificate_loads: Family<ResultLabel, Counter>,
    acme_orders: Family<ResultLabel, Counter>,
    h2_streams: Gauge,
    forwarded: Family<ResultLabel, Counter>,
    denied: Family<SiteLabel, Counter>,
    rate_limited: Family<SiteLabel, Counter>,
}

/// Counter whose family has the suffix `_total` in its own name. The names of families must differ
/// in OpenMetrics, and `forebay_connections` is the gauge of open connections. Its type is
/// `unknown`, since the format adds a second suffix to the names of counters.
#[derive(Clone, Debug, Default)]
struct NamedTotal(Counter);

impl EncodeMetric for NamedTotal {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for NamedTotal {
    const TYPE: MetricType = MetricType::Unknown;
}

/// Connection in the gauges of open connections; leaves them when it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    all: Gauge,
    by_protocol: Gauge,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.dec();
        self.by_protocol.dec();
    }
}

impl Default for EdgeMetrics {
    fn default() -> Self {
        Self {
            open: Family::default(),
            connections_max: Gauge::default(),
            open_by_protocol: Family::default(),
            connections: Family::default(),
            handshakes: Family::default(),
            handshake_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            certificate_ends: Family::default(),
            certificate_loads: Family::default(),
            acme_orders: Family::default(),
            h2_streams: Gauge::default(),
            forwarded: Family::default(),
            denied: Family::default(),
            rate_limited: Family::default(),
        }
    }
}

impl EdgeMetrics {
    fn register_connections(&self, registry: &mut Registry) {
        registry.register(
            "connections",
            "Client connections that are open now and whose protocol is known, by listener; not those \
             in a TLS handshake, or without TLS before their first bytes if HTTP/2 is enabled",
            self.open.clone(),
        );
        registry.register(
            "connections_max",
            "Maximum number of client connections of all listeners together, from the limit on open \
             files",
            self.connections_max.clone(),
        );
        registry.register(
            "connections_by_protocol",
            "Client connections that are open now and whose protocol is known, by listener and \
             protocol; not those in a TLS handshake, or without TLS before their first bytes if \
             HTTP/2 is enabled",
            self.open_by_protocol.clone(),
        );
        registry.register(
            "connections_total",
            "Client connections since the start whose protocol became known, by listener and \
             protocol; not those that were rejected, or closed before the end of the TLS \
             handshake, or without TLS before their first bytes if HTTP/2 is enabled",
            self.connections.clone(),
        );
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_connections(registry);
        registry.register(
            "handshakes",
            "TLS handshakes that ended, by listener and result (full, resumed, failed, timeout, \
             unknown-name, challenge)",
            self.handshakes.clone(),
        );
        registry.register(
            "handshake_seconds",
            "Seconds of TLS handshakes until their end or failure, by listener; includes the wait while \
             too many other handshakes are in progress, but not the time of a PROXY header",
            self.handshake_seconds.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "Time at which a loaded certificate expires, in Unix seconds, by its first host name",
            self.certificate_ends.clone(),
        );
        registry.register(
            "certificate_loads",
            "Attempts to load a certificate from its files, by result (loaded, failed)",
            self.certificate_loads.clone(),
        );
        registry.register("h2_streams", "Open HTTP/2 streams of clients", self.h2_streams.clone());
        registry.register(
            "acme_orders",
            "Orders of automatic certificates that ended, by result (issued, failed)",
            self.acme_orders.clone(),
        );
        registry.register(
            "forwarded",
            "Requests received from trusted proxies, by whether the proxy states the address of its \
             client (named) or not (unnamed)",
            self.forwarded.clone(),
        );
        registry.register(
            "denied",
            "Requests answered with 403 because allow or deny of the site excludes the client's \
             address, by site",
            self.denied.clone(),
        );
        registry.register(
            "rate_limited",
            "Requests answered with 429 because their client exceeded the rate limit of the site, \
             by site",
            self.rate_limited.clone(),
        );
        // Created at zero, so that an alert sees the first increase.
        for result in ["named", "unnamed"] {
            let _ = self.forwarded.get_or_create(&ResultLabel { result });
        }
    }

    pub(super) fn set_connections_max(&self, connections: usize) {
        self.connections_max.set(i64::try_from(connections).unwrap_or(i64::MAX));
    }

    pub(super) fn open(&self, listener: &str, protocol: &'static str) -> OpenConnection {
        let all = self.open.get_or_create_owned(&ListenerLabel { listener: listener.to_owned() });
        let labels = ProtocolLabels { listener: listener.to_owned(), protocol };
        let by_protocol = self.open_by_protocol.get_or_create_owned(&labels);
        self.connections.get_or_create(&labels).0.inc();
        all.inc();
        by_protocol.inc();
        OpenConnection { all, by_protocol }
    }

    pub(super) fn handshake(&self, listener: &str, result: &'static str, took: Duration) {
        let listener = listener.to_owned();
        self.handshake_seconds
            .get_or_create(&ListenerLabel { listener: listener.clone() })
            .observe(took.as_secs_f64());
        self.handshakes.get_or_create(&HandshakeLabels { listener, result }).inc();
    }

    pub(super) fn denied(&self, site: &str) {
        self.denied.get_or_create(&SiteLabel { site: site.into() }).inc();
    }

    pub(super) fn rate_limited(&self, site: &str) {
        self.rate_limited.get_or_create(&SiteLabel { site: site.into() }).inc();
    }

    pub(super) fn forwarded(&self, origin: AddressOrigin) {
        let result = match origin {
            AddressOrigin::Connection => return,
            AddressOrigin::Proxy => "named",
            AddressOrigin::ProxyItself => "unnamed",
        };
        self.forwarded.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn h2_streams(&self) -> Gauge {
        self.h2_streams.clone()
    }

    pub(super) fn set_acme_orders(&self, issued: u64, failed: u64) {
        for (result, total) in [("issued", issued), ("failed", failed)] {
            raise(&self.acme_orders.get_or_create(&ResultLabel { result }), total);
        }
    }

    pub(super) fn set_certificates(&self, store: &CertificateStore) {
        self.certificate_ends.clear();
        for (name, end) in store.ends() {
            let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            self.certificate_ends.get_or_create(&NameLabel { name }).set(seconds);
        }
        let (loaded, failed) = store.loads();
        for (result, total) in [("loaded", loaded), ("failed", failed)] {
            raise(&self.certificate_loads.get_or_create(&ResultLabel { result }), total);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// OpenMetrics section 4.1: names of metric families are unique.
    #[test]
    fn open_connections_and_all_connections_are_different_families() {
        let (metrics, mut registry) = (EdgeMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        drop(metrics.open("[::1]:443", "h2"));
        let _open = metrics.open("[::1]:443", "h2");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("no I/O");
        let families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let names: HashSet<_> = families.iter().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(names.len(), families.len(), "{families:#?}");
        for sample in [
            "connections{listener=\"[::1]:443\"} 1",
            "connections_by_protocol{listener=\"[::1]:443\",protocol=\"h2\"} 1",
            "connections_total{listener=\"[::1]:443\",protocol=\"h2\"} 2",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample} is not in\n{text}");
        }
    }
}
