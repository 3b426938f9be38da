//! The built-in kernel filter: TCP over IPv4 and IPv6, untagged or with one or two VLAN tags, whatever the fragment.
//!
//! A program is classic BPF, as `SO_ATTACH_FILTER` takes it. The kernel hides the outer tag of most frames from the
//! filter (it is in the ring's header), but not of all, so tags are skipped here where they are still in the frame.
//! IPv6 packets with extension headers pass whatever follows them; the policy then keeps TCP only.

use crate::pcapng::LinkType;

/// One classic BPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// Kernel programs for each kind of link; `None` where the operator's expression does not fit it.
#[derive(Debug, Clone)]
pub struct Programs {
    pub ethernet: Option<Vec<Instruction>>,
    pub raw_ip: Option<Vec<Instruction>>,
    /// As the operator wrote it; empty for the built-in one.
    pub expression: String,
}

impl Programs {
    /// The programs used when no expression is given. `snaplen`: bytes of each packet that the kernel copies.
    pub fn built_in(snaplen: u32) -> Self {
        Programs {
            ethernet: Some(built_in(LinkType::Ethernet, snaplen)),
            raw_ip: Some(built_in(LinkType::RawIp, snaplen)),
            expression: String::new(),
        }
    }

    /// The program for one kind of link.
    pub fn for_link(&self, link_type: LinkType) -> Option<&[Instruction]> {
        match link_type {
            LinkType::Ethernet => self.ethernet.as_deref(),
            LinkType::RawIp => self.raw_ip.as_deref(),
        }
    }
}

const LOAD_HALF_X: u16 = 0x48; // ldh [x+k]
const LOAD_BYTE_X: u16 = 0x50; // ldb [x+k]
const LOAD_BYTE: u16 = 0x30; // ldb [k]
const SET_X: u16 = 0x01; // ldx #k
const AND: u16 = 0x54; // and #k
const JUMP_EQUAL: u16 = 0x15; // jeq #k, jt, jf
const RETURN: u16 = 0x06; // ret #k

/// The program, with at most `snaplen` bytes of each packet that it accepts.
pub fn with_snaplen(mut program: Vec<Instruction>, snaplen: u32) -> Vec<Instruction> {
    for step in program.iter_mut().filter(|step| step.code == RETURN) {
        step.k = step.k.min(snaplen);
    }
    program
}

const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86DD;
const TAG_802_1Q: u32 = 0x8100;
const TAG_802_1AD: u32 = 0x88A8;
const PROTOCOL_TCP: u32 = 6;
/// IPv6 extension headers that can stand before TCP: hop-by-hop, routing, fragment, authentication, destination
/// options.
const EXTENSION_HEADERS: [u32; 5] = [0, 43, 44, 51, 60];

/// The program for one kind of link.
pub fn built_in(link_type: LinkType, snaplen: u32) -> Vec<Instruction> {
    let mut program = match link_type {
        LinkType::Ethernet => ethernet_preamble(),
        LinkType::RawIp => raw_ip_preamble(),
    };
    let (ipv4_protocol, ipv6_next_header) = match link_type {
        LinkType::Ethernet => (14 + 9, 14 + 6),
        LinkType::RawIp => (9, 6),
    };
    // The preamble falls through for IPv4 and jumps two instructions further for IPv6; X is the length of the tags.
    let extensions_count = EXTENSION_HEADERS.len() as u8;
    program.push(statement(LOAD_BYTE_X, ipv4_protocol));
    program.push(jump(PROTOCOL_TCP, extensions_count + 2, extensions_count + 3));
    program.push(statement(LOAD_BYTE_X, ipv6_next_header));
    program.push(jump(PROTOCOL_TCP, extensions_count, 0));
    for (index, header) in EXTENSION_HEADERS.iter().enumerate() {
        let remaining = extensions_count - index as u8 - 1;
        program.push(jump(*header, remaining, u8::from(remaining == 0)));
    }
    program.push(statement(RETURN, snaplen));
    program.push(statement(RETURN, 0));
    program
}

/// Leaves X = length of the VLAN tags in the frame.
fn ethernet_preamble() -> Vec<Instruction> {
    let to_reject = 4 + EXTENSION_HEADERS.len() as u8 + 1;
    let mut preamble = ethertype_loads();
    preamble.extend([jump(ETHERTYPE_IPV4, 1, 0), jump(ETHERTYPE_IPV6, 2, to_reject)]);
    preamble
}

/// Leaves A = the type of what the frame carries behind at most two VLAN tags, X = the length of these.
pub(crate) fn ethertype_loads() -> Vec<Instruction> {
    vec![
        statement(SET_X, 0),
        statement(LOAD_HALF_X, 12),
        jump(TAG_802_1Q, 1, 0),
        jump(TAG_802_1AD, 0, 5),
        statement(SET_X, 4),
        statement(LOAD_HALF_X, 12),
        jump(TAG_802_1Q, 0, 2),
        statement(SET_X, 8),
        statement(LOAD_HALF_X, 12),
    ]
}

fn raw_ip_preamble() -> Vec<Instruction> {
    let to_reject = 4 + EXTENSION_HEADERS.len() as u8 + 1;
    vec![
        statement(SET_X, 0),
        statement(LOAD_BYTE, 0),
        statement(AND, 0xF0),
        jump(0x40, 1, 0),
        jump(0x60, 2, to_reject),
    ]
}

pub(crate) fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

pub(crate) fn jump(k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction {
        code: JUMP_EQUAL,
        jt,
        jf,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does: bytes of the packet to keep, 0 = reject.
    fn run(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut a, mut x, mut pc) = (0u32, 0u32, 0usize);
        let byte = |at: u32| packet.get(at as usize).map(|b| u32::from(*b));
        loop {
            let Instruction { code, jt, jf, k } = program[pc];
            pc += 1;
            match code {
                SET_X => x = k,
                AND => a &= k,
                RETURN => return k,
                JUMP_EQUAL => pc += usize::from(if a == k { jt } else { jf }),
                LOAD_BYTE | LOAD_BYTE_X => match byte(k + if code == LOAD_BYTE { 0 } else { x }) {
                    Some(value) => a = value,
                    None => return 0,
                },
                LOAD_HALF_X => match (byte(x + k), byte(x + k + 1)) {
                    (Some(high), Some(low)) => a = high << 8 | low,
                    _ => return 0,
                },
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    fn ethernet(tags: &[u16], ethertype: u16, ip: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(ip);
        frame
    }

    fn ipv4(protocol: u8) -> Vec<u8> {
        let mut header = vec![0; 40];
        header[0] = 0x45;
        header[9] = protocol;
        header
    }

    fn ipv6(next_header: u8) -> Vec<u8> {
        let mut header = vec![0; 60];
        header[0] = 0x60;
        header[6] = next_header;
        header
    }

    #[test]
    fn built_in_programs_pass_tcp_only() {
        let ip_cases = [
            (0x0800, ipv4(6), true),
            (0x0800, ipv4(17), false),
            (0x86DD, ipv6(6), true),
            (0x86DD, ipv6(17), false),
            (0x86DD, ipv6(0), true),
            (0x86DD, ipv6(43), true),
            (0x86DD, ipv6(44), true),
            (0x86DD, ipv6(51), true),
            (0x86DD, ipv6(60), true),
            (0x86DD, ipv6(58), false),
        ];
        let raw = built_in(LinkType::RawIp, 300);
        let framed = built_in(LinkType::Ethernet, 300);
        for (ethertype, ip, passes) in ip_cases {
            let expected = if passes { 300 } else { 0 };
            assert_eq!(run(&raw, &ip), expected, "raw, {ip:?}");
            for tags in [&[][..], &[0x8100], &[0x88A8], &[0x88A8, 0x8100], &[0x8100, 0x8100]] {
                assert_eq!(
                    run(&framed, &ethernet(tags, ethertype, &ip)),
                    expected,
                    "{tags:x?} {ip:?}"
                );
            }
        }
    }

    #[test]
    fn other_ethertypes_and_short_frames_are_rejected() {
        let framed = built_in(LinkType::Ethernet, 300);
        assert_eq!(run(&framed, &ethernet(&[], 0x0806, &ipv4(6))), 0);
        assert_eq!(run(&framed, &ethernet(&[0x8100], 0x0806, &ipv4(6))), 0);
        let whole = ethernet(&[0x88A8, 0x8100], 0x0800, &ipv4(6));
        for len in 0..whole.len() {
            let needed = 12 + 8 + 2 + 10;
            assert_eq!(
                run(&framed, &whole[..len]),
                if len >= needed { 300 } else { 0 },
                "{len} bytes"
            );
        }
    }
}
