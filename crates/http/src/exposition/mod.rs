//! Metrics in the text format of Prometheus. Renders all counters when `/metrics` is scraped.

mod encoding;
mod processes;
mod stores;
mod streams;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use encoding::{counter, gauge, histogram};
use fondaco_agent::AgentWork;
use fondaco_cluster::{Counts, Mirror};
use fondaco_controller::ControllerWork;
use fondaco_coordination::Coordination;
use fondaco_metrics::{COUNTERS, NodeMetrics};
use fondaco_node::BufferBudget;
use fondaco_replica::REPLICA_COUNTERS;
use fondaco_resp::command;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::changes::Followers;
use crate::traffic::Traffic;

/// The metrics of a process.
pub struct Exposition(Registry);

/// The sources of metrics.
pub struct Observed {
    /// The cluster.
    pub mirror: Mirror,
    /// Weak, so that metrics do not keep a session.
    pub coordination: Weak<dyn Coordination>,
    /// The counters of that session.
    pub counts: Arc<Counts>,
    /// The agent, if the process holds data.
    pub agent: Option<Arc<AgentWork>>,
    /// The controller, if the process can lead.
    pub controller: Option<Arc<ControllerWork>>,
    /// The counters of RESP.
    pub metrics: Arc<NodeMetrics>,
    /// The counters of the control port.
    pub traffic: Arc<Traffic>,
    /// The budget of the buffers of clients.
    pub buffers: BufferBudget,
    /// The followers of changes.
    pub followers: Followers,
    /// The role of the process, in a word.
    pub role: &'static str,
}

impl Exposition {
    /// The metrics of these sources.
    pub fn new(observed: Observed) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(observed));
        Self(registry)
    }

    /// The text, in OpenMetrics or in the older format of Prometheus.
    pub(crate) fn encode(&self, format: TextFormat) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0)?;
        match format {
            TextFormat::OpenMetrics => Ok(text),
            TextFormat::Prometheus => Ok(as_prometheus(&text)),
        }
    }
}

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    OpenMetrics,
    Prometheus,
}

impl TextFormat {
    /// The format that a scraper asks for by the header `Accept`: OpenMetrics if named there, else the format that all
    /// scrapers know.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        const OPEN_METRICS: &str = "application/openmetrics-text";
        let kinds = accept.unwrap_or_default().split(',');
        match kinds
            .map(|kind| kind.split(';').next())
            .any(|kind| kind.is_some_and(|kind| kind.trim() == OPEN_METRICS))
        {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Its content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts OpenMetrics to the older format: a counter is described by the name of its samples, with `_total`, and the
/// text has no end mark.
fn as_prometheus(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let counters: BTreeSet<&str> = types
        .filter(|(_, kind)| *kind == "counter")
        .map(|(name, _)| name)
        .collect();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let described = ["# HELP ", "# TYPE "]
            .iter()
            .find_map(|head| Some((head, line.strip_prefix(head)?)));
        match described.and_then(|(head, rest)| Some((head, rest.split_once(' ')?))) {
            Some((head, (name, rest))) if counters.contains(name) => {
                lines.extend([head, name, "_total ", rest]);
            }
            _ => lines.push_str(line),
        }
        lines.push('\n');
    }
    lines
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.build_info(&mut encoder)?;
        self.commands(&mut encoder)?;
        for (which, name, help) in COUNTERS {
            counter(&mut encoder, name, help, self.metrics.counter(which))?;
        }
        for (name, help, count) in self.metrics.quorums().each() {
            counter(&mut encoder, &format!("quorum_{name}"), help, count)?;
        }
        gauge(
            &mut encoder,
            "clients",
            "clients connected over RESP",
            self.metrics.clients(),
        )?;
        gauge(
            &mut encoder,
            "cold_reads",
            "cold reads under way",
            self.metrics.cold_reads(),
        )?;
        let help = "keys being fetched from other nodes";
        gauge(&mut encoder, "forwards", help, self.metrics.forwards())?;
        let help = "bytes of hot keys that a router keeps";
        gauge(&mut encoder, "cache_bytes", help, self.metrics.cache_bytes())?;
        for (name, help, count) in self.metrics.graphs() {
            counter(&mut encoder, &format!("graph_{name}"), help, count)?;
        }
        let help = "bytes of networks of vertices that are cached";
        gauge(&mut encoder, "graph_network_bytes", help, self.metrics.network_bytes())?;
        let help = "bytes of the budget that client buffers use, over RESP and HTTP";
        gauge(&mut encoder, "buffer_bytes", help, self.buffers.charged_bytes())?;
        let help = "the budget of the buffers of clients";
        gauge(&mut encoder, "buffer_bytes_max", help, self.buffers.bytes_max())?;
        let help = "times that a client had to wait for memory";
        counter(&mut encoder, "buffer_waits", help, self.buffers.waits())?;
        let spans = self.metrics.spans().counts();
        for (name, help, count) in [
            ("traces_spans", "spans of traced requests that have ended", spans.ended),
            (
                "traces_dropped",
                "spans dropped because too many waited to be sent",
                spans.dropped,
            ),
            ("traces_failed", "spans that the collector did not take", spans.failed),
        ] {
            counter(&mut encoder, name, help, count)?;
        }
        self.http(&mut encoder)?;
        self.cluster(&mut encoder)?;
        self.agent(&mut encoder)?;
        self.controller(&mut encoder)?;
        self.stores(&mut encoder)?;
        self.streams(&mut encoder)?;
        self.followers(&mut encoder)?;
        processes::metrics(&mut encoder)
    }
}

impl Observed {
    fn build_info(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1, with the version of the program and the role of the process";
        let mut family = encoder.encode_descriptor("fondaco_build_info", help, None, MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("role", self.role)];
        family.encode_family(&labels)?.encode_gauge(&1_u64)
    }

    fn commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "time from reading a command until its reply was ready";
        let mut family =
            encoder.encode_descriptor("fondaco_command_duration_seconds", help, None, MetricType::Histogram)?;
        for spec in command::all() {
            let latency = self.metrics.latency(spec.id);
            if latency.count() == 0 {
                continue;
            }
            histogram(family.encode_family(&[("command", spec.name)])?, &latency)?;
        }
        let help = "commands answered by an error";
        let mut family = encoder.encode_descriptor("fondaco_command_errors", help, None, MetricType::Counter)?;
        for spec in command::all() {
            let errors = self.metrics.errors(spec.id);
            if errors > 0 {
                let labels = [("command", spec.name)];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&errors, None)?;
            }
        }
        Ok(())
    }

    fn http(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "requests to the control port, by class of status";
        let mut family = encoder.encode_descriptor("fondaco_http_requests", help, None, MetricType::Counter)?;
        for (class, count) in self.traffic.answers() {
            let labels = [("status", class)];
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        counter(
            encoder,
            "http_connections_evicted",
            "connections to the control port that sent no request and had to give way to others",
            self.traffic.evicted().load(Relaxed),
        )
    }

    fn followers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let stores = self.followers.by_store();
        let help = "followers of a store's changes that are being served";
        let mut family = encoder.encode_descriptor("fondaco_followers", help, None, MetricType::Gauge)?;
        for (store, (count, _)) in &stores {
            family
                .encode_family(&[("store", store.as_str())])?
                .encode_gauge(count)?;
        }
        let help = "events of a store's topic that the last of its followers has yet to get";
        let mut family = encoder.encode_descriptor("fondaco_follower_lag_events", help, None, MetricType::Gauge)?;
        for (store, (_, lag)) in &stores {
            family.encode_family(&[("store", store.as_str())])?.encode_gauge(lag)?;
        }
        let help = "changes that were sent to followers";
        counter(encoder, "changes_sent", help, self.followers.sent())
    }

    fn cluster(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let view = self.mirror.view();
        let live = view.nodes.keys().filter(|&&node| view.is_live(node)).count();
        let epoch = view.routing.as_ref().map_or(0, |routing| routing.record.epoch());
        let silent = self.mirror.stale_since().map_or(0, |since| since.elapsed().as_secs());
        let coordination = self.coordination.upgrade();
        let session = coordination.map_or(0, |coordination| coordination.session().generation);
        let reads = self.mirror.reads();
        gauge(
            encoder,
            "nodes",
            "nodes that were given a number, without those that are forgotten",
            view.listed_nodes().count() as u64,
        )?;
        gauge(encoder, "nodes_live", "live nodes", live as u64)?;
        gauge(encoder, "routers", "live routers", view.routers.len() as u64)?;
        gauge(
            encoder,
            "routing_epoch",
            "epoch of the routing table: how often it was changed",
            epoch,
        )?;
        gauge(
            encoder,
            "coordination_silent_seconds",
            "for how many seconds the coordination service has not answered; 0 while it answers",
            silent,
        )?;
        counter(
            encoder,
            "coordination_sessions",
            "sessions with the coordination service",
            session,
        )?;
        counter(encoder, "coordination_events", "events of watches", reads.events)?;
        for (name, help, value) in self.counts.all() {
            counter(encoder, name, help, value)?;
        }
        let help = "reads of all entries: at the start, and whenever changes may have been missed";
        counter(encoder, "coordination_full_reads", help, reads.full)
    }

    fn agent(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(agent) = &self.agent else { return Ok(()) };
        let help = "changes of a store's current version on this node";
        counter(encoder, "swaps", help, agent.swaps())?;
        let [bytes, ms] = agent.warmed();
        counter(
            encoder,
            "warmed_bytes",
            "bytes that were read ahead before a version served",
            bytes,
        )?;
        counter(encoder, "warmed_seconds", "time that this took", ms as f64 / 1000.0)?;
        let counts = agent.on_demand();
        let help = "reads of look-ups from the sources of versions that are served while they are copied";
        counter(encoder, "on_demand_reads", help, counts.reads.load(Relaxed))?;
        let help = "bytes that these read";
        counter(encoder, "on_demand_bytes", help, counts.bytes.load(Relaxed))?;
        let help = "such reads that failed: the look-up got an error";
        counter(encoder, "on_demand_failures", help, counts.failures.load(Relaxed))?;
        gauge(
            encoder,
            "not_ready_reasons",
            "reasons why the node is not ready",
            agent.not_ready().len() as u64,
        )?;
        let available = agent.data_dir().available_bytes().unwrap_or(0);
        gauge(encoder, "disk_available_bytes", "free bytes on the disk", available)?;
        gauge(
            encoder,
            "fetches",
            "fetches that run on this node",
            agent.fetches() as u64,
        )?;
        counter(
            encoder,
            "agent_looks",
            "passes over the cluster state by this node's agent",
            agent.passes(),
        )?;
        let replicas = agent.replicas();
        for (which, name, help) in REPLICA_COUNTERS {
            counter(encoder, name, help, replicas.counter(which))?;
        }
        let help = "writes that wait to be committed";
        gauge(encoder, "replica_writes_waiting", help, replicas.waiting() as u64)?;
        let help = "bytes of all versioned stores, on disk and in memory";
        gauge(encoder, "replica_bytes", help, replicas.bytes())?;
        if let Some(memory) = replicas.key_memory() {
            let help = "keys of the engine log, which are in memory";
            gauge(encoder, "log_keys", help, memory.keys)?;
            let help = "approximate bytes of memory used by keys of the engine log";
            gauge(encoder, "log_key_bytes", help, memory.bytes)?;
            let help = "bytes of memory that keys of the engine log may use before new keys are refused";
            gauge(encoder, "log_key_bytes_max", help, memory.bytes_max)?;
        }
        let help = "nodes for which hints are stored";
        gauge(encoder, "hinted_nodes", help, replicas.hinted_nodes() as u64)?;
        let help = "records of versioned stores found damaged or unreadable here, and not repaired yet";
        gauge(encoder, "records_damaged", help, replicas.records_damaged() as u64)?;
        let help = "engines that have lost acknowledged writes and have not got them back from other nodes";
        gauge(encoder, "engines_with_losses", help, replicas.losses().len() as u64)?;
        let help = "engines with unreadable data";
        gauge(encoder, "engines_with_damage", help, replicas.unreadable().len() as u64)?;
        let help = "partitions of versioned stores that lost writes on this node and have not got them back";
        gauge(encoder, "partitions_behind", help, replicas.partitions_behind() as u64)?;
        let help = "time of the oldest hint that waits for another node, in seconds since 1970; 0 without hints";
        let oldest = replicas.oldest_hint_unix_ms().unwrap_or(0) / 1000;
        gauge(encoder, "hints_oldest_timestamp_seconds", help, oldest)
    }

    fn controller(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(controller) = &self.controller else {
            return Ok(());
        };
        let counts = controller.counts();
        gauge(
            encoder,
            "controller_leading",
            "1 while this controller leads",
            u64::from(counts.leading),
        )?;
        let help = "passes of the decision loop while this controller leads";
        counter(encoder, "controller_decisions", help, counts.decisions)?;
        counter(encoder, "controller_changes", "decisions carried out", counts.changes)?;
        let help = "decisions that came too late and were made again";
        counter(encoder, "controller_conflicts", help, counts.conflicts)?;
        let help = "how often the hook for machines has failed for the request under way";
        gauge(encoder, "controller_hook_failures", help, counts.hook_failures)?;
        let problems = controller.problems().len() as u64;
        gauge(
            encoder,
            "controller_problems",
            "problems that block the leading controller",
            problems,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_sent_only_if_accept_names_it() {
        for (accept, format) in [
            (None, TextFormat::Prometheus),
            (Some("*/*"), TextFormat::Prometheus),
            (Some("text/plain;version=0.0.4"), TextFormat::Prometheus),
            (
                Some("application/openmetrics-text; version=1.0.0, text/plain;q=0.5"),
                TextFormat::OpenMetrics,
            ),
            (
                Some("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.8"),
                TextFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(TextFormat::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn the_older_format_describes_counters_by_their_sample_names() {
        let text = "# HELP a_b Of a.\n# TYPE a_b counter\na_b_total 1\n# HELP c Of c.\n# TYPE c gauge\nc 2\n# EOF\n";
        assert_eq!(
            as_prometheus(text),
            "# HELP a_b_total Of a.\n# TYPE a_b_total counter\na_b_total 1\n# HELP c Of c.\n# TYPE c gauge\nc 2\n"
        );
    }
}
