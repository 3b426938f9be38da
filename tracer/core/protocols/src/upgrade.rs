//! Changes of protocol by HTTP/1.1: behind the head of a `101 Switching Protocols`, both directions of the connection are
//! of the protocol that its header `Upgrade` names.
//!
//! Source: RFC 9110 §7.8, §15.2.2.

use memchr::memchr;

use crate::protocol::Finder;
use crate::registry::REGISTRY;

const STATUS_LINE: &[u8] = b"HTTP/1.1 101";
const UPGRADE: &[u8] = b"upgrade";

/// A change of protocol.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Length of the head, behind which the server's first bytes of the new protocol come.
    pub head_len: usize,
    /// Place of the new protocol in the registry.
    pub protocol: u8,
    pub finder: Finder,
}

/// Whether a payload may begin with the head of a change; for the hot path.
#[inline(always)]
pub fn may_change(payload: &[u8]) -> bool {
    payload.starts_with(STATUS_LINE)
}

/// The change whose head a payload begins with, if all of that was captured and the new protocol is read.
pub fn change_of(payload: &[u8]) -> Option<Change> {
    if !may_change(payload) {
        return None;
    }
    let mut at = 0;
    let mut found = None;
    loop {
        let end = at + memchr(b'\n', payload.get(at..)?)?;
        let line = payload[at..end].trim_ascii_end();
        at = end + 1;
        if line.is_empty() {
            let (protocol, finder) = found?;
            return Some(Change {
                head_len: at,
                protocol,
                finder,
            });
        }
        let Some(colon) = memchr(b':', line).filter(|colon| line[..*colon].eq_ignore_ascii_case(UPGRADE)) else {
            continue;
        };
        found = found.or_else(|| protocol_of(line[colon + 1..].trim_ascii()));
    }
}

/// The protocol of this name, with its place in the registry.
fn protocol_of(token: &[u8]) -> Option<(u8, Finder)> {
    (0..).zip(REGISTRY).find_map(|(place, protocol)| {
        let upgrade = protocol.upgrade.as_ref()?;
        upgrade
            .token
            .eq_ignore_ascii_case(token)
            .then_some((place, upgrade.finder))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_head_names_the_protocol_and_where_it_begins() {
        type Place = Option<(usize, &'static str)>;
        let cases: &[(&[u8], Place)] = &[
            (
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x02hi",
                Some((77, "websocket")),
            ),
            (
                b"HTTP/1.1 101\r\nserver: a\r\nupgrade:WebSocket\r\n\r\n",
                Some((46, "websocket")),
            ),
            (
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
                Some((50, "http/2")),
            ),
            (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: TLS/1.2\r\n\r\n", None),
            (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n", None),
            (
                b"HTTP/1.1 101 Switching Protocols\r\n\r\nUpgrade: websocket\r\n\r\n",
                None,
            ),
            (b"HTTP/1.1 200 OK\r\nUpgrade: websocket\r\n\r\n", None),
            (b"", None),
        ];
        for (payload, expected) in cases {
            let found = change_of(payload).map(|one| (one.head_len, REGISTRY[usize::from(one.protocol)].name));
            assert_eq!(found, *expected, "{:?}", String::from_utf8_lossy(payload));
            assert!((0..46.min(payload.len())).all(|len| change_of(&payload[..len]).is_none()));
        }
    }
}
