//! Metrics of listeners, TLS and certificates.

use std::time::{Duration, UNIX_EPOCH};

use forebay_tls::store::CertificateStore;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
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
    open_by_protocol: Family<ProtocolLabels, Gauge>,
    connections: Family<ProtocolLabels, Counter>,
    handshakes: Family<HandshakeLabels, Counter>,
    handshake_seconds: Family<ListenerLabel, Histogram, fn() -> Histogram>,
    certificate_ends: Family<NameLabel, Gauge>,
    certificate_loads: Family<ResultLabel, Counter>,
    forwarded: Family<ResultLabel, Counter>,
    denied: Family<SiteLabel, Counter>,
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
            open_by_protocol: Family::default(),
            connections: Family::default(),
            handshakes: Family::default(),
            handshake_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            certificate_ends: Family::default(),
            certificate_loads: Family::default(),
            forwarded: Family::default(),
            denied: Family::default(),
        }
    }
}

impl EdgeMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "connections",
            "Open client connections, without those in a TLS handshake",
            self.open.clone(),
        );
        registry.register(
            "connections_by_protocol",
            "Open client connections, without those in a TLS handshake, by protocol",
            self.open_by_protocol.clone(),
        );
        registry.register(
            "connections",
            "Client connections, without failed TLS handshakes, by protocol",
            self.connections.clone(),
        );
        registry.register("handshakes", "TLS handshakes, by result", self.handshakes.clone());
        registry.register(
            "handshake_seconds",
            "Seconds of a TLS handshake until its end or failure, with the wait for its slot",
            self.handshake_seconds.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "End of the validity of a certificate in Unix time, by its first name",
            self.certificate_ends.clone(),
        );
        registry.register(
            "certificate_loads",
            "Certificates loaded from files, by result",
            self.certificate_loads.clone(),
        );
        registry.register(
            "forwarded",
            "Requests of trusted proxies that name a client (named) or none (unnamed)",
            self.forwarded.clone(),
        );
        registry.register(
            "denied",
            "Requests of clients that may not use the site",
            self.denied.clone(),
        );
        // Created at zero, so that an alert sees the first increase.
        for result in ["named", "unnamed"] {
            let _ = self.forwarded.get_or_create(&ResultLabel { result });
        }
    }

    pub(super) fn open(&self, listener: &str, protocol: &'static str) -> OpenConnection {
        let all = self.open.get_or_create_owned(&ListenerLabel { listener: listener.to_owned() });
        let labels = ProtocolLabels { listener: listener.to_owned(), protocol };
        let by_protocol = self.open_by_protocol.get_or_create_owned(&labels);
        self.connections.get_or_create(&labels).inc();
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

    pub(super) fn forwarded(&self, origin: AddressOrigin) {
        let result = match origin {
            AddressOrigin::Connection => return,
            AddressOrigin::Proxy => "named",
            AddressOrigin::ProxyItself => "unnamed",
        };
        self.forwarded.get_or_create(&ResultLabel { result }).inc();
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
