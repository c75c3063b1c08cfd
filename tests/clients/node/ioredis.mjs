// ioredis, unmodified, against a fondaco that serves the stores "members" and "carts": `single` or `cluster`.
import Redis, { Cluster } from 'ioredis';
import { ROWS, addresses, assert, key, onePass, survives, value } from './checks.mjs';

async function single() {
    const [{ host, port }] = addresses('FONDACO_RESP');
    const client = new Redis({ host, port, connectionName: 'test', maxRetriesPerRequest: 1 });
    assert.equal(await client.ping(), 'PONG');
    assert.equal(await client.get(key(7)), value(7));
    assert.equal(await client.get('members:nobody'), null);
    assert.deepEqual(await client.mget(key(1), 'members:nobody', key(2)), [value(1), null, value(2)]);
    const pipeline = client.pipeline();
    for (let n = 0; n < 1000; n += 1) pipeline.get(key(n));
    const answers = await pipeline.exec();
    assert.deepEqual(answers.map(([error, found]) => error ?? found), Array.from({ length: 1000 }, (_, n) => value(n)));
    const found = new Set();
    for await (const keys of client.scanStream({ match: 'members:*', count: 500 })) keys.forEach((one) => found.add(one));
    assert.equal(found.size, ROWS);
    await client.del('carts:i', 'carts:in');
    assert.equal(await client.set('carts:i', 'a', 'EX', 100, 'NX'), 'OK');
    assert.equal(await client.set('carts:i', 'b', 'NX'), null);
    assert.ok(await client.ttl('carts:i') > 90);
    assert.equal(await client.append('carts:i', 'bc'), 3);
    assert.equal(await client.getdel('carts:i'), 'abc');
    assert.equal(await client.incrby('carts:in', 5), 5);
    assert.equal(await client.mset('carts:ix', '1', 'carts:iy', '2'), 'OK');
    assert.equal(await client.unlink('carts:ix', 'carts:iy'), 2);
    await assert.rejects(client.set(key(1), 'x'), /^ReplyError: READONLY/);
    await client.quit();
}

async function cluster() {
    const client = new Cluster(addresses('FONDACO_NODES'), {
        scaleReads: 'all',
        slotsRefreshInterval: 1000,
        redisOptions: { connectTimeout: 1000, commandTimeout: 5000 },
    });
    client.on('error', () => {});
    await client.get(key(0));
    assert.equal(client.nodes('all').length, 3);
    // A node counts and lists what it leads for connections of cluster-aware clients, and all keys for others.
    const masters = client.nodes('master');
    await Promise.all(masters.map((node) => node.readwrite()));
    const sizes = await Promise.all(masters.map((node) => node.dbsize()));
    assert.equal(sizes.reduce((sum, size) => sum + size, 0), ROWS);
    const found = [];
    for (const node of masters) {
        for await (const keys of node.scanStream({ match: 'members:*', count: 500 })) found.push(...keys);
    }
    assert.equal(found.length, ROWS);
    assert.equal(new Set(found).size, ROWS);
    await onePass((one) => client.get(one));
    await survives((one) => client.get(one));
    client.disconnect();
}

await { single, cluster }[process.argv[2]]();
