//! The progress of a push, and the problems of nodes with a version, as text.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use fondaco_api::{AbsentNode, PushResource, ReplicaResource};
use fondaco_builder::{Phase, ProgressSnapshot};
use fondaco_model::cluster::ReplicaState;
use fondaco_push::{Job, Note, Observer, Progress, with_causes};

use super::build;
use super::canary;
use super::push_outcome::cluster_text;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, rate};

/// Runs a job, shows its progress, and cancels it at the first signal.
pub fn with_job<T, E>(output: &Output, run: impl FnOnce(Job<'_>) -> Result<T, E>) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let interrupt = Interrupt::listen()?;
    let observer = Reporter {
        output,
        display: RefCell::new(None),
    };
    Ok(run(Job {
        observer: &observer,
        cancel: interrupt.token(),
    })?)
}

/// Shows the progress of a job.
struct Reporter<'a> {
    output: &'a Output,
    /// The display of the step under way.
    display: RefCell<Option<Display>>,
}

impl Observer for Reporter<'_> {
    fn progress(&self, progress: Progress<'_>) {
        let mut display = self.display.borrow_mut();
        let display = display.get_or_insert_with(|| Display::new(self.output.is_quiet()));
        match progress {
            Progress::Building(now) => show_build(display, now),
            Progress::FetchingBase {
                bytes_done,
                bytes_total,
            } => {
                let details = format!("{} of {}", output::bytes(bytes_done), output::bytes(bytes_total));
                display.show("fetching", fraction(bytes_done, bytes_total), &details);
            }
            Progress::Exporting { records, records_total } => {
                let rows = output::count(rate(records, display.phase_time()));
                let details = format!("{} records, {rows} records/s", output::count(records));
                display.show(
                    "exporting",
                    records_total.map_or(0.0, |total| fraction(records, total)),
                    &details,
                );
            }
            Progress::ReadingEvents { keys } => {
                display.show("reading events", 0.0, &format!("{} keys", output::count(keys)));
            }
            Progress::Sending {
                bytes_sent,
                bytes_total,
                elapsed,
            } => {
                let details = transfer_text(bytes_sent, bytes_total, rate(bytes_sent, elapsed));
                display.show("sending", fraction(bytes_sent, bytes_total), &details);
            }
            Progress::Uploading {
                bytes_arrived,
                bytes_total,
                bytes_sent,
                elapsed,
            } => {
                let details = transfer_text(bytes_arrived, bytes_total, rate(bytes_sent, elapsed));
                display.show("uploading", fraction(bytes_arrived, bytes_total), &details);
            }
            Progress::Fetching(push) => show(display, push),
        }
    }

    fn step_ended(&self) {
        self.display.borrow_mut().take();
    }

    fn note(&self, note: Note<'_>) {
        // They are part of the result.
        if self.output.is_json() && matches!(note, Note::RowSkipped(_) | Note::Built(_)) {
            return;
        }
        let text = note_text(note);
        match &*self.display.borrow() {
            Some(display) => display.note(&text),
            None => self.output.note(&text),
        }
    }
}

fn fraction(done: u64, total: u64) -> f64 {
    (done as f64 / total.max(1) as f64).min(1.0)
}

fn transfer_text(done: u64, total: u64, bytes_per_second: u64) -> String {
    format!(
        "{} of {}, {}/s",
        output::bytes(done),
        output::bytes(total),
        output::bytes(bytes_per_second)
    )
}

fn note_text(note: Note<'_>) -> String {
    match note {
        Note::RowSkipped(row) => format!("skipped: {row}"),
        Note::Built(built) => build::text(built).trim_end().to_owned(),
        Note::FetchingBase { store, version } => {
            format!("fetching version {version} of store {store}")
        }
        Note::StoreCreated(store) => format!("created store {store}"),
        Note::StoreExists(store) => format!("store {store} was created meanwhile: pushing to it"),
        Note::UploadBegins { store, dir } => format!(
            "uploading {dir:?}; if it is interrupted, resume it with: fondaco deploy {store} {} --upload",
            dir.display()
        ),
        Note::UploadCorrupt(error) => format!("{error}; sending it again"),
        Note::UploadRetried(error) => format!("{}; trying again", with_causes(error)),
        Note::Uploaded(upload) => {
            let resumed = match upload.bytes_resumed {
                0 => String::new(),
                bytes => format!(", {} had arrived before", output::bytes(bytes)),
            };
            format!("uploaded {}{resumed}", output::bytes(upload.bytes_sent))
        }
        Note::Sent(sent) => format!(
            "sent {} in {} records: {}",
            output::bytes(sent.bytes),
            output::count(sent.topic_records),
            sent.address
        ),
        Note::RunKnown { run, version } => {
            format!("run {run:?} has begun already, as version {version}: continuing with it")
        }
        Note::OtherPush(error) => format!("{error}; waiting for it"),
        Note::NoLeader => {
            "no controller leads: the push continues when one does; start one, or see fondaco status".to_owned()
        }
        Note::WaitingForNode(absent) => waiting_text(absent),
        Note::LateNode(node) => {
            format!("node {node} does not have it yet: it serves this store again when it has caught up")
        }
        Note::ClusterLeftOut(error) => format!("{}; continuing without it", with_causes(error)),
        Note::ClusterAway(error) => format!("{}; asking again", with_causes(error)),
        Note::ClusterEnded { store, outcome } => cluster_text(store, outcome).trim_end().to_owned(),
        Note::Pausing(pause) => format!("waiting for {}", output::duration(pause)),
        Note::EventsRetried(error) => format!("trying again: {}", with_causes(error)),
        Note::EventsRead {
            store,
            keys,
            until_unix_ms,
        } => format!(
            "events up to {} have changed {} keys of store {store}",
            output::timestamp(until_unix_ms),
            output::count(keys)
        ),
    }
}

fn show_build(display: &mut Display, now: &ProgressSnapshot) {
    let fraction = now.phase_fraction();
    let sorting = |display: &mut Display, phase, what: &str| {
        let details = format!(
            "{} of {} {what}, {} {what}/s",
            output::count(now.records_written),
            output::count(now.records_total),
            output::count(rate(now.records_written, display.phase_time()))
        );
        display.show(phase, fraction, &details);
    };
    match now.phase {
        Phase::Preparing => display.show("preparing", 0.0, "looking for input"),
        Phase::Reading => {
            let details = format!(
                "{} rows, {} of {}, {} rows/s",
                output::count(now.rows_read),
                output::bytes(now.bytes_read),
                output::bytes(now.bytes_total),
                output::count(rate(now.rows_read, display.phase_time()))
            );
            display.show("reading", fraction, &details);
        }
        Phase::Naming => sorting(display, "numbering", "names"),
        Phase::Joining => sorting(display, "joining", "vertices and ends of edges"),
        Phase::Grouping => sorting(display, "grouping", "neighbours"),
        Phase::Writing => sorting(display, "writing", "records"),
        Phase::Finishing | Phase::Done => display.show("finishing", 1.0, "waiting for the disk"),
    }
}

/// The node that the push waits for, and since when it is absent.
fn waiting_text(absent: &AbsentNode) -> String {
    match absent.since_unix_ms {
        Some(since) => format!(
            "waiting for node {}, absent since {}",
            absent.node,
            output::timestamp(since)
        ),
        None => format!("waiting for node {}, which is absent", absent.node),
    }
}

/// Shows the progress of a push, or the reason that it waits if all files are there.
fn show(display: &mut Display, push: &PushResource) {
    if let Some(running) = push.canary.as_ref().filter(|canary| canary.against.is_some()) {
        return display.show_waiting(canary::line(push.version, running).trim_end());
    }
    if is_waiting(push) {
        return display.show_waiting(&problems(&push.nodes).join("; "));
    }
    let fraction = fraction(push.bytes_done, push.bytes_total);
    display.show_with("fetching", fraction, time_left(push), &progress_text(push));
}

/// The remaining time of a push, if its nodes estimate it.
fn time_left(push: &PushResource) -> Option<Duration> {
    push.seconds_left.map(|seconds| Duration::from_secs(seconds.max(1)))
}

/// The progress of a push under way: the reason that it waits, or the progress of its nodes.
pub fn state_text(push: &PushResource) -> String {
    let problems = problems(&push.nodes);
    if is_waiting(push) {
        return problems.join("; ");
    }
    let left = time_left(push).map_or_else(String::new, |left| format!(", {} left", output::duration(left)));
    let problems = problems.iter().map(|problem| format!("; {problem}"));
    format!("{}{left}{}", progress_text(push), problems.collect::<String>())
}

/// Whether nodes have all files, and those that are not ready wait for the stream on top.
fn is_waiting(push: &PushResource) -> bool {
    let mut fetching = push
        .nodes
        .iter()
        .filter(|node| node.state == ReplicaState::Fetching)
        .peekable();
    fetching.peek().is_some() && fetching.all(|node| node.reads_stream)
}

/// The reasons that keep nodes from a version, or from the stream on top of it: nodes with the same reason together.
pub fn problems(nodes: &[ReplicaResource]) -> Vec<String> {
    let mut problems = BTreeMap::<String, Vec<u32>>::new();
    for node in nodes {
        let is_ready = matches!(node.state, ReplicaState::Ready | ReplicaState::Serving);
        let problem = match &node.error {
            Some(error) if node.reads_stream => format!("waiting for the stream, which cannot be read: {error}"),
            Some(error) if is_ready => format!("ready, but {error}"),
            Some(error) => error.clone(),
            None if node.reads_stream => "reading the stream".to_owned(),
            None => continue,
        };
        problems.entry(problem).or_default().push(node.node);
    }
    let text = |(problem, nodes): (String, Vec<u32>)| {
        let name = if nodes.len() == 1 { "node" } else { "nodes" };
        let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
        format!("{name} {}: {problem}", nodes.join(", "))
    };
    problems.into_iter().map(text).collect()
}

/// The progress of a push in bytes, and per node if there are several.
fn progress_text(push: &PushResource) -> String {
    let bytes = format!(
        "{} of {}",
        output::bytes(push.bytes_done),
        output::bytes(push.bytes_total)
    );
    if push.nodes.len() > 1 {
        return format!("{bytes}, {}", nodes_text(&push.nodes));
    }
    let limit = match push.rate_limit_bytes_per_second {
        0 => String::new(),
        limit => format!(" of at most {}/s", output::bytes(limit)),
    };
    format!(
        "{bytes}, {} of {} files, {}/s{limit}",
        push.files_done,
        push.files_total,
        output::bytes(push.rate_bytes_per_second),
    )
}

/// The progress of each node; for many nodes, only how many have finished and which one is slowest.
fn nodes_text(nodes: &[ReplicaResource]) -> String {
    const NODES_SHOWN_MAX: usize = 8;
    let fraction = |node: &ReplicaResource| match node.state {
        ReplicaState::Ready | ReplicaState::Serving => 1.0,
        ReplicaState::Fetching | ReplicaState::Failed => node.bytes_done as f64 / node.bytes_total.max(1) as f64,
    };
    let one = |node: &ReplicaResource| match node.state {
        ReplicaState::Ready | ReplicaState::Serving => format!("node {} ready", node.node),
        ReplicaState::Fetching => format!("node {} {:.0} %", node.node, fraction(node) * 100.0),
        ReplicaState::Failed => format!("node {} failed", node.node),
    };
    if nodes.len() <= NODES_SHOWN_MAX {
        return nodes.iter().map(one).collect::<Vec<_>>().join(", ");
    }
    let ready = nodes.iter().filter(|node| fraction(node) >= 1.0).count();
    let last = nodes.iter().min_by(|a, b| fraction(a).total_cmp(&fraction(b)));
    let last = last.map_or_else(String::new, |last| format!(", last {}", one(last)));
    format!("{ready} of {} nodes ready{last}", nodes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(node: u32, state: ReplicaState, bytes_done: u64) -> ReplicaResource {
        ReplicaResource {
            node,
            state,
            bytes_done,
            bytes_total: 100,
            reads_stream: false,
            on_demand: false,
            error: None,
        }
    }

    #[test]
    fn nodes_that_say_the_same_are_named_together() {
        let waiting = |node, error: Option<&str>| ReplicaResource {
            reads_stream: true,
            error: error.map(str::to_owned),
            ..replica(node, ReplicaState::Fetching, 100)
        };
        let mut nodes = vec![
            waiting(1, Some("no topic")),
            waiting(3, Some("no topic")),
            waiting(4, None),
        ];
        nodes.push(replica(5, ReplicaState::Ready, 100));
        let expected = [
            "node 4: reading the stream",
            "nodes 1, 3: waiting for the stream, which cannot be read: no topic",
        ];
        assert_eq!(problems(&nodes), expected);
    }

    #[test]
    fn few_nodes_are_listed_and_of_many_only_the_slowest() {
        let mut nodes = vec![
            replica(1, ReplicaState::Ready, 0),
            replica(2, ReplicaState::Fetching, 45),
            replica(3, ReplicaState::Failed, 10),
        ];
        assert_eq!(nodes_text(&nodes), "node 1 ready, node 2 45 %, node 3 failed");
        nodes.extend((4..20).map(|node| replica(node, ReplicaState::Serving, 0)));
        assert_eq!(nodes_text(&nodes), "17 of 19 nodes ready, last node 3 failed");
    }
}
