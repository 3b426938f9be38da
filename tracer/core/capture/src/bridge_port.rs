//! Asks the kernel whether an interface is a port of a bridge (rtnetlink(7)). The answer holds for the network
//! namespace that the capture runs in, whereas /sys may show the interfaces of another namespace.
//!
//! The kernel answers RTM_GETLINK with the interface's attributes. If the interface is a port, IFLA_LINKINFO holds
//! IFLA_INFO_SLAVE_KIND with the text "bridge". If the kernel does not answer, the interface is assumed to be no port.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
/// Lengths of a message's header, and of the interface's description (`ifinfomsg`) after it.
const HEADER_LEN: usize = 16;
const IFINFO_LEN: usize = 16;
/// The kind's high bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const ATTRIBUTE_KIND: u16 = 0x3FFF;
/// Longest answer in bytes: an interface with many virtual functions has some KiB of attributes.
const ANSWER_LIMIT: usize = 1 << 16;

/// Whether the interface of this index is a port of a bridge.
pub fn is_bridge_port(index: i32) -> bool {
    let asked = || -> nix::Result<Vec<u8>> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        send(fd.as_raw_fd(), &question(index), MsgFlags::empty())?;
        let mut answer = vec![0; ANSWER_LIMIT];
        let len = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        answer.truncate(len);
        Ok(answer)
    };
    asked().is_ok_and(|answer| says_bridge_port(&answer))
}

fn question(index: i32) -> [u8; HEADER_LEN + IFINFO_LEN] {
    let mut message = [0; HEADER_LEN + IFINFO_LEN];
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&index.to_ne_bytes());
    message
}

fn says_bridge_port(answer: &[u8]) -> bool {
    let is_link = answer.get(4..6) == Some(&RTM_NEWLINK.to_ne_bytes());
    let attributes = answer.get(HEADER_LEN + IFINFO_LEN..).unwrap_or_default();
    is_link
        && attribute(attributes, IFLA_LINKINFO)
            .and_then(|info| attribute(info, IFLA_INFO_SLAVE_KIND))
            .is_some_and(|kind| kind.strip_suffix(b"\0").unwrap_or(kind) == b"bridge")
}

/// The value of the first attribute of a kind; `None` if there is none, or an attribute before it is truncated.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let number = |at: usize| Some(u16::from_ne_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
        let (len, kind) = (usize::from(number(0)?), number(2)? & ATTRIBUTE_KIND);
        let value = rest.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(kind: u16, slave_of: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + IFINFO_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(attribute_bytes(3, b"veth-a\0"));
        let info = [
            attribute_bytes(1, b"veth\0"),
            attribute_bytes(IFLA_INFO_SLAVE_KIND, slave_of),
        ]
        .concat();
        bytes.extend(attribute_bytes(IFLA_LINKINFO | 0x8000, &info));
        bytes
    }

    #[test]
    fn the_kind_of_its_master_says_whether_it_is_a_port() {
        assert!(says_bridge_port(&answer(RTM_NEWLINK, b"bridge\0")));
        assert!(!says_bridge_port(&answer(RTM_NEWLINK, b"bond\0")));
        assert!(!says_bridge_port(&answer(2, b"bridge\0"))); // an error
    }

    #[test]
    fn every_cut_answer_is_no_port() {
        let whole = answer(RTM_NEWLINK, b"bridge\0");
        // what is cut is padding at first
        assert!((0..whole.len() - 3).all(|len| !says_bridge_port(&whole[..len])));
    }

    #[test]
    fn loopback_is_no_port() {
        assert!(!is_bridge_port(1));
    }
}
