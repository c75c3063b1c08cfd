// A development cluster, and what tests do to it without a browser.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const { FONDACO, CONSOLE_WORK: WORK } = process.env;
export const TOKEN = 'the token of the tests';
export const NODES = [1, 2, 3, 4];
export const PARTITIONS = 16;
export const USERS = { ann: 'admin', otto: 'operator', vera: 'viewer' };
export const passwordOf = (user) => `${user} has a password`;

const START_MS_MAX = 60000;

let running = null;
export let origin = null;
let port = 0;
let members = [];

process.on('exit', () => running?.kill('SIGKILL'));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

/// Waits until `condition` returns something, for `ms` at most, and returns that.
export async function until(what, condition, ms = 15000) {
  const end = Date.now() + ms;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`timeout: ${what}`);
    await sleep(50);
  }
}

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const found = server.address().port;
  server.close();
  await once(server, 'close');
  return found;
}

/// Starts the cluster with the data that it had, at the same address, and waits until its nodes are there.
export async function start() {
  port ||= await freePort();
  const options = ['--nodes', '4', '--zones', '2', '--partitions', String(PARTITIONS), '--loops', '1', '--controllers', '1', '--token', TOKEN];
  running = spawn(FONDACO, ['dev', '--data', `${WORK}/data`, ...options, '--resp', '127.0.0.1:0', '--http', `127.0.0.1:${port}`, '--json', '--log', 'error'],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  running.stdout.on('data', (data) => { text += data; });
  await until('the cluster serves', () => {
    if (running.exitCode !== null) throw new Error(`fondaco ended: ${running.exitCode}`);
    return /^\}/m.test(text);
  }, START_MS_MAX);
  ({ members } = JSON.parse(text));
  origin = `http://127.0.0.1:${port}`;
  await until('all nodes are live', async () => {
    const cluster = await api('GET', '/v1/cluster').catch(() => null);
    return cluster?.routing_epoch && cluster.nodes.filter(({ live }) => live).length === NODES.length;
  }, START_MS_MAX);
}

export async function stop(signal = 'SIGTERM') {
  if (!running) return;
  const ended = running.exitCode === null ? once(running, 'exit') : null;
  running.kill(signal);
  await ended;
  running = null;
}

/// A request with the token.
export async function api(method, path, body) {
  const response = await fetch(`${origin}${path}`, {
    method, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.timeout(20000),
    headers: { authorization: `Bearer ${TOKEN}`, ...(body !== undefined && { 'content-type': 'application/json' }) },
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? null : JSON.parse(text);
}

/// The command line.
export const fondaco = (...parameters) => promisify(execFile)(FONDACO, parameters, { env: { ...process.env, FONDACO_HTTP: `127.0.0.1:${port}`, FONDACO_TOKEN: TOKEN, TMPDIR: WORK } });

/// Builds a version of a store of `rows` records, and returns its URL.
export async function build(store, name, rows, text) {
  mkdirSync(`${WORK}/versions`, { recursive: true });
  const lines = ['id,text'];
  for (let id = 0; id < rows; id += 1) lines.push(`${id},${text} ${id} ${'.'.repeat(150)}`);
  writeFileSync(`${WORK}/${name}.csv`, `${lines.join('\n')}\n`);
  await fondaco('build', store, `${WORK}/${name}.csv`, '--key', 'id', '--value', 'text', '--partitions', String(PARTITIONS), '--output', `${WORK}/versions/${name}`);
  return `file://${WORK}/versions/${name}`;
}

/// Pushes a version and waits until it serves.
export async function push(store, source) {
  await api('POST', `/v1/stores/${store}/pushes`, { source });
  await until(`the push to ${store} ends`, async () => {
    const { state, error } = await api('GET', `/v1/stores/${store}/push`);
    if (state === 'failed') throw new Error(`the push to ${store} failed: ${error}`);
    return state === 'swapped';
  });
}

/// What all tests find: three users, stores, settings under which things happen in seconds.
export async function furnish() {
  for (const [user, role] of Object.entries(USERS)) {
    await api('PUT', `/v1/users/${user}`, { password: passwordOf(user), stores: ['*'], writes: [], admin: false, role });
  }
  // The machine may be busy: that is no reason to move anything.
  await api('PATCH', '/v1/settings', { 'balance-window-ms': 5000, 'balance-mode': 1, 'balance-cpu-percent': 100, 'balance-memory-percent': 100, 'balance-disk-percent': 100 });
  await api('POST', '/v1/stores', { name: 'feed', kind: 'batch', backups: 2 });
  await api('POST', '/v1/stores', { name: 'carts', kind: 'versioned', versioned: { reads: 1, writes: 1 } });
  await push('feed', await build('feed', 'feed-1', 5000, 'first'));
}

const member = (name) => members.find((one) => one.name === name);

/// Asks a node again and again for a hot key and others, until the returned function is called.
export function ask(keys, node = 'node-1') {
  const [host, at] = member(node).resp.split(':');
  const socket = net.connect({ host, port: Number(at) });
  socket.on('error', () => {}).on('data', () => {});
  const request = keys.map((key) => `*2\r\n$3\r\nGET\r\n$${Buffer.byteLength(key)}\r\n${key}\r\n`).join('');
  const timer = setInterval(() => socket.write(request), 20);
  return () => {
    clearInterval(timer);
    socket.destroy();
  };
}
