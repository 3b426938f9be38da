//! What is known of Redis' commands: where a command has its first key, and which ones hold secrets, mark streams, or
//! are not answered.
//!
//! Source: `COMMAND` of Redis 7.0.15 (place of the first key) and the command reference for later ones.

use crate::name_index::NameIndex;

/// Where the first key is among a command's words, of which word 0 is the command's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// It has none, or it may be a secret.
    None,
    At(u32),
    /// The word at the first place says how many keys follow it.
    Counted(u32),
    /// Behind the word `STREAMS`.
    Streams,
}

/// How a command's words are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Its second word says what is done, as in `CONFIG GET`.
    pub has_subcommand: bool,
    pub key: KeyPlace,
}

const FIRST: Command = plain(KeyPlace::At(1));
/// A command that is not known; what follows its name may be anything.
pub(super) const UNKNOWN: Command = plain(KeyPlace::None);

const fn plain(key: KeyPlace) -> Command {
    Command {
        has_subcommand: false,
        key,
    }
}

const fn with_subcommand(key: KeyPlace) -> Command {
    Command {
        has_subcommand: true,
        key,
    }
}

/// Names of commands, ascending, that have no key or not as their first argument.
const OTHERS: &[(&[u8], Command)] = &[
    (b"ACL", with_subcommand(KeyPlace::None)),
    (b"ASKING", UNKNOWN),
    (b"AUTH", UNKNOWN),
    (b"BGREWRITEAOF", UNKNOWN),
    (b"BGSAVE", UNKNOWN),
    (b"BITOP", plain(KeyPlace::At(2))),
    (b"BLMPOP", plain(KeyPlace::Counted(2))),
    (b"BZMPOP", plain(KeyPlace::Counted(2))),
    (b"CLIENT", with_subcommand(KeyPlace::None)),
    (b"CLUSTER", with_subcommand(KeyPlace::None)),
    (b"COMMAND", with_subcommand(KeyPlace::None)),
    (b"CONFIG", with_subcommand(KeyPlace::None)),
    (b"DBSIZE", UNKNOWN),
    (b"DEBUG", with_subcommand(KeyPlace::None)),
    (b"DISCARD", UNKNOWN),
    (b"ECHO", UNKNOWN),
    (b"EVAL", plain(KeyPlace::Counted(2))),
    (b"EVALSHA", plain(KeyPlace::Counted(2))),
    (b"EVALSHA_RO", plain(KeyPlace::Counted(2))),
    (b"EVAL_RO", plain(KeyPlace::Counted(2))),
    (b"EXEC", UNKNOWN),
    (b"FAILOVER", UNKNOWN),
    (b"FCALL", plain(KeyPlace::Counted(2))),
    (b"FCALL_RO", plain(KeyPlace::Counted(2))),
    (b"FLUSHALL", UNKNOWN),
    (b"FLUSHDB", UNKNOWN),
    (b"FUNCTION", with_subcommand(KeyPlace::None)),
    (b"HELLO", UNKNOWN),
    (b"INFO", UNKNOWN),
    (b"KEYS", UNKNOWN),
    (b"LASTSAVE", UNKNOWN),
    (b"LATENCY", with_subcommand(KeyPlace::None)),
    (b"LMPOP", plain(KeyPlace::Counted(1))),
    (b"LOLWUT", UNKNOWN),
    (b"MEMORY", with_subcommand(KeyPlace::At(2))),
    (b"MIGRATE", UNKNOWN),
    (b"MODULE", with_subcommand(KeyPlace::None)),
    (b"MONITOR", UNKNOWN),
    (b"MULTI", UNKNOWN),
    (b"OBJECT", with_subcommand(KeyPlace::At(2))),
    (b"PING", UNKNOWN),
    (b"PSUBSCRIBE", UNKNOWN),
    (b"PSYNC", UNKNOWN),
    (b"PUBLISH", UNKNOWN),
    (b"PUBSUB", with_subcommand(KeyPlace::None)),
    (b"PUNSUBSCRIBE", UNKNOWN),
    (b"QUIT", UNKNOWN),
    (b"RANDOMKEY", UNKNOWN),
    (b"READONLY", UNKNOWN),
    (b"READWRITE", UNKNOWN),
    (b"REPLCONF", with_subcommand(KeyPlace::None)),
    (b"REPLICAOF", UNKNOWN),
    (b"RESET", UNKNOWN),
    (b"ROLE", UNKNOWN),
    (b"SAVE", UNKNOWN),
    (b"SCAN", UNKNOWN),
    (b"SCRIPT", with_subcommand(KeyPlace::None)),
    (b"SELECT", UNKNOWN),
    (b"SENTINEL", with_subcommand(KeyPlace::None)),
    (b"SHUTDOWN", UNKNOWN),
    (b"SINTERCARD", plain(KeyPlace::Counted(1))),
    (b"SLAVEOF", UNKNOWN),
    (b"SLOWLOG", with_subcommand(KeyPlace::None)),
    (b"SUBSCRIBE", UNKNOWN),
    (b"SWAPDB", UNKNOWN),
    (b"SYNC", UNKNOWN),
    (b"TIME", UNKNOWN),
    (b"UNSUBSCRIBE", UNKNOWN),
    (b"UNWATCH", UNKNOWN),
    (b"WAIT", UNKNOWN),
    (b"WAITAOF", UNKNOWN),
    (b"XGROUP", with_subcommand(KeyPlace::At(2))),
    (b"XINFO", with_subcommand(KeyPlace::At(2))),
    (b"XREAD", plain(KeyPlace::Streams)),
    (b"XREADGROUP", plain(KeyPlace::Streams)),
    (b"ZDIFF", plain(KeyPlace::Counted(1))),
    (b"ZINTER", plain(KeyPlace::Counted(1))),
    (b"ZINTERCARD", plain(KeyPlace::Counted(1))),
    (b"ZMPOP", plain(KeyPlace::Counted(1))),
    (b"ZUNION", plain(KeyPlace::Counted(1))),
];

/// Names of commands, ascending, whose first argument is a key, or a channel of a shard.
#[rustfmt::skip]
const KEYED: &[&[u8]] = &[
    b"APPEND", b"BITCOUNT", b"BITFIELD", b"BITFIELD_RO", b"BITPOS", b"BLMOVE", b"BLPOP", b"BRPOP", b"BRPOPLPUSH",
    b"BZPOPMAX", b"BZPOPMIN", b"COPY", b"DECR", b"DECRBY", b"DEL", b"DUMP", b"EXISTS", b"EXPIRE", b"EXPIREAT",
    b"EXPIRETIME", b"GEOADD", b"GEODIST", b"GEOHASH", b"GEOPOS", b"GEORADIUS", b"GEORADIUSBYMEMBER",
    b"GEORADIUSBYMEMBER_RO", b"GEORADIUS_RO", b"GEOSEARCH", b"GEOSEARCHSTORE", b"GET", b"GETBIT", b"GETDEL", b"GETEX",
    b"GETRANGE", b"GETSET", b"HDEL", b"HEXISTS", b"HEXPIRE", b"HEXPIREAT", b"HEXPIRETIME", b"HGET", b"HGETALL",
    b"HGETDEL", b"HGETEX", b"HINCRBY", b"HINCRBYFLOAT", b"HKEYS", b"HLEN", b"HMGET", b"HMSET", b"HPERSIST",
    b"HPEXPIRE", b"HPEXPIREAT", b"HPEXPIRETIME", b"HPTTL", b"HRANDFIELD", b"HSCAN", b"HSET", b"HSETEX", b"HSETNX",
    b"HSTRLEN", b"HTTL", b"HVALS", b"INCR", b"INCRBY", b"INCRBYFLOAT", b"LCS", b"LINDEX", b"LINSERT", b"LLEN",
    b"LMOVE", b"LPOP", b"LPOS", b"LPUSH", b"LPUSHX", b"LRANGE", b"LREM", b"LSET", b"LTRIM", b"MGET", b"MOVE", b"MSET",
    b"MSETNX", b"PERSIST", b"PEXPIRE", b"PEXPIREAT", b"PEXPIRETIME", b"PFADD", b"PFCOUNT", b"PFMERGE", b"PSETEX",
    b"PTTL", b"RENAME", b"RENAMENX", b"RESTORE", b"RESTORE-ASKING", b"RPOP", b"RPOPLPUSH", b"RPUSH", b"RPUSHX",
    b"SADD", b"SCARD", b"SDIFF", b"SDIFFSTORE", b"SET", b"SETBIT", b"SETEX", b"SETNX", b"SETRANGE", b"SINTER",
    b"SINTERSTORE", b"SISMEMBER", b"SMEMBERS", b"SMISMEMBER", b"SMOVE", b"SORT", b"SORT_RO", b"SPOP", b"SPUBLISH",
    b"SRANDMEMBER", b"SREM", b"SSCAN", b"SSUBSCRIBE", b"STRLEN", b"SUBSTR", b"SUNION", b"SUNIONSTORE",
    b"SUNSUBSCRIBE", b"TOUCH", b"TTL", b"TYPE", b"UNLINK", b"WATCH", b"XACK", b"XACKDEL", b"XADD", b"XAUTOCLAIM",
    b"XCLAIM", b"XDEL", b"XDELEX", b"XLEN", b"XPENDING", b"XRANGE", b"XREVRANGE", b"XSETID", b"XTRIM", b"ZADD",
    b"ZCARD", b"ZCOUNT", b"ZDIFFSTORE", b"ZINCRBY", b"ZINTERSTORE", b"ZLEXCOUNT", b"ZMSCORE", b"ZPOPMAX", b"ZPOPMIN",
    b"ZRANDMEMBER", b"ZRANGE", b"ZRANGEBYLEX", b"ZRANGEBYSCORE", b"ZRANGESTORE", b"ZRANK", b"ZREM", b"ZREMRANGEBYLEX",
    b"ZREMRANGEBYRANK", b"ZREMRANGEBYSCORE", b"ZREVRANGE", b"ZREVRANGEBYLEX", b"ZREVRANGEBYSCORE", b"ZREVRANK",
    b"ZSCAN", b"ZSCORE", b"ZUNIONSTORE",
];

const OTHER_NAMES: [&[u8]; OTHERS.len()] = {
    let (mut names, mut at) = ([b"" as &[u8]; OTHERS.len()], 0);
    while at < names.len() {
        names[at] = OTHERS[at].0;
        at += 1;
    }
    names
};

static KEYED_INDEX: NameIndex<512> = NameIndex::new(KEYED);
static OTHERS_INDEX: NameIndex<256> = NameIndex::new(&OTHER_NAMES);

/// What is known of the command of this name, in capitals; `None` if it is not known.
pub(super) fn find(name: &[u8]) -> Option<Command> {
    if KEYED_INDEX.find(KEYED, name).is_some() {
        return Some(FIRST);
    }
    OTHERS_INDEX.find(&OTHER_NAMES, name).map(|place| OTHERS[place].1)
}

/// Whether the name of a command that is not known may be shown. Operators rename commands to secret words; modules'
/// commands are named by short words without digits.
pub(super) fn may_be_shown(name: &[u8]) -> bool {
    name.len() <= 20
        && name
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_each_is_listed_once() {
        assert!(KEYED.is_sorted_by(|one, next| one < next));
        assert!(OTHERS.is_sorted_by(|one, next| one.0 < next.0));
        assert!(OTHERS.iter().all(|(name, _)| KEYED.binary_search(name).is_err()));
    }

    #[test]
    fn a_key_is_where_the_reference_says() {
        assert_eq!(find(b"GET"), Some(FIRST));
        assert_eq!(find(b"EVAL").map(|one| one.key), Some(KeyPlace::Counted(2)));
        assert_eq!(find(b"MIGRATE"), Some(UNKNOWN));
        assert_eq!(find(b"get"), None, "names are compared in capitals");
        assert_eq!(find(b""), None);
    }
}
