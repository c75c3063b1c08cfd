//! Commands of Redis that this server does not have, and what to use instead.
//!
//! They are unknown commands: `COMMAND` does not list them, and their errors begin like those of Redis. The rest of the
//! error tells the reader what to do.

/// The replacement for a command that only Redis has; `None` for other names.
#[cold]
pub(super) fn alternative(name: &[u8]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let name = std::str::from_utf8(&name).ok()?;
    if let Some(alternative) = exact(name) {
        return Some(alternative);
    }
    OTHER_TYPES
        .iter()
        .find(|(names, _)| names.split(' ').any(|known| known == name))
        .map(|&(_, alternative)| alternative)
}

fn exact(name: &str) -> Option<&'static str> {
    Some(match name {
        "keys" => "SCAN 0 MATCH store:pattern lists keys, a few at a time",
        "watch" | "unwatch" => {
            "MULTI and EXEC run commands together, but without conditions: read with FONDACO.GET, and write with \
             FONDACO.PUT and the context of the value: a value that was written meanwhile stays beside it"
        }
        "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "script" | "fcall" | "fcall_ro" | "function" => {
            "scripts are not supported: compute in the client, and write with SET NX or XX, INCR, or \
             FONDACO.PUT with a context"
        }
        "subscribe" | "psubscribe" | "ssubscribe" | "unsubscribe" | "punsubscribe" | "sunsubscribe" | "publish"
        | "spublish" | "pubsub" => "publish/subscribe is not supported: use a message broker, such as Kafka or Redis",
        "monitor" => "SLOWLOG GET shows slow requests, INFO commandstats and GET /metrics count all of them",
        "save" | "bgsave" | "bgrewriteaof" | "lastsave" => {
            "the durability of each store determines when its data is on disk; fondaco backup copies it elsewhere"
        }
        "shutdown" => "send SIGTERM to the process: it stops cleanly",
        "replicaof" | "slaveof" | "failover" | "psync" | "sync" | "replconf" => {
            "the routing table determines the replicas: fondaco rebalance plan shows what would move"
        }
        "migrate" | "dump" => "fondaco backup and fondaco restore move data between clusters",
        "sort" | "sort_ro" | "lcs" => "values are opaque strings here: sort and compare them in the client",
        "swapdb" => "there is one database: name the store in the key, as store:key",
        "debug" => "fondaco status, fondaco inspect and GET /metrics show the state of a node",
        "waitaof" => "a store with durability fsync answers a write when it is on disk",
        _ => return None,
    })
}

const OTHER_TYPES: [(&str, &str); 7] = [
    (
        "hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hstrlen hvals",
        "values are strings: write a key for each field, as store:key:field, and read them with MGET, or the whole hash \
         as one JSON value with SET",
    ),
    (
        "blmove blmpop blpop brpop brpoplpush lindex linsert llen lmove lmpop lpop lpos lpush lpushx lrange lrem lset \
         ltrim rpop rpoplpush rpush rpushx",
        "values are strings: write the whole list as one JSON value with SET, or use a message broker for a queue",
    ),
    (
        "sadd sdiffstore sintercard sinterstore smove spop srandmember srem sscan sunionstore",
        "values are strings: write the set as a JSON array with SET; a store with resolution set joins arrays that were \
         written at the same time",
    ),
    (
        "bzmpop bzpopmax bzpopmin zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount \
         zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem \
         zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore \
         zunion zunionstore",
        "values are strings: write the ranked list as one JSON value, with SET or by a push",
    ),
    (
        "xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xreadgroup xrevrange xsetid xtrim",
        "streams are not supported: use a log such as Kafka; XREAD alone follows the changes of a store",
    ),
    (
        "bitcount bitfield bitfield_ro bitop bitpos getbit setbit pfadd pfcount pfdebug pfmerge pfselftest",
        "values are opaque strings: GETRANGE and SETRANGE read and write bytes of them",
    ),
    (
        "geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch \
         geosearchstore",
        "geospatial indexes are not supported: write a key for each grid cell, such as a geohash, and read them \
         with MGET",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    #[test]
    fn existing_commands_have_no_alternative() {
        let others = OTHER_TYPES.iter().flat_map(|(names, _)| names.split(' '));
        for name in others.chain(["keys", "eval", "subscribe", "watch", "monitor"]) {
            assert!(find(name.as_bytes()).is_none(), "{name}");
            assert!(alternative(name.to_uppercase().as_bytes()).is_some(), "{name}");
        }
        for name in ["", "get", "nosuch", "h"] {
            assert_eq!(alternative(name.as_bytes()), None, "{name}");
        }
    }
}
