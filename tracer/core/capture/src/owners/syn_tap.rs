//! Sees connections when they are opened, for their owners: the ring hands packets over up to 50 ms later, when many a
//! socket is closed.
//!
//! A packet socket of its own for each interface, to which the kernel gives nothing but SYNs. If it overflows, the ring
//! shows the connection all the same.

use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{MsgFlags, recv};

use super::key::{Ends, Key};
use crate::error::CaptureError;
use crate::filter::{Instruction, jump, statement};
use crate::pcapng::LinkType;
use crate::sampling::depth_of_frame;
use crate::socket::PacketSocket;

const LOAD_HALF: u16 = 0x28; // ldh [k]
const LOAD_BYTE: u16 = 0x30; // ldb [k]
const LOAD_BYTE_X: u16 = 0x50; // ldb [x+k]
const LOAD_HEADER_LEN: u16 = 0xB1; // ldx 4*([k]&0xf)
const JUMP_ANY: u16 = 0x45; // jset #k
const AND: u16 = 0x54; // and #k
const RETURN: u16 = 0x06; // ret #k
const FLAGS_AT: u32 = 13;
const SYN_AND_ACK: u32 = 0x12;
const SYN: u32 = 0x02;
/// IPv6 and TCP headers with their options fit.
const SNAPLEN: u32 = 160;

/// The packets of one interface that open connections.
pub struct SynTap {
    socket: PacketSocket,
    link_type: LinkType,
}

impl SynTap {
    pub fn open(interface: &str) -> Result<Self, CaptureError> {
        let socket = PacketSocket::open(interface)?;
        let link_type = socket.link_type()?;
        socket.attach_filter(&program(link_type))?;
        if socket.is_loopback() {
            socket.leave_out_sent();
        }
        socket.receive()?;
        Ok(SynTap { socket, link_type })
    }

    pub fn name(&self) -> &str {
        &self.socket.name
    }

    /// Whether its interface is one of these, and still the one that it was opened for.
    pub fn is_one_of(&self, names: &[String]) -> bool {
        names.contains(&self.socket.name) && self.socket.exists()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd().as_fd()
    }

    /// The sender's end of the next packet of a connection of at least that depth; `None` if there is none.
    pub fn next(&self, least_depth: u8) -> Option<Key> {
        let mut frame = [0; SNAPLEN as usize];
        loop {
            let len = recv(self.socket.fd().as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).ok()?;
            let frame = &frame[..len.min(frame.len())];
            if depth_of_frame(self.link_type, frame) < least_depth {
                continue;
            }
            let ends = Ends::of(self.link_type, frame);
            if let Some(key) = ends.filter(|ends| ends.is_syn).and_then(|ends| ends.sender()) {
                return Some(key);
            }
        }
    }
}

/// Accepts SYNs over IPv4 and IPv6, without VLAN tags in the frame or extension headers.
fn program(link_type: LinkType) -> Vec<Instruction> {
    let (kind, kinds, ip) = match link_type {
        LinkType::Ethernet => (vec![statement(LOAD_HALF, 12)], (0x0800, 0x86DD), 14),
        LinkType::RawIp => (vec![statement(LOAD_BYTE, 0), statement(AND, 0xF0)], (0x40, 0x60), 0),
    };
    let mut program = kind;
    program.extend([
        jump(kinds.0, 0, 7),
        statement(LOAD_BYTE, ip + 9),
        jump(6, 0, 10),
        statement(LOAD_HALF, ip + 6),
        Instruction {
            code: JUMP_ANY,
            jt: 8,
            jf: 0,
            k: 0x1FFF,
        },
        statement(LOAD_HEADER_LEN, ip),
        statement(LOAD_BYTE_X, ip + FLAGS_AT),
        Instruction {
            code: 0x05,
            jt: 0,
            jf: 0,
            k: 6,
        }, // ja: to the test of the flags
        jump(kinds.1, 0, 4),
        statement(LOAD_BYTE, ip + 6),
        jump(6, 0, 2),
        statement(LOAD_BYTE, ip + 40 + FLAGS_AT),
        Instruction {
            code: 0x05,
            jt: 0,
            jf: 0,
            k: 1,
        }, // ja: over the refusal
        statement(RETURN, 0),
        statement(AND, SYN_AND_ACK),
        jump(SYN, 0, 1),
        statement(RETURN, SNAPLEN),
        statement(RETURN, 0),
    ]);
    program
}
