// node-redis, unmodified, against a fondaco that serves the stores "members" and "carts": `single`, in both versions of the
// protocol, or `cluster`.
import { createClient, createCluster } from 'redis';
import { ROWS, addresses, assert, key, onePass, survives, value } from './checks.mjs';

async function single() {
    for (const RESP of [2, 3]) {
        const [{ host, port }] = addresses('FONDACO_RESP');
        const client = createClient({ socket: { host, port }, RESP, name: 'test' });
        await client.connect();
        assert.equal(await client.ping(), 'PONG');
        assert.equal(await client.get(key(7)), value(7));
        assert.equal(await client.get('members:nobody'), null);
        assert.deepEqual(await client.mGet([key(1), 'members:nobody', key(2)]), [value(1), null, value(2)]);
        // Requests of one turn of the event loop are sent as one pipeline.
        const answers = await Promise.all(Array.from({ length: 1000 }, (_, n) => client.get(key(n))));
        assert.deepEqual(answers, Array.from({ length: 1000 }, (_, n) => value(n)));
        const found = new Set();
        for await (const keys of client.scanIterator({ MATCH: 'members:*', COUNT: 500 })) keys.forEach((one) => found.add(one));
        assert.equal(found.size, ROWS);
        await client.del(['carts:r', 'carts:rn']);
        assert.equal(await client.set('carts:r', 'a', { expiration: { type: 'EX', value: 100 }, condition: 'NX' }), 'OK');
        assert.equal(await client.set('carts:r', 'b', { condition: 'NX' }), null);
        assert.ok(await client.ttl('carts:r') > 90);
        assert.equal(await client.append('carts:r', 'bc'), 3);
        assert.equal(await client.getDel('carts:r'), 'abc');
        assert.equal(await client.incrBy('carts:rn', 5), 5);
        assert.equal(await client.mSet({ 'carts:rx': '1', 'carts:ry': '2' }), 'OK');
        assert.equal(await client.unlink(['carts:rx', 'carts:ry']), 2);
        await assert.rejects(client.set(key(1), 'x'), /READONLY/);
        await client.close();
    }
}

async function cluster() {
    const client = createCluster({
        // With `defaults.socket` and root nodes by URL, version 6.3 never reconnects to a node that it has lost.
        rootNodes: addresses('FONDACO_NODES').map((socket) => ({ socket })),
        // How long it tries to reach a lost node before it requests the slots again from the others.
        topologyRefreshOnReconnectionAttemptStrategy: 500,
    });
    client.on('error', () => {});
    await client.connect();
    assert.equal(client.masters.length, 3);
    await onePass((one) => client.get(one));
    await survives((one) => client.get(one));
    client.destroy();
}

await { single, cluster }[process.argv[2]]();
