// Shared by the two clients for Node: the data that every client of these tests reads, and the death of a node.
import assert from 'node:assert/strict';

export const ROWS = 5000;
/** The longest time in which the cluster and the client must recover from the loss of the node. */
const RECOVERY_MS_MAX = 60_000;
const PASSES_AFTERWARDS = 3;

export const key = (n) => `members:m${n}`;
export const value = (n) => `value of m${n}`;

/** The addresses in an environment variable, as `{ host, port }`. */
export function addresses(variable) {
    return process.env[variable].split(',').map((address) => {
        const [host, port] = address.split(':');
        return { host, port: Number(port) };
    });
}

/** Reads a part of all keys with the client's `get`. */
export async function onePass(get) {
    for (let n = 0; n < ROWS; n += 11) {
        assert.equal(await get(key(n)), value(n));
    }
}

/** Kills a node, reads until every key is answered again, and reads on. */
export async function survives(get) {
    process.kill(Number(process.env.FONDACO_VICTIM), 'SIGKILL');
    const killed = Date.now();
    let failures = 0;
    for (;;) {
        try {
            await onePass(get);
            break;
        } catch (error) {
            if (error instanceof assert.AssertionError || Date.now() - killed > RECOVERY_MS_MAX) throw error;
            failures += 1;
            await new Promise((resolve) => setTimeout(resolve, 100));
        }
    }
    console.log(`all keys again ${((Date.now() - killed) / 1000).toFixed(1)} s after the kill, ${failures} errors before`);
    for (let pass = 0; pass < PASSES_AFTERWARDS; pass += 1) await onePass(get);
}

export { assert };
