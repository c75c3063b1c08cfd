// The load of the last hour, as nodes reported it. Bounded: an hour, and a number of samples for each node.

import { get } from './api.js';

export const HISTORY_MS = 3600000;
const SAMPLES_MAX = 3700;
const PLOT_MS_MIN = 60000;
const OVERLAP_MS = 60000;

const nodes = new Map(); // number → samples, oldest first

/// Asks for what is new, and returns the map of all nodes' samples.
export async function update() {
  const newest = Math.max(0, ...[...nodes.values()].map((samples) => samples.at(-1).at_unix_ms));
  const answer = await get(`/v1/load/history?since=${Math.max(0, newest - OVERLAP_MS)}`);
  let latest = newest;
  for (const { node, samples } of answer.nodes) {
    const kept = nodes.get(node) ?? [];
    const last = kept.at(-1)?.at_unix_ms ?? 0;
    kept.push(...samples.filter(({ at_unix_ms }) => at_unix_ms > last));
    if (kept.length > 0) nodes.set(node, kept);
    latest = Math.max(latest, kept.at(-1)?.at_unix_ms ?? 0);
  }
  for (const [node, samples] of nodes) {
    const first = samples.findIndex(({ at_unix_ms }) => at_unix_ms > latest - HISTORY_MS);
    if (first < 0) nodes.delete(node);
    else samples.splice(0, Math.max(first, samples.length - SAMPLES_MAX));
  }
  return nodes;
}

/// The time of the latest sample: the clock of the plots.
export const latest = () => Math.max(0, ...[...nodes.values()].map((samples) => samples.at(-1).at_unix_ms));

/// Where plots of the last hour begin: with the first sample, but at least a minute ago.
export const beginning = () => Math.max(latest() - HISTORY_MS, Math.min(latest() - PLOT_MS_MIN, ...[...nodes.values()].map((samples) => samples[0].at_unix_ms)));

/// A line for each node: `value` of a sample's load over time.
export const byNode = (value, only = null) => [...nodes]
  .filter(([node]) => only === null || node === only)
  .sort(([a], [b]) => a - b)
  .map(([node, samples]) => ({ name: `node ${node}`, colour: node, points: samples.map((sample) => [sample.at_unix_ms, value(sample.load)]) }));

/// A line for each store, all nodes together: nodes report at different times, so their means in steps are joined
/// by `join`, which gets the means and returns a number.
export function byStore(field, join, step_ms, only = null) {
  const stores = new Map(); // store → step → node → [sum, count]
  for (const [node, samples] of nodes) {
    for (const sample of samples) {
      const step = Math.floor(sample.at_unix_ms / step_ms);
      for (const store of sample.stores) {
        if (only !== null && store.store !== only) continue;
        const steps = at(stores, store.store);
        const mean = at(at(steps, step), node, () => [0, 0]);
        mean[0] += store[field];
        mean[1] += 1;
      }
    }
  }
  const end = Math.floor(latest() / step_ms); // this step is not complete yet
  return [...stores].sort(([a], [b]) => a.localeCompare(b)).map(([name, steps], index) => ({
    name, colour: index + 1,
    points: [...steps].filter(([step]) => step < end).sort(([a], [b]) => a - b)
      .map(([step, means]) => [(step + 0.5) * step_ms, join([...means.values()].map(([sum, times]) => sum / times))]),
  }));
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const most = (values) => Math.max(0, ...values);

function at(map, key, make = () => new Map()) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}
