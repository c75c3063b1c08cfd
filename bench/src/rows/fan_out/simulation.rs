//! Queries in simulated time: clients with one event loop each, and nodes with one queue each.
//!
//! The clients' requests are [`Read`]s, as in the client library. An event loop does one thing after the other: it plans and
//! sends requests, and receives answers, each for its costs. A node works on one request after the other. The latency of a
//! request, besides work and queues, is chance. Each query ends, however late.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use fastrand::Rng;
use fondaco_client::ReadOptions;
use fondaco_client::operation::{AskId, Operation};
use fondaco_client::read::{Answer, Element, Read};
use fondaco_ids::Computation;

use super::cluster::{Client, Cluster};
use super::contender::{Contender, Work};
use super::model::{self, Costs, Kind, Network};
use super::outcome::{Outcome, Sample};

/// How often nodes report their rates, and over how many reports these are a mean.
const REPORT_US: u64 = 1_000_000;
const REPORTS: usize = 3;

/// The queries of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Clients that look up single keys and search for common entities, and clients that have a cache of networks.
    pub clients: [usize; 2],
    /// Of all clients together.
    pub queries_per_second: f64,
    /// How many queries are measured.
    pub queries: usize,
    pub traffic: Traffic,
    pub costs: Costs,
    /// Controllers should have settled by then: three time constants of their meters are 15 s.
    pub warm_up_us: u64,
}

/// The kinds of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// The mix of the paper.
    Mix,
    /// Distances, with all networks in the cache.
    Badges,
    /// Searches for common entities that find none.
    Searches,
}

enum Event {
    /// The next query.
    Query,
    /// A request reaches its node.
    Request(Sent),
    /// Its answer reaches the client.
    Reply(Sent),
    /// A timer of a request.
    Timer { run: u64 },
    /// Nodes report their rates.
    Report,
}

/// A request to a node.
#[derive(Clone, Copy)]
struct Sent {
    run: u64,
    client: usize,
    ask: AskId,
    node: usize,
    keys: usize,
    work: Work,
    sent_us: u64,
    /// The node finds what is searched.
    found: bool,
}

/// A query under way, or what it left to do in the background.
struct Run {
    client: usize,
    kind: Kind,
    in_background: bool,
    is_measured: bool,
    began_us: u64,
    slowest_us: u64,
    work: Work,
    read: Read,
    /// The keys of a search whose partitions have what is searched.
    hits: Vec<u32>,
    /// The next requests, the last first.
    next: Vec<(Work, usize)>,
    wake_at_us: u64,
}

struct Loop {
    client: Client,
    options: [ReadOptions; 4],
    hedges: bool,
    free_us: u64,
}

#[derive(Clone, Default)]
struct Node {
    free_us: u64,
    requests: [u32; REPORTS],
}

struct Simulation<'a> {
    cluster: &'a Cluster,
    load: Load,
    random: Rng,
    loops: Vec<Loop>,
    nodes: Vec<Node>,
    runs: HashMap<u64, Run>,
    runs_begun: u64,
    reports: usize,
    /// By time, and in the order in which they were made.
    events: BTreeMap<(u64, u64), Event>,
    events_made: u64,
    queries_begun: usize,
    outcome: Outcome,
}

/// Simulates a load.
pub fn simulate(cluster: &Cluster, contender: Contender, load: Load, seed: u64) -> Result<Outcome> {
    let client = |number: usize| Loop {
        client: cluster.client(seed.wrapping_mul(1000) + number as u64),
        options: [Work::LookUp, Work::Union, Work::Background, Work::Search].map(|work| contender.options(work)),
        hedges: contender == Contender::Hedged,
        free_us: 0,
    };
    let loops: Vec<Loop> = (0..load.clients[0] + load.clients[1]).map(client).collect();
    let nodes = loops.first().map_or(0, |first| first.client.directory.members().len());
    let mut simulation = Simulation {
        cluster,
        load,
        random: Rng::with_seed(seed),
        loops,
        nodes: vec![Node::default(); nodes],
        runs: HashMap::new(),
        runs_begun: 0,
        reports: 0,
        events: BTreeMap::new(),
        events_made: 0,
        queries_begun: 0,
        outcome: Outcome::default(),
    };
    simulation.run()?;
    Ok(simulation.outcome)
}

impl Simulation<'_> {
    fn run(&mut self) -> Result<()> {
        self.at(0, Event::Query);
        self.at(REPORT_US, Event::Report);
        while let Some(((now_us, _), event)) = self.events.pop_first() {
            match event {
                Event::Query => self.query(now_us)?,
                Event::Request(sent) => self.serve(sent, now_us),
                Event::Reply(sent) => self.receive(sent, now_us)?,
                Event::Timer { run } => self.wake(run, now_us)?,
                Event::Report => self.report(now_us),
            }
        }
        debug_assert!(self.runs.is_empty(), "each query ends");
        Ok(())
    }

    fn at(&mut self, time_us: u64, event: Event) {
        self.events.insert((time_us, self.events_made), event);
        self.events_made += 1;
    }

    fn is_over(&self) -> bool {
        self.queries_begun >= self.load.queries
    }

    /// A query arrives at a client, and the next one is on its way.
    fn query(&mut self, now_us: u64) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let pause_us = model::pause_us(self.load.queries_per_second, &mut self.random);
        self.at(now_us + pause_us, Event::Query);
        let is_measured = now_us >= self.load.warm_up_us;
        if is_measured {
            self.queries_begun += 1;
            self.outcome.span_us = now_us - self.load.warm_up_us;
        }
        let (kind, network) = match self.load.traffic {
            Traffic::Mix => (Kind::random(&mut self.random), Network::random(&mut self.random)),
            Traffic::Badges => (Kind::Multi, Network::Cached),
            Traffic::Searches => (Kind::Common, Network::Cached),
        };
        let [plain, caching] = self.load.clients;
        let client = match kind {
            Kind::Multi => plain + self.random.usize(..caching),
            _ => self.random.usize(..plain),
        };
        // The last first.
        let mut steps = match kind {
            Kind::Single => vec![(Work::LookUp, 1)],
            Kind::Multi => vec![(Work::LookUp, self.load.costs.badges(&mut self.random))],
            Kind::Common => vec![(Work::Search, 0)],
        };
        if kind == Kind::Multi && network != Network::Cached {
            let (degree, is_stale) = (model::degree(&mut self.random), network == Network::Stale);
            let union = if is_stale { Work::Background } else { Work::Union };
            let fetch = [(union, degree), (Work::LookUp, 1)];
            match is_stale {
                true => self.begin(client, kind, true, is_measured, fetch.to_vec(), now_us)?,
                false => steps.extend(fetch),
            }
        }
        self.begin(client, kind, false, is_measured, steps, now_us)
    }

    fn begin(
        &mut self,
        client: usize,
        kind: Kind,
        in_background: bool,
        is_measured: bool,
        mut steps: Vec<(Work, usize)>,
        now_us: u64,
    ) -> Result<()> {
        let Some((work, keys)) = steps.pop() else {
            return Ok(());
        };
        let loop_us = self.loops[client].free_us.max(now_us);
        let (read, hits) = self.step(client, work, keys, loop_us)?;
        self.outcome.counts[kind as usize].0 += u64::from(is_measured && !in_background);
        let run = Run {
            client,
            kind,
            in_background,
            is_measured,
            began_us: now_us,
            slowest_us: 0,
            work,
            read,
            hits,
            next: steps,
            wake_at_us: u64::MAX,
        };
        self.runs_begun += 1;
        self.proceed(self.runs_begun, run, loop_us)
    }

    /// Begins a request for this number of keys, or a search.
    fn step(&mut self, client: usize, work: Work, keys: usize, now_us: u64) -> Result<(Read, Vec<u32>)> {
        let keys = match work {
            Work::Search => self.cluster.of_partitions.clone(),
            _ => self.cluster.keys(keys, &mut self.random),
        };
        let hits = match work {
            Work::Search if self.load.traffic == Traffic::Mix => model::common_partitions(&mut self.random),
            _ => 0,
        };
        let hits = (0..hits).map(|_| self.random.u32(..keys.len() as u32)).collect();
        let Loop { client, options, .. } = &self.loops[client];
        let (options, env) = (options[work as usize].clone(), client.env(now_us));
        let read = match work {
            Work::LookUp => Read::start(keys, options, &env),
            Work::Union | Work::Background => Read::compute(keys, Computation::Union, options, &env),
            Work::Search => Read::compute(keys, Computation::Intersection, options, &env),
        };
        Ok((read?, hits))
    }

    /// Sends what a query has to send, begins its next steps, and ends it after the last.
    fn proceed(&mut self, mut id: u64, mut run: Run, mut now_us: u64) -> Result<()> {
        loop {
            now_us = self.send(id, &mut run, now_us);
            if !run.read.is_over() {
                break;
            }
            let Some((work, keys)) = run.next.pop() else {
                self.end(run, now_us);
                return Ok(());
            };
            let (read, hits) = self.step(run.client, work, keys, now_us)?;
            let former = std::mem::replace(&mut run.read, read);
            self.count_share(run.is_measured, former);
            (run.work, run.hits) = (work, hits);
            // Answers to the former step that are still under way must not count for this one.
            self.runs_begun += 1;
            id = self.runs_begun;
        }
        if self.loops[run.client].hedges && run.read.wake_at_us() != run.wake_at_us {
            run.wake_at_us = run.read.wake_at_us();
            self.at(run.wake_at_us, Event::Timer { run: id });
        }
        self.runs.insert(id, run);
        Ok(())
    }

    /// Sends requests, each for its costs. Returns when the event loop is done.
    fn send(&mut self, id: u64, run: &mut Run, mut now_us: u64) -> u64 {
        while let Some(out) = run.read.next_send(&self.loops[run.client].client.env(now_us)) {
            let places = &out.request.places;
            now_us += self.load.costs.client_us(run.work, places.len());
            let sent = Sent {
                run: id,
                client: run.client,
                ask: out.id,
                node: out.node.get() as usize - 1,
                keys: places.len(),
                work: run.work,
                sent_us: now_us,
                found: run.hits.iter().any(|hit| places.contains(hit)),
            };
            self.at(now_us, Event::Request(sent));
            self.outcome.counts[run.kind as usize].1 += u64::from(run.is_measured);
        }
        self.loops[run.client].free_us = now_us;
        now_us
    }

    /// A node works on a request, after those that came before.
    fn serve(&mut self, sent: Sent, now_us: u64) {
        let node = &mut self.nodes[sent.node];
        node.free_us = node.free_us.max(now_us) + self.load.costs.node_us(sent.work, sent.keys);
        node.requests[self.reports % REPORTS] += 1;
        let reply_us = node.free_us + model::latency_us(&mut self.random);
        self.at(reply_us, Event::Reply(sent));
    }

    /// An answer reaches the event loop, and costs it, even if nothing waits for it any more.
    fn receive(&mut self, sent: Sent, now_us: u64) -> Result<()> {
        let Loop { client, free_us, .. } = &mut self.loops[sent.client];
        let loop_us = (*free_us).max(now_us) + self.load.costs.client_us(sent.work, sent.keys);
        *free_us = loop_us;
        client.directory.members()[sent.node].health.heard(loop_us);
        let Some(mut run) = self.runs.remove(&sent.run) else {
            return Ok(());
        };
        run.slowest_us = run.slowest_us.max(now_us - sent.sent_us);
        if sent.found {
            self.end(run, loop_us);
            return Ok(());
        }
        let elements = (0..sent.keys).map(|_| Element::Value(None)).collect();
        let env = client.env(loop_us);
        run.read.on_reply(sent.ask, Answer::Elements(elements), &env);
        self.proceed(sent.run, run, loop_us)
    }

    fn wake(&mut self, id: u64, now_us: u64) -> Result<()> {
        let Some(mut run) = self.runs.remove(&id) else {
            return Ok(());
        };
        let Loop { client, free_us, .. } = &self.loops[run.client];
        let loop_us = (*free_us).max(now_us);
        run.read.on_time(&client.env(loop_us));
        self.proceed(id, run, loop_us)
    }

    /// Nodes report the mean rates of the last seconds.
    fn report(&mut self, now_us: u64) {
        self.reports += 1;
        let reported = self.reports.min(REPORTS) as u32;
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let rate = node.requests.iter().sum::<u32>() / reported;
            node.requests[self.reports % REPORTS] = 0;
            for Loop { client, .. } in &self.loops {
                client.directory.members()[place].health.report_rate(rate);
            }
        }
        if !self.is_over() {
            self.at(now_us + REPORT_US, Event::Report);
        }
    }

    fn end(&mut self, run: Run, now_us: u64) {
        if run.is_measured && !run.in_background {
            self.outcome.samples.push(Sample {
                kind: run.kind,
                latency_us: now_us - run.began_us,
                slowest_us: run.slowest_us,
            });
        }
        if run.kind == Kind::Multi {
            self.count_share(run.is_measured, run.read);
        }
    }

    fn count_share(&mut self, is_measured: bool, read: Read) {
        let keys = read.keys().len();
        if is_measured
            && keys > 1
            && let Ok(reply) = read.finish()
        {
            self.outcome
                .shares
                .push(f64::from(reply.effort.largest_share) / keys as f64 * 100.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::GROUPS;
    use super::super::outcome::quantile_ms;
    use super::*;

    fn load(clients: [usize; 2], queries_per_second: f64, queries: usize) -> Load {
        Load {
            clients,
            queries_per_second,
            queries,
            traffic: Traffic::Mix,
            costs: Costs::default(),
            warm_up_us: 1_000_000,
        }
    }

    #[test]
    fn the_same_seed_has_the_same_outcome_and_every_query_ends() {
        let cluster = Cluster::new(GROUPS).unwrap();
        for contender in [
            Contender::RoundRobin,
            Contender::SetCover,
            Contender::Controlled,
            Contender::Hedged,
        ] {
            let run = |seed| simulate(&cluster, contender, load([2, 1], 40.0, 100), seed).unwrap();
            let (once, again, other) = (run(1), run(1), run(2));
            assert!(once == again, "{contender:?}");
            assert!(once != other, "{contender:?}");
            assert_eq!(once.samples.len(), 100);
        }
    }

    #[test]
    fn queries_queue_at_a_client_that_has_more_than_it_can_do() {
        let cluster = Cluster::new(GROUPS).unwrap();
        let median = |queries_per_second| {
            let load = Load {
                traffic: Traffic::Searches,
                ..load([1, 0], queries_per_second, 300)
            };
            let outcome = simulate(&cluster, Contender::RoundRobin, load, 1).unwrap();
            quantile_ms(&outcome.latencies_us(None), 0.5)
        };
        // 200 requests of 100 µs are 20 ms: 50 queries a second are all that a client can do.
        let (calm, full) = (median(10.0), median(100.0));
        assert!(full > 10.0 * calm, "{full} and {calm} ms");
    }
}
