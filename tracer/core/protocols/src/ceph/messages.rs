//! Messages: their types, which of them ask and which answer, and what they ask for.
//!
//! ```text
//! segment 0: seq │ tid │ type │ priority │ version │ …      the header, 41 bytes
//! segment 1: the front, which depends on the type: object, operations, result
//! segment 3: data; of it only the names of a called class and method are read
//! ```
//! A request and its answer have the same tid. Who sends a request chooses its tid, so both ends of a connection may
//! use the same ones.
//!
//! | type | named by | also |
//! |---|---|---|
//! | osd_op | its operations, and pool and name of the object | id |
//! | osd_repop, ec-write, ec-read | the type, and pool and name of the object | id |
//! | mon_command | its prefix | |
//! | others | the type | |
//!
//! # The id
//! A replica's message has the id of the client's operation, `client.4123.0:57`. The operation itself lacks the client's
//! name: that is said once, when the connection begins, which most captures do not contain. So the id here is what both
//! messages always have: `0:57 3:8b2ae5d5`, incarnation and tid, pool and the object's hash. All are as Ceph's logs write
//! them.
//!
//! Limits: operations of clients older than Luminous (2017) are not named.
//!
//! Source: Ceph's `msg/Message.h` (types), `include/msgr.h` (header), `include/rados.h` (operations), `messages/MOSDOp.h`,
//! `MOSDOpReply.h`, `MOSDRepOp.h`, `MOSDECSubOp*.h`, `osd/ECMsgTypes.cc`, `common/hobject.cc`.

use std::ops::Range;

use super::cursor::Cursor;
use crate::results::{DUE, SAYS_NOTHING, SUCCESS};

pub const HEADER_LEN: usize = 41;
/// Version of osd_op and osd_op_reply from which the front is as read here.
const VERSION_READ: u16 = 8;
const OPERATION_LEN: usize = 38;
/// Operations of one message that are named, at most.
const NAMED_MOST: usize = 3;
/// Operations of one message that are read, at most.
const READ_MOST: u16 = 64;
const TRACE_LEN: usize = 24;
const PLACEMENT_GROUP_LEN: usize = 17;
const PLACEMENT_GROUP_VERSION: u8 = 1;
/// What all messages to monitors begin with.
const TO_MONITOR_LEN: usize = 18;
const CLUSTER_LEN: usize = 16;
/// What precedes the name of a command; Ceph's programs write no other form.
const PREFIX: &[u8] = b"\"prefix\": \"";
const PREFIX_MOST: usize = 80;
/// `entity_name_t`: daemons other than these ask on their own account.
const CLIENT: u8 = 8;
const MDS: u8 = 2;

/// Types of messages whose contents are read.
pub mod kind {
    pub const GET_VERSION: u16 = 19;
    pub const GET_VERSION_REPLY: u16 = 20;
    pub const OSD_OP: u16 = 42;
    pub const OSD_OP_REPLY: u16 = 43;
    pub const POOL_OP_REPLY: u16 = 48;
    pub const MON_COMMAND: u16 = 50;
    pub const MON_COMMAND_ACK: u16 = 51;
    pub const EC_WRITE: u16 = 108;
    pub const EC_WRITE_REPLY: u16 = 109;
    pub const EC_READ: u16 = 110;
    pub const EC_READ_REPLY: u16 = 111;
    pub const REPOP: u16 = 112;
    pub const REPOP_REPLY: u16 = 113;
}

/// Requests, with the types of their answers.
const PAIRS: &[(u16, u16)] = &[
    (kind::OSD_OP, kind::OSD_OP_REPLY),
    (kind::REPOP, kind::REPOP_REPLY),
    (kind::EC_WRITE, kind::EC_WRITE_REPLY),
    (kind::EC_READ, kind::EC_READ_REPLY),
    (kind::MON_COMMAND, kind::MON_COMMAND_ACK),
    (kind::GET_VERSION, kind::GET_VERSION_REPLY),
    (13, 14),
    (49, kind::POOL_OP_REPLY),
    (58, 59),
    (97, 98),
    (0x709, 0x70a),
];

/// Names of types, as Ceph's logs have them; what daemons other than a file system's servers exchange.
const NAMES: &[(u16, &str)] = &[
    (4, "mon_map"),
    (5, "mon_get_map"),
    (13, "statfs"),
    (14, "statfs_reply"),
    (15, "mon_subscribe"),
    (16, "mon_subscribe_ack"),
    (17, "auth"),
    (18, "auth_reply"),
    (19, "mon_get_version"),
    (20, "mon_get_version_reply"),
    (21, "mdsmap"),
    (22, "client_session"),
    (24, "client_request"),
    (26, "client_reply"),
    (41, "osd_map"),
    (42, "osd_op"),
    (43, "osd_op_reply"),
    (44, "watch_notify"),
    (46, "forward"),
    (47, "route"),
    (48, "pool_op_reply"),
    (49, "pool_op"),
    (50, "mon_command"),
    (51, "mon_command_ack"),
    (52, "log"),
    (53, "log_ack"),
    (58, "getpoolstats"),
    (59, "getpoolstats_reply"),
    (61, "osd_backoff"),
    (62, "config"),
    (65, "election"),
    (66, "paxos"),
    (67, "mon_probe"),
    (70, "osd_ping"),
    (71, "osd_boot"),
    (72, "osd_failure"),
    (73, "osd_alive"),
    (80, "pg_notify"),
    (81, "pg_query"),
    (83, "pg_log"),
    (85, "pg_info"),
    (94, "pg_scan"),
    (95, "pg_backfill"),
    (97, "command"),
    (98, "command_reply"),
    (105, "pg_push"),
    (106, "pg_pull"),
    (107, "pg_push_reply"),
    (108, "ec_write"),
    (109, "ec_write_reply"),
    (110, "ec_read"),
    (111, "ec_read_reply"),
    (112, "osd_repop"),
    (113, "osd_repop_reply"),
    (130, "pg_notify2"),
    (131, "pg_query2"),
    (132, "pg_info2"),
    (133, "pg_lease"),
    (134, "pg_lease_ack"),
    (0x700, "mgr_open"),
    (0x701, "mgr_configure"),
    (0x702, "mgr_report"),
    (0x703, "mgr_beacon"),
    (0x704, "mgr_map"),
    (0x709, "mgr_command"),
    (0x70a, "mgr_command_reply"),
];

/// Operations on objects, as Ceph names them.
const OPERATIONS: &[(u16, &str)] = &[
    (0x1201, "read"),
    (0x1202, "stat"),
    (0x1203, "mapext"),
    (0x1205, "sparse-read"),
    (0x1206, "notify"),
    (0x1207, "notify-ack"),
    (0x1208, "assert-version"),
    (0x1209, "list-watchers"),
    (0x120a, "list-snaps"),
    (0x120b, "sync_read"),
    (0x120c, "tmapget"),
    (0x1211, "omap-get-keys"),
    (0x1212, "omap-get-vals"),
    (0x1213, "omap-get-header"),
    (0x1214, "omap-get-vals-by-keys"),
    (0x1219, "omap-cmp"),
    (0x121d, "isdirty"),
    (0x121e, "copy-get"),
    (0x121f, "checksum"),
    (0x1220, "cmpext"),
    (0x1301, "getxattr"),
    (0x1302, "getxattrs"),
    (0x1303, "cmpxattr"),
    (CALL, "call"),
    (0x1501, "pgls"),
    (0x1502, "pgls-filter"),
    (0x1503, "pg-hitset-ls"),
    (0x1504, "pg-hitset-get"),
    (0x1505, "pgnls"),
    (0x1506, "pgnls-filter"),
    (0x1507, "scrubls"),
    (0x2201, "write"),
    (0x2202, "writefull"),
    (0x2203, "truncate"),
    (0x2204, "zero"),
    (0x2205, "delete"),
    (0x2206, "append"),
    (0x2208, "settrunc"),
    (0x2209, "trimtrunc"),
    (0x220d, "create"),
    (0x220e, "rollback"),
    (WATCH, "watch"),
    (0x2215, "omap-set-vals"),
    (0x2216, "omap-set-header"),
    (0x2217, "omap-clear"),
    (0x2218, "omap-rm-keys"),
    (0x221a, "copy-from"),
    (0x221c, "undirty"),
    (SET_ALLOC_HINT, "set-alloc-hint"),
    (0x2226, "write-same"),
    (0x2227, "set-redirect"),
    (0x2228, "set-chunk"),
    (0x2229, "tier-promote"),
    (0x222c, "omap-rm-key-range"),
    (0x222d, "copy-from2"),
    (0x2301, "setxattr"),
    (0x2302, "setxattrs"),
    (0x2303, "resetxattrs"),
    (0x2304, "rmxattr"),
];
const CALL: u16 = 0x1401;
const SET_ALLOC_HINT: u16 = 0x2223;
const WATCH: u16 = 0x220f;
/// Where an operation on a watch says what is done to it.
const WATCH_ACTION: usize = 22;
const WATCH_PING: u8 = 7;
const ASSERT_VERSION: u16 = 0x1208;

/// What a message's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub tid: u64,
    pub kind: u16,
    version: u16,
}

impl Header {
    /// Read a header; `None` if it is cut.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut header = Cursor::new(bytes.get(..HEADER_LEN)?);
        header.skip(8)?; // seq
        let (tid, kind, _priority, version) = (header.u64()?, header.u16()?, header.u16()?, header.u16()?);
        Some(Self { tid, kind, version })
    }
}

/// The type of the request that a message of this type is or answers, and whether it is the request.
pub fn request_of(kind: u16) -> Option<(u16, bool)> {
    let pair = PAIRS.iter().find(|pair| pair.0 == kind || pair.1 == kind)?;
    Some((pair.0, pair.0 == kind))
}

/// What is read of a message: the columns of its row, and where that stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub tid: u64,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub id: Vec<u8>,
    /// Of an answer 0, or the number of the error (`errors`).
    pub result: i32,
    /// It keeps a watch on an object alive, as its client does every few seconds.
    pub is_keepalive: bool,
    /// Places in the front, ascending.
    pub read: Vec<Range<usize>>,
    /// Places in the front of what a user named.
    pub names: Vec<Range<usize>>,
    /// Places in the data of names of classes and methods.
    pub called: Vec<Range<usize>>,
}

/// Read a message. Arguments: `front` and `data`, as much of them as was captured.
pub fn read(header: &Header, front: &[u8], data: &[u8]) -> Content {
    let is_answer = request_of(header.kind).is_some_and(|(_, is_request)| !is_request);
    let unread = Content {
        tid: header.tid,
        method: name(header.kind),
        result: if is_answer { DUE } else { SAYS_NOTHING },
        ..Content::default()
    };
    read_front(header, front, data, unread.clone()).unwrap_or(unread)
}

/// `None` if the front is not as this type's is, or cut before what is wanted of it: then nothing of it is read, and an
/// agent keeps nothing of it.
fn read_front(header: &Header, front: &[u8], data: &[u8], mut content: Content) -> Option<Content> {
    let mut cursor = Cursor::new(front);
    match header.kind {
        kind::OSD_OP if header.version >= VERSION_READ => content.read_operation(&mut cursor, data),
        kind::REPOP => content.read_repop(&mut cursor),
        kind::EC_WRITE => content.read_ec(&mut cursor, Content::read_ec_write),
        kind::EC_READ => content.read_ec(&mut cursor, Content::read_ec_read),
        kind::EC_WRITE_REPLY | kind::EC_READ_REPLY => content.read_ec(&mut cursor, |_, _| Some(())),
        kind::GET_VERSION | kind::GET_VERSION_REPLY => content.read_handle(&mut cursor),
        kind::MON_COMMAND => return Some(content.with_command(cursor)),
        _ => Some(()),
    }?;
    if content.result == DUE {
        content.result = result(header, &mut cursor)?;
    }
    content.read.push(0..cursor.at);
    Some(content)
}

/// The result that an answer shows: 0, or the number of the error.
fn result(header: &Header, front: &mut Cursor<'_>) -> Option<i32> {
    match header.kind {
        kind::OSD_OP_REPLY if header.version >= VERSION_READ => {
            front.string()?; // object
            front.u8().filter(|&version| version == PLACEMENT_GROUP_VERSION)?;
            front.skip(PLACEMENT_GROUP_LEN - 1 + 8)?; // flags
        }
        kind::OSD_OP_REPLY => return None,
        kind::MON_COMMAND_ACK => {
            front.skip(TO_MONITOR_LEN)?;
        }
        kind::POOL_OP_REPLY => {
            front.skip(TO_MONITOR_LEN + CLUSTER_LEN)?;
        }
        _ => return Some(SUCCESS), // an answer without a result
    }
    let sent = front.u32()?.cast_signed();
    Some(sent.min(0).checked_neg().unwrap_or(0))
}

impl Content {
    fn read_operation(&mut self, front: &mut Cursor<'_>, data: &[u8]) -> Option<()> {
        front.structure()?; // placement group
        let hash = front.u32()?;
        front.skip(8)?; // epoch, flags
        let id = RequestId::read(front)?;
        front.skip(TRACE_LEN)?;
        let incarnation = front.u32()?;
        front.skip(8)?; // time of modification
        let mut locator = front.structure()?;
        let pool = locator.u64()?;
        locator.skip(4)?; // preferred
        let key = locator.string()?;
        let namespace = locator.string()?;
        let object = front.string()?;
        self.target = target(pool, front.text_at(&namespace), front.text_at(&object));
        self.names = vec![key, namespace, object];
        self.id = if id.tid == 0 {
            id_text(incarnation, self.tid, pool, hash)
        } else {
            id_text(id.incarnation, id.tid, pool, hash)
        };
        let count = front.u16()?;
        self.read_operations(front, count, data);
        Some(())
    }

    /// Set the method: `osd`, and the names of the operations, each once and without hints, those of a called class with
    /// its method.
    fn read_operations(&mut self, front: &mut Cursor<'_>, count: u16, data: &[u8]) {
        let (mut names, mut data_at) = (Vec::new(), 0_usize);
        for _ in 0..count.min(READ_MOST) {
            let Some(operation) = front.bytes(OPERATION_LEN) else {
                break;
            };
            let code = u16::from_le_bytes([operation[0], operation[1]]);
            let called = (code == CALL)
                .then(|| class_and_method(operation, data_at, data))
                .flatten();
            let name = match &called {
                Some((class, method)) => [b"call ", &data[class.clone()], b".", &data[method.clone()]].concat(),
                None => operation_name(code),
            };
            self.is_keepalive = count == 1 && code == WATCH && operation[WATCH_ACTION] == WATCH_PING;
            self.called
                .extend(called.map(|(class, method)| class.start..method.end));
            if !names.contains(&name) && !matches!(code, SET_ALLOC_HINT | ASSERT_VERSION) {
                names.push(name);
            }
            let own_len = Cursor::new(&operation[OPERATION_LEN - 4..]).u32().unwrap_or(0);
            data_at = data_at.saturating_add(own_len as usize);
        }
        let more: &[u8] = if names.len() > NAMED_MOST { b"+..." } else { b"" };
        names.truncate(NAMED_MOST);
        self.method = [b"osd ", &names.join(&b'+')[..], more].concat();
    }

    fn read_repop(&mut self, front: &mut Cursor<'_>) -> Option<()> {
        front.skip(8 + TRACE_LEN)?; // epochs
        let id = RequestId::read(front)?;
        front.structure()?; // placement group
        self.read_object(front, Some(id))
    }

    /// Messages of erasure-coded pools; their tid is not in the header.
    fn read_ec(&mut self, front: &mut Cursor<'_>, read: fn(&mut Self, &mut Cursor<'_>) -> Option<()>) -> Option<()> {
        front.structure()?; // placement group
        front.skip(4)?; // epoch
        let mut operation = front.structure()?;
        front.at = operation.at; // what is behind the object is not read
        operation.structure()?; // shard
        self.tid = operation.u64()?;
        let found = read(self, &mut operation);
        front.at = operation.at;
        found
    }

    fn read_ec_write(&mut self, operation: &mut Cursor<'_>) -> Option<()> {
        let id = RequestId::read(operation)?;
        self.read_object(operation, Some(id))
    }

    fn read_ec_read(&mut self, operation: &mut Cursor<'_>) -> Option<()> {
        let count = operation.u32()?;
        if count == 0 {
            return None;
        }
        self.read_object(operation, None)
    }

    /// Set what a replica's message says of its object, and of the operation that it is part of.
    fn read_object(&mut self, from: &mut Cursor<'_>, id: Option<RequestId>) -> Option<()> {
        let mut object = from.structure()?;
        let key = object.string()?;
        let name = object.string()?;
        object.skip(8)?; // snapshot
        let hash = object.u32()?;
        object.skip(1)?; // whether it is greater than all
        let namespace = object.string()?;
        let pool = object.u64()?;
        self.target = target(pool, object.text_at(&namespace), object.text_at(&name));
        self.names = vec![key, name, namespace];
        if let Some(id) = id.filter(|id| matches!(id.entity, CLIENT | MDS)) {
            self.id = id_text(id.incarnation, id.tid, pool, hash);
        }
        Some(())
    }

    fn read_handle(&mut self, front: &mut Cursor<'_>) -> Option<()> {
        self.tid = front.u64()?;
        Some(())
    }

    /// Of a command only the prefix, its name, is read: the rest may be a key.
    fn with_command(mut self, front: Cursor<'_>) -> Self {
        if let Some(place) = prefix(front.rest()) {
            self.target = front.rest()[place.clone()].to_vec();
            self.read.push(place.start - PREFIX.len()..place.end + 1);
        }
        self
    }
}

/// `osd_reqid_t`.
#[derive(Clone, Copy)]
struct RequestId {
    entity: u8,
    tid: u64,
    incarnation: u32,
}

impl RequestId {
    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        let mut id = from.structure()?;
        let entity = id.u8()?;
        id.skip(8)?; // its number
        Some(Self {
            entity,
            tid: id.u64()?,
            incarnation: id.u32()?,
        })
    }
}

fn name(kind: u16) -> Vec<u8> {
    let known = NAMES.iter().find(|(number, _)| *number == kind);
    known.map_or_else(
        || format!("message {kind}").into_bytes(),
        |(_, name)| name.as_bytes().to_vec(),
    )
}

/// Pool, namespace if there is one, and object; what is not printable replaced.
fn target(pool: u64, namespace: &[u8], object: &[u8]) -> Vec<u8> {
    let mut text = format!("{pool}/").into_bytes();
    if !namespace.is_empty() {
        text.extend(namespace.iter().map(printable));
        text.push(b'/');
    }
    text.extend(object.iter().map(printable));
    text
}

fn printable(byte: &u8) -> u8 {
    if byte.is_ascii_graphic() || !byte.is_ascii() {
        *byte
    } else {
        b'?'
    }
}

/// As in Ceph's logs, which write an object's hash with its bits reversed.
fn id_text(incarnation: u32, tid: u64, pool: u64, hash: u32) -> Vec<u8> {
    format!("{incarnation}:{tid} {pool}:{:08x}", hash.reverse_bits()).into_bytes()
}

fn operation_name(code: u16) -> Vec<u8> {
    let known = OPERATIONS.iter().find(|(number, _)| *number == code);
    known.map_or_else(
        || format!("{code:#x}").into_bytes(),
        |(_, name)| name.as_bytes().to_vec(),
    )
}

/// Where the names of the class and the method that an operation calls stand in the data, of which its own begins at
/// `at`.
fn class_and_method(operation: &[u8], at: usize, data: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let (class_len, method_len) = (usize::from(operation[6]), usize::from(operation[7]));
    let class_end = at.checked_add(class_len)?;
    let method_end = class_end.checked_add(method_len)?;
    let both = data.get(at..method_end)?;
    let are_words = class_len > 0 && method_len > 0 && both.iter().all(is_word);
    are_words.then_some((at..class_end, class_end..method_end))
}

fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Where the prefix of a command in JSON stands, without its quotes.
fn prefix(command: &[u8]) -> Option<Range<usize>> {
    let start = memchr::memmem::find(command, PREFIX)? + PREFIX.len();
    let text = &command[start..];
    let len = memchr::memchr(b'"', &text[..text.len().min(PREFIX_MOST)])?;
    let is_name = text[..len].iter().all(|byte| is_word(byte) || *byte == b' ');
    is_name.then_some(start..start + len)
}
