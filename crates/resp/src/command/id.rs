//! The identifiers of commands inside the program.

/// A command or subcommand that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandId {
    /// `GET`
    Get,
    /// `MGET`
    MGet,
    /// `GETRANGE`
    GetRange,
    /// `SUBSTR`
    SubStr,
    /// `STRLEN`
    StrLen,
    /// `EXISTS`
    Exists,
    /// `TYPE`
    Type,
    /// `TTL`
    Ttl,
    /// `PTTL`
    PTtl,
    /// `SCAN`
    Scan,
    /// `DBSIZE`
    DbSize,
    /// `SET`
    Set,
    /// `SETNX`
    SetNx,
    /// `SETEX`
    SetEx,
    /// `PSETEX`
    PSetEx,
    /// `MSET`
    MSet,
    /// `MSETNX`
    MSetNx,
    /// `GETSET`
    GetSet,
    /// `GETDEL`
    GetDel,
    /// `GETEX`
    GetEx,
    /// `APPEND`
    Append,
    /// `SETRANGE`
    SetRange,
    /// `INCR`
    Incr,
    /// `INCRBY`
    IncrBy,
    /// `INCRBYFLOAT`
    IncrByFloat,
    /// `DECR`
    Decr,
    /// `DECRBY`
    DecrBy,
    /// `DEL`
    Del,
    /// `UNLINK`
    Unlink,
    /// `EXPIRE`
    Expire,
    /// `PEXPIRE`
    PExpire,
    /// `EXPIREAT`
    ExpireAt,
    /// `PEXPIREAT`
    PExpireAt,
    /// `PERSIST`
    Persist,
    /// `COPY`
    Copy,
    /// `MOVE`
    Move,
    /// `RENAME`
    Rename,
    /// `RENAMENX`
    RenameNx,
    /// `RESTORE`
    Restore,
    /// `FLUSHDB`
    FlushDb,
    /// `FLUSHALL`
    FlushAll,
    /// `PING`
    Ping,
    /// `ECHO`
    Echo,
    /// `SELECT`
    Select,
    /// `AUTH`
    Auth,
    /// `HELLO`
    Hello,
    /// `CLIENT`
    Client,
    /// `CLIENT ID`
    ClientId,
    /// `CLIENT GETNAME`
    ClientGetName,
    /// `CLIENT SETNAME`
    ClientSetName,
    /// `CLIENT SETINFO`
    ClientSetInfo,
    /// `CLIENT INFO`
    ClientInfo,
    /// `CLIENT LIST`
    ClientList,
    /// `CLIENT KILL`
    ClientKill,
    /// `CLIENT NO-EVICT`
    ClientNoEvict,
    /// `CLIENT NO-TOUCH`
    ClientNoTouch,
    /// `CLIENT REPLY`
    ClientReply,
    /// `CLIENT HELP`
    ClientHelp,
    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,
    /// `RESET`
    Reset,
    /// `QUIT`
    Quit,
    /// `INFO`
    Info,
    /// `CONFIG`
    Config,
    /// `CONFIG GET`
    ConfigGet,
    /// `CONFIG SET`
    ConfigSet,
    /// `CONFIG RESETSTAT`
    ConfigResetStat,
    /// `CONFIG HELP`
    ConfigHelp,
    /// `COMMAND`
    Command,
    /// `COMMAND COUNT`
    CommandCount,
    /// `COMMAND DOCS`
    CommandDocs,
    /// `COMMAND INFO`
    CommandInfo,
    /// `COMMAND LIST`
    CommandList,
    /// `COMMAND GETKEYS`
    CommandGetKeys,
    /// `COMMAND HELP`
    CommandHelp,
    /// `CLUSTER`
    Cluster,
    /// `CLUSTER SLOTS`
    ClusterSlots,
    /// `CLUSTER SHARDS`
    ClusterShards,
    /// `CLUSTER NODES`
    ClusterNodes,
    /// `CLUSTER INFO`
    ClusterInfo,
    /// `CLUSTER MYID`
    ClusterMyId,
    /// `CLUSTER MYSHARDID`
    ClusterMyShardId,
    /// `CLUSTER KEYSLOT`
    ClusterKeySlot,
    /// `CLUSTER REPLICAS`
    ClusterReplicas,
    /// `CLUSTER SLAVES`
    ClusterSlaves,
    /// `CLUSTER LINKS`
    ClusterLinks,
    /// `CLUSTER COUNTKEYSINSLOT`
    ClusterCountKeysInSlot,
    /// `CLUSTER GETKEYSINSLOT`
    ClusterGetKeysInSlot,
    /// `CLUSTER HELP`
    ClusterHelp,
    /// `READONLY`
    ReadOnly,
    /// `READWRITE`
    ReadWrite,
    /// `ASKING`
    Asking,
    /// `FONDACO.READ`
    FondacoRead,
    /// `FONDACO.COMPUTE`
    FondacoCompute,
    /// `FONDACO.MGET`
    FondacoMGet,
    /// `FONDACO.MSCORE`
    FondacoMScore,
    /// `FONDACO.IDS`
    FondacoIds,
    /// `FONDACO.GRAPH`
    FondacoGraph,
    /// `FONDACO.EDGE`
    FondacoEdge,
    /// `FONDACO.VERTEX`
    FondacoVertex,
    /// `GRAPH.QUERY`
    GraphQuery,
    /// `GRAPH.RO_QUERY`
    GraphRoQuery,
    /// `GRAPH.EXPLAIN`
    GraphExplain,
    /// `GRAPH.PROFILE`
    GraphProfile,
    /// `GRAPH.LIST`
    GraphList,
    /// `SMEMBERS`
    SMembers,
    /// `SCARD`
    SCard,
    /// `SISMEMBER`
    SIsMember,
    /// `SMISMEMBER`
    SMIsMember,
    /// `SUNION`
    SUnion,
    /// `SINTER`
    SInter,
    /// `SDIFF`
    SDiff,
    /// `XREAD`
    XRead,
    /// `FONDACO.SCAN`
    FondacoScan,
    /// `FONDACO.EXPIRY`
    FondacoExpiry,
    /// `FONDACO.APPLIED`
    FondacoApplied,
    /// `FONDACO.TOPOLOGY`
    FondacoTopology,
    /// `FONDACO.TRACE`
    FondacoTrace,
    /// `FONDACO.NONCE`
    FondacoNonce,
    /// `FONDACO.PROVE`
    FondacoProve,
    /// `FONDACO.GET`
    FondacoGet,
    /// `FONDACO.PUT`
    FondacoPut,
    /// `FONDACO.DEL`
    FondacoDel,
    /// `FONDACO.UPDATE`
    FondacoUpdate,
    /// `FONDACO.RGET`
    FondacoRGet,
    /// `FONDACO.RPUT`
    FondacoRPut,
    /// `FONDACO.RMERGE`
    FondacoRMerge,
    /// `FONDACO.RHINT`
    FondacoRHint,
    /// `FONDACO.RTREE`
    FondacoRTree,
    /// `FONDACO.RSYNC`
    FondacoRSync,
    /// `FONDACO.RHINTS`
    FondacoRHints,
    /// `TOUCH`
    Touch,
    /// `EXPIRETIME`
    ExpireTime,
    /// `PEXPIRETIME`
    PExpireTime,
    /// `RANDOMKEY`
    RandomKey,
    /// `OBJECT`
    Object,
    /// `OBJECT ENCODING`
    ObjectEncoding,
    /// `OBJECT FREQ`
    ObjectFreq,
    /// `OBJECT IDLETIME`
    ObjectIdleTime,
    /// `OBJECT REFCOUNT`
    ObjectRefCount,
    /// `OBJECT HELP`
    ObjectHelp,
    /// `TIME`
    Time,
    /// `ROLE`
    Role,
    /// `WAIT`
    Wait,
    /// `SLOWLOG`
    SlowLog,
    /// `SLOWLOG GET`
    SlowLogGet,
    /// `SLOWLOG LEN`
    SlowLogLen,
    /// `SLOWLOG RESET`
    SlowLogReset,
    /// `SLOWLOG HELP`
    SlowLogHelp,
    /// `LATENCY`
    Latency,
    /// `LATENCY HISTOGRAM`
    LatencyHistogram,
    /// `LATENCY LATEST`
    LatencyLatest,
    /// `LATENCY HELP`
    LatencyHelp,
    /// `ACL`
    Acl,
    /// `ACL WHOAMI`
    AclWhoAmI,
    /// `ACL LIST`
    AclList,
    /// `ACL CAT`
    AclCat,
    /// `ACL HELP`
    AclHelp,
    /// `MODULE`
    Module,
    /// `MODULE LIST`
    ModuleList,
    /// `MODULE HELP`
    ModuleHelp,
    /// `MEMORY`
    Memory,
    /// `MEMORY USAGE`
    MemoryUsage,
    /// `MEMORY HELP`
    MemoryHelp,
    /// `FONDACO.SIZE`
    FondacoSize,
}
