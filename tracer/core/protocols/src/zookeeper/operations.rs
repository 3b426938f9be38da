//! ZooKeeper's operations: their numbers and names, and which begin with a path.
//!
//! Source: ZooKeeper 3.9, `ZooDefs.OpCode`, `zookeeper.jute`.

/// Number of the operation that opens a session; it has none of its own in messages.
pub(super) const CONNECT: u16 = 0;
const PING: i32 = 11;
const CLOSE: i32 = -11;
/// In the column `frame_kind`, where numbers are not negative.
const CLOSE_KIND: u16 = 11;

/// What an operation's message holds behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// A path, then more.
    Path,
    /// Credentials.
    Secret,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub kind: u16,
    pub name: &'static str,
    pub body: Body,
}

const fn of_path(kind: u16, name: &'static str) -> Operation {
    Operation {
        kind,
        name,
        body: Body::Path,
    }
}

const fn other(kind: u16, name: &'static str) -> Operation {
    Operation {
        kind,
        name,
        body: Body::Other,
    }
}

const fn secret(kind: u16, name: &'static str) -> Operation {
    Operation {
        kind,
        name,
        body: Body::Secret,
    }
}

const OPERATIONS: &[Operation] = &[
    secret(CONNECT, "connect"),
    of_path(1, "create"),
    of_path(2, "delete"),
    of_path(3, "exists"),
    of_path(4, "getData"),
    of_path(5, "setData"),
    of_path(6, "getACL"),
    of_path(7, "setACL"),
    of_path(8, "getChildren"),
    of_path(9, "sync"),
    other(CLOSE_KIND, "closeSession"),
    of_path(12, "getChildren2"),
    of_path(13, "check"),
    other(14, "multi"),
    of_path(15, "create2"),
    other(16, "reconfig"),
    of_path(17, "checkWatches"),
    of_path(18, "removeWatches"),
    of_path(19, "createContainer"),
    of_path(20, "deleteContainer"),
    of_path(21, "createTTL"),
    other(22, "multiRead"),
    secret(100, "auth"),
    other(101, "setWatches"),
    secret(102, "sasl"),
    of_path(103, "getEphemerals"),
    of_path(104, "getAllChildrenNumber"),
    other(105, "setWatches2"),
    of_path(106, "addWatch"),
    other(107, "whoAmI"),
];

/// The operation of a message's type; `None` if there is none, or it keeps a session open.
pub(super) fn find(kind: i32) -> Option<&'static Operation> {
    let wanted = match kind {
        CLOSE => CLOSE_KIND,
        PING | 0 => return None,
        _ => u16::try_from(kind).ok()?,
    };
    of_kind(wanted)
}

/// Whether a message's type is that of one that keeps a session open.
pub(super) fn is_ping(kind: i32) -> bool {
    kind == PING
}

fn of_kind(kind: u16) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.kind == kind)
}

/// The name of an operation; empty for another number.
pub(super) fn name(kind: u16) -> &'static str {
    of_kind(kind).map_or("", |operation| operation.name)
}

pub(super) fn connect() -> &'static Operation {
    &OPERATIONS[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_known_by_its_type() {
        let name = |kind| find(kind).map(|operation| operation.name);
        assert_eq!(
            (name(4), name(-11), name(106)),
            (Some("getData"), Some("closeSession"), Some("addWatch"))
        );
        assert_eq!((name(11), name(0), name(-1), name(99)), (None, None, None, None));
        assert!(OPERATIONS.is_sorted_by(|one, next| one.kind < next.kind));
        assert_eq!((connect().name, is_ping(11)), ("connect", true));
    }
}
