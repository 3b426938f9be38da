//! What the value of a command's first element is, whose name is the command's; and which commands carry secrets.
//!
//! Source: MongoDB's manual, "Database Commands"; specifications of its drivers, "Authentication", "OP_COMPRESSED"
//! (commands that are never compressed, since they carry what proves who asks).

/// What a command's own value says of what it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The collection.
    Collection,
    /// Database and collection.
    Namespace,
    /// Another command, which is explained.
    Command,
    /// The number of a cursor.
    Cursor,
    /// Nothing, or what a user sent.
    Nothing,
}

const OF_COLLECTIONS: &[&[u8]] = &[
    b"find",
    b"insert",
    b"update",
    b"delete",
    b"aggregate",
    b"count",
    b"distinct",
    b"findAndModify",
    b"findandmodify",
    b"mapReduce",
    b"mapreduce",
    b"create",
    b"drop",
    b"createIndexes",
    b"dropIndexes",
    b"deleteIndexes",
    b"listIndexes",
    b"reIndex",
    b"collMod",
    b"collStats",
    b"collstats",
    b"validate",
    b"compact",
    b"convertToCapped",
    b"killCursors",
    b"planCacheClear",
    b"createSearchIndexes",
    b"updateSearchIndex",
    b"dropSearchIndex",
];
const OF_NAMESPACES: &[&[u8]] = &[
    b"renameCollection",
    b"shardCollection",
    b"reshardCollection",
    b"moveCollection",
    b"moveChunk",
    b"split",
    b"dataSize",
    b"datasize",
    b"analyzeShardKey",
];
const WITH_SECRETS: &[&[u8]] = &[
    b"saslStart",
    b"saslContinue",
    b"authenticate",
    b"getnonce",
    b"createUser",
    b"updateUser",
    b"copydb",
    b"copydbgetnonce",
    b"copydbsaslstart",
];
/// Elements of commands and of answers that carry secrets.
const SECRET_ELEMENTS: &[&[u8]] = &[b"speculativeAuthenticate", b"payload", b"nonce"];
/// Longest name of a command.
const LONGEST: usize = 48;

pub const GET_MORE: &[u8] = b"getMore";
pub const FIND: &[u8] = b"find";
pub const AGGREGATE: &[u8] = b"aggregate";

/// What the value of this command says.
pub fn names(command: &[u8]) -> Names {
    match command {
        b"explain" => Names::Command,
        GET_MORE => Names::Cursor,
        _ if OF_COLLECTIONS.contains(&command) => Names::Collection,
        _ if OF_NAMESPACES.contains(&command) => Names::Namespace,
        _ => Names::Nothing,
    }
}

/// Whether a name may be a command's.
pub fn is_name(name: &[u8]) -> bool {
    let is_own = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    (1..=LONGEST).contains(&name.len()) && name.iter().all(is_own)
}

/// Whether a command asks who a server is; a server may keep the answer until that changes.
pub fn is_hello(command: &[u8]) -> bool {
    matches!(command, b"hello" | b"isMaster" | b"ismaster")
}

/// Whether a command, or what it is answered, proves who asks, or sets a password.
pub fn carries_secrets(command: &[u8]) -> bool {
    WITH_SECRETS.contains(&command)
}

/// Whether an element of any command or answer does.
pub fn is_secret_element(name: &[u8]) -> bool {
    SECRET_ELEMENTS.contains(&name)
}
