//! Latencies of reads against the time since a swap, of a store that is larger than the memory.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::runner::Running;
use super::super::spec::Step;
use super::node_death::percentile_us;
use crate::dataset::elsewhere::Elsewhere;
use crate::load::Group;
use crate::servers::control::PUSH_LIMIT;

/// How long reads go on before the push. The second half counts: the memory holds other things when they begin.
const BEFORE: Duration = Duration::from_secs(20);
/// How long reads go on after the swap. Both are a fifth of that in a quick run.
const AFTERWARDS: Duration = Duration::from_secs(60);
/// The ends of the windows since the swap, in seconds of a whole run: names of figures.
const WINDOWS: [f64; 7] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// Reads while the prepared version is pushed to its store, the first argument, with the options that the others are, and for a minute
/// after its swap. Records the latencies before the push, in windows since the swap (`NAME 0.5 s p50`), and of the whole minute; the
/// duration of the push; and what look-ups read from its source.
pub fn measure(running: &mut Running<'_>, step: &Step) -> Result<()> {
    let (store, options) = step.arguments.split_first().context("a push needs a store")?;
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let round = running.round;
    let scale = if running.bench.quick { 0.2 } else { 1.0 };
    let (before, after) = (BEFORE.mul_f64(scale), AFTERWARDS.mul_f64(scale));
    let group = Group {
        keep_each: true,
        ..running.groups(step)?.swap_remove(0)
    };
    let source = running.kept.source.as_ref().map(Elsewhere::path);
    let (source, control) = (source.context("no version is prepared")?, running.control()?);
    let counters =
        || -> Result<[u64; 2]> { Ok([control.counter("warmed_bytes")?, control.counter("on_demand_bytes")?]) };
    let counted_before = counters()?;
    let work = || {
        thread::sleep(before);
        let began = Instant::now();
        control.deploy(store, source, &options)?;
        let swapped = Instant::now();
        thread::sleep(after);
        Ok((began, swapped))
    };
    let (report, (began, swapped)) = group.during(PUSH_LIMIT, round, work)?;
    let counted = counters()?;
    let megabytes = |at: usize| (counted[at] - counted_before[at]) as f64 / 1e6;
    let within = |from: Instant, to: Instant| -> Result<[f64; 2]> {
        let those = report.each.iter().filter(|request| (from..to).contains(&request.due));
        let latencies: Vec<Duration> = those.map(|request| request.latency).collect();
        ensure!(!latencies.is_empty(), "no request was due in a window");
        Ok([0.5, 0.99].map(|quantile| percentile_us(latencies.clone(), quantile)))
    };
    let name = &step.name;
    let mut spans = vec![
        ("before".to_owned(), within(began - before / 2, began)?),
        ("push".to_owned(), within(began, swapped)?),
        ("minute".to_owned(), within(swapped, swapped + after)?),
    ];
    let mut from = 0.0;
    for end in WINDOWS {
        let at = |seconds: f64| swapped + Duration::from_secs_f64(seconds * scale);
        spans.push((format!("{end} s"), within(at(from), at(end))?));
        from = end;
    }
    for (span, [p50, p99]) in spans {
        running.record(&format!("{name} {span}"), [("p50", "µs", p50), ("p99", "µs", p99)]);
    }
    let took = (swapped - began).as_secs_f64();
    let values = [
        ("push", "s", took),
        ("warmed", "MB", megabytes(0)),
        ("on demand", "MB", megabytes(1)),
    ];
    running.record(name, values);
    Ok(())
}
