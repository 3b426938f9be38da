//! Excludes connections from a capture: instructions before the filter that refuse packets to or from given addresses
//! and ports. All other packets go on to the filter as if these instructions did not exist.
//!
//! They are part of the kernel's program, so a refused packet is neither copied nor counted. A classic BPF program ends
//! when it reads beyond the packet, so a TCP packet without a TCP header is refused as well; nothing in it could be
//! recorded. Not handled: IPv6 extension headers before TCP. Such a packet goes on to the filter.
//!
//! Scratch memory: M[0] length of the VLAN tags, M[1] where ports begin, M[2] ethertype. A filter behind them reads
//! none of these before it has written it: the kernel refuses one that does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::filter::{Instruction, ethertype_loads, jump, statement};
use crate::pcapng::LinkType;

const LOAD_WORD_X: u16 = 0x40; // ld [x+k]
const LOAD_HALF_X: u16 = 0x48; // ldh [x+k]
const LOAD_BYTE_X: u16 = 0x50; // ldb [x+k]
const LOAD_BYTE: u16 = 0x30; // ldb [k]
const LOAD_MEMORY: u16 = 0x60; // ld M[k]
const SET_X: u16 = 0x01; // ldx #k
const LOAD_X_MEMORY: u16 = 0x61; // ldx M[k]
const STORE: u16 = 0x02; // st M[k]
const STORE_X: u16 = 0x03; // stx M[k]
const TO_X: u16 = 0x07; // tax
const ADD_X: u16 = 0x0C; // add x
const AND: u16 = 0x54; // and #k
const SHIFT_LEFT: u16 = 0x64; // lsh #k
const SHIFT_RIGHT: u16 = 0x74; // rsh #k
const GO: u16 = 0x05; // ja k
const RETURN: u16 = 0x06; // ret #k

const TAGS_LEN: u32 = 0;
const PORTS_AT: u32 = 1;
const KIND: u32 = 2;

const PROTOCOL_TCP: u32 = 6;
const FRAGMENT_OFFSET: u32 = 0x1FFF;
const IPV6_HEADER_LEN: u32 = 40;

/// The filter, with instructions before it that refuse TCP packets to or from `endpoints`.
pub fn without(endpoints: &[SocketAddr], link_type: LinkType, filter: &[Instruction]) -> Vec<Instruction> {
    if endpoints.is_empty() {
        return filter.to_vec();
    }
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    for endpoint in endpoints {
        match endpoint.ip() {
            IpAddr::V4(address) => ipv4.push((address, endpoint.port())),
            IpAddr::V6(address) => ipv6.push((address, endpoint.port())),
        }
    }
    // What IP calls its version and Ethernet its type, and where the IP header is without tags.
    let (mut program, kinds, ip_at) = match link_type {
        LinkType::Ethernet => (ethertype_loads(), (0x0800, 0x86DD), 14),
        LinkType::RawIp => {
            let version = vec![statement(SET_X, 0), statement(LOAD_BYTE, 0), statement(SHIFT_RIGHT, 4)];
            (version, (4, 6), 0)
        }
    };
    program.extend([statement(STORE, KIND), statement(STORE_X, TAGS_LEN)]);
    for (kind, body) in [(kinds.0, ipv4_body(&ipv4, ip_at)), (kinds.1, ipv6_body(&ipv6, ip_at))] {
        program.extend([
            statement(LOAD_MEMORY, KIND),
            jump(kind, 1, 0),
            statement(GO, body.len() as u32),
        ]);
        program.extend(body);
    }
    program.extend_from_slice(filter);
    program
}

/// For an IPv4 packet, untagged at `ip_at`. Ends behind its last instruction unless the packet is refused.
fn ipv4_body(endpoints: &[(Ipv4Addr, u16)], ip_at: u32) -> Vec<Instruction> {
    let mut tests = vec![
        statement(LOAD_BYTE_X, ip_at),
        statement(AND, 0x0F),
        statement(SHIFT_LEFT, 2),
        statement(ADD_X, 0),
        statement(TO_X, 0),
        statement(STORE_X, PORTS_AT),
    ];
    for (address, port) in endpoints {
        for (address_at, port_at) in [(12, 0), (16, 2)] {
            tests.extend([
                statement(LOAD_X_MEMORY, TAGS_LEN),
                statement(LOAD_WORD_X, ip_at + address_at),
                jump(address.to_bits(), 0, 4),
                statement(LOAD_X_MEMORY, PORTS_AT),
                statement(LOAD_HALF_X, ip_at + port_at),
                jump(u32::from(*port), 0, 1),
                statement(RETURN, 0),
            ]);
        }
    }
    let mut body = vec![
        statement(LOAD_X_MEMORY, TAGS_LEN),
        statement(LOAD_BYTE_X, ip_at + 9),
        jump(PROTOCOL_TCP, 1, 0),
        statement(GO, tests.len() as u32 + 4),
        statement(LOAD_HALF_X, ip_at + 6),
        statement(AND, FRAGMENT_OFFSET),
        jump(0, 1, 0),
        statement(GO, tests.len() as u32),
    ];
    body.extend(tests);
    body
}

/// As `ipv4_body`, for IPv6.
fn ipv6_body(endpoints: &[(Ipv6Addr, u16)], ip_at: u32) -> Vec<Instruction> {
    let mut tests = Vec::new();
    for (address, port) in endpoints {
        for (address_at, port_at) in [(8, 0), (24, 2)] {
            for (place, word) in address.octets().chunks_exact(4).enumerate() {
                let word = word.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
                let place = place as u32;
                tests.push(statement(LOAD_WORD_X, ip_at + address_at + 4 * place));
                tests.push(jump(word, 0, 2 * (3 - place) as u8 + 3));
            }
            tests.extend([
                statement(LOAD_HALF_X, ip_at + IPV6_HEADER_LEN + port_at),
                jump(u32::from(*port), 0, 1),
                statement(RETURN, 0),
            ]);
        }
    }
    let mut body = vec![
        statement(LOAD_X_MEMORY, TAGS_LEN),
        statement(LOAD_BYTE_X, ip_at + 6),
        jump(PROTOCOL_TCP, 1, 0),
        statement(GO, tests.len() as u32),
    ];
    body.extend(tests);
    body
}
