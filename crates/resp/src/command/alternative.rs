//! Commands of Redis that there are not here, and what to use in their place.
//!
//! They are unknown commands: `COMMAND` does not list them, and their errors begin as Redis words that. Behind it
//! stands what the reader can do.

/// What to use in the place of a command that Redis has, and this server has not; `None` for other names.
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
            "MULTI and EXEC run commands together, and no condition holds for all of them: read with FONDACO.GET and write with FONDACO.PUT and the context that came with \
             the value: a value that others wrote meanwhile stays beside it"
        }
        "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "script" | "fcall" | "fcall_ro" | "function" => {
            "no scripts run here: compute in the client, and write with SET NX or XX, INCR, or FONDACO.PUT with a context"
        }
        "subscribe" | "psubscribe" | "ssubscribe" | "unsubscribe" | "punsubscribe" | "sunsubscribe" | "publish"
        | "spublish" | "pubsub" => "no messages are passed on here: use a message broker, such as Kafka or a Redis",
        "monitor" => "SLOWLOG GET shows slow requests, INFO commandstats and GET /metrics count all of them",
        "save" | "bgsave" | "bgrewriteaof" | "lastsave" => {
            "data is on disk as each store's durability says; fondaco backup copies it elsewhere"
        }
        "shutdown" => "send the process SIGTERM: it ends in good order",
        "replicaof" | "slaveof" | "failover" | "psync" | "sync" | "replconf" => {
            "replicas follow from the routing table: fondaco rebalance plan shows what would move"
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
        "sadd scard sdiff sdiffstore sinter sintercard sinterstore sismember smembers smismember smove spop srandmember \
         srem sscan sunion sunionstore",
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
        "xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xread xreadgroup xrevrange xsetid xtrim",
        "there are no streams: use a log such as Kafka",
    ),
    (
        "bitcount bitfield bitfield_ro bitop bitpos getbit setbit pfadd pfcount pfdebug pfmerge pfselftest",
        "values are opaque strings: GETRANGE and SETRANGE read and write bytes of them",
    ),
    (
        "geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch \
         geosearchstore",
        "there is no index of places: write a key for each cell of a grid, such as a geohash, and read the cells with MGET",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    #[test]
    fn commands_that_there_are_have_no_alternative() {
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
