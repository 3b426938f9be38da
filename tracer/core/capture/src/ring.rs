//! The ring that the kernel fills with packets: TPACKET_V3, one map for each interface.
//!
//! The memory is a row of blocks. A status word at the head of a block shows whether it belongs to the kernel or to us.
//! The kernel hands a block over when it is full, or `RETIRE_AFTER` after its first packet; dropping the block returns
//! it. Packets in a block have variable lengths and are chained by offsets.
//!
//! Source: Linux Documentation/networking/packet_mmap.rst; layouts: linux/if_packet.h.

use std::mem;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use crate::error::CaptureError;
use crate::socket::{PacketSocket, system};

/// Longest time that a packet waits in a block that is not full.
pub const RETIRE_AFTER: Duration = Duration::from_millis(50);

/// Of a block; must be a multiple of the page size and hold the longest captured packet.
pub const BLOCK_BYTES: usize = 512 * 1024;

/// Largest snaplen that is sure to fit in a block with its headers.
pub const LONGEST_SNAPLEN: u32 = (BLOCK_BYTES - 4096) as u32;

const BLOCK_HEADER_BYTES: usize = mem::size_of::<libc::tpacket_block_desc>();
const STATUS_AT: usize = 8;
const PACKETS_COUNT_AT: usize = 12;
const FIRST_PACKET_AT: usize = 16;

/// Of a packet's status (linux/if_packet.h).
const TP_STATUS_TS_RAW_HARDWARE: u32 = 1 << 31;

/// Within a packet's header (`struct tpacket3_hdr`), followed by its `sockaddr_ll`.
mod field {
    pub const NEXT_OFFSET: usize = 0;
    pub const SECONDS: usize = 4;
    pub const NANOSECONDS: usize = 8;
    pub const CAPTURED_LEN: usize = 12;
    pub const ORIGINAL_LEN: usize = 16;
    pub const STATUS: usize = 20;
    pub const MAC_OFFSET: usize = 24;
    pub const VLAN_TCI: usize = 32;
    pub const VLAN_TPID: usize = 36;
    pub const SOCKADDR: usize = 48;
    pub const PACKET_TYPE: usize = SOCKADDR + 10;
}

/// A VLAN tag that the kernel took out of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    pub tpid: u16,
    pub tci: u16,
}

/// One packet in a block.
#[derive(Debug, Clone, Copy)]
pub struct RingPacket<'block> {
    pub host_ns: u64,
    pub frame: &'block [u8],
    pub original_len: u32,
    pub vlan: Option<VlanTag>,
    /// PACKET_HOST, PACKET_OUTGOING … (packet(7)).
    pub packet_type: u8,
    /// It has a checksum, which has not been verified.
    pub is_unchecked: bool,
    /// `host_ns` is by the card's clock.
    pub is_hardware: bool,
}

/// The ring of one interface.
#[derive(Debug)]
pub struct Ring {
    pub socket: PacketSocket,
    map: NonNull<u8>,
    blocks_count: usize,
    next_block: usize,
}

// SAFETY: the map belongs to this ring alone; nothing of it is tied to the thread that made it.
unsafe impl Send for Ring {}

impl Ring {
    /// What it takes of memory.
    pub fn size_bytes(&self) -> usize {
        self.blocks_count * BLOCK_BYTES
    }

    /// Maps a ring of at least one block on a socket.
    pub fn map(socket: PacketSocket, ring_bytes: usize) -> Result<Self, CaptureError> {
        let too_large = |errno| match errno {
            Errno::ENOMEM => CaptureError::RingTooLarge {
                name: socket.name.clone(),
                ring_bytes,
            },
            other => system("mapping the capture ring", other),
        };
        let blocks_count = (ring_bytes / BLOCK_BYTES).max(1);
        request_ring(&socket, blocks_count).map_err(too_large)?;
        // SAFETY: a fresh shared map of exactly the ring that the kernel allocated for this descriptor, at an address
        // of its choice.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                blocks_count * BLOCK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.fd().as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(too_large(Errno::last()));
        }
        let map = NonNull::new(map.cast()).expect("mmap returns no null");
        Ok(Ring {
            socket,
            map,
            blocks_count,
            next_block: 0,
        })
    }

    /// The next block that the kernel has handed over, if any; it goes back when dropped.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        // SAFETY: next_block < blocks_count, so the block lies within the map.
        let start = unsafe { self.map.add(self.next_block * BLOCK_BYTES) };
        // SAFETY: the status word is aligned (blocks are page-aligned), lives as long as the map, and is shared with
        // the kernel, so it is only touched as an atomic.
        let status: &AtomicU32 = unsafe { AtomicU32::from_ptr(start.add(STATUS_AT).cast().as_ptr()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.next_block = (self.next_block + 1) % self.blocks_count;
        // SAFETY: the acquire above saw that the block is ours: until `status` is given back, in drop, the kernel
        // writes nothing to it. The slice begins behind the status word.
        let (packets_count, first_packet, body) = unsafe {
            (
                start.add(PACKETS_COUNT_AT).cast::<u32>().read(),
                start.add(FIRST_PACKET_AT).cast::<u32>().read(),
                std::slice::from_raw_parts(start.add(BLOCK_HEADER_BYTES).as_ptr(), BLOCK_BYTES - BLOCK_HEADER_BYTES),
            )
        };
        Some(Block {
            status,
            body,
            packets_left: packets_count,
            at: first_packet as usize - BLOCK_HEADER_BYTES,
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; blocks borrow the ring, so none is alive.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.blocks_count * BLOCK_BYTES) };
    }
}

fn request_ring(socket: &PacketSocket, blocks_count: usize) -> Result<(), Errno> {
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    socket.set_option(libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
    let frame_bytes = 2048; // not used by V3, but must divide the block
    let request = libc::tpacket_req3 {
        tp_block_size: BLOCK_BYTES as u32,
        tp_block_nr: blocks_count as u32,
        tp_frame_size: frame_bytes,
        tp_frame_nr: (blocks_count * BLOCK_BYTES) as u32 / frame_bytes,
        tp_retire_blk_tov: RETIRE_AFTER.as_millis() as u32,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    socket.set_option(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

/// A block of packets that is ours until dropped; iterates over them.
#[derive(Debug)]
pub struct Block<'ring> {
    status: &'ring AtomicU32,
    body: &'ring [u8],
    packets_left: u32,
    at: usize,
}

impl Block<'_> {
    /// The next packet of the block.
    pub fn next_packet(&mut self) -> Option<RingPacket<'_>> {
        self.packets_left = self.packets_left.checked_sub(1)?;
        let header = &self.body[self.at..];
        let packet = packet_at(header);
        self.at += native_u32(header, field::NEXT_OFFSET) as usize;
        Some(packet)
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

fn packet_at(header: &[u8]) -> RingPacket<'_> {
    let frame_start = usize::from(native_u16(header, field::MAC_OFFSET));
    let frame_len = native_u32(header, field::CAPTURED_LEN) as usize;
    let status = native_u32(header, field::STATUS);
    let tpid = match status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => libc::ETH_P_8021Q as u16,
        _ => native_u16(header, field::VLAN_TPID),
    };
    let seconds = u64::from(native_u32(header, field::SECONDS));
    RingPacket {
        host_ns: seconds * 1_000_000_000 + u64::from(native_u32(header, field::NANOSECONDS)),
        frame: &header[frame_start..frame_start + frame_len],
        original_len: native_u32(header, field::ORIGINAL_LEN),
        vlan: (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| VlanTag {
            tpid,
            tci: native_u32(header, field::VLAN_TCI) as u16,
        }),
        packet_type: header[field::PACKET_TYPE],
        is_unchecked: status & (libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID) == 0,
        is_hardware: status & TP_STATUS_TS_RAW_HARDWARE != 0,
    }
}

fn native_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn native_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, poll};

    use super::*;
    use crate::filter::Instruction;

    #[test]
    fn the_status_says_who_stamped_a_packet() {
        let header = |status: u32| {
            let mut header = [0; 64];
            header[field::STATUS..field::STATUS + 4].copy_from_slice(&status.to_ne_bytes());
            header[field::NANOSECONDS] = 7;
            header
        };
        for (status, is_hardware) in [
            (0, false),
            (1 << 29 | 1, false),
            (1 << 31, true),
            (1 << 31 | 1 << 29, true),
        ] {
            let header = header(status);
            let packet = packet_at(&header);
            assert_eq!((packet.is_hardware, packet.host_ns), (is_hardware, 7), "{status:#x}");
        }
    }

    const BLOCKS: usize = 2;
    const PAYLOAD_LEN: usize = 1400;
    /// Of a burst; five make more than the ring holds.
    const PACKETS: usize = 200;
    const HEADERS_LEN: usize = 14 + 20 + 8;

    /// A ring on loopback that holds what is sent to a UDP port over IPv4; `None` without the right to capture.
    fn ring(port: u16) -> Option<Ring> {
        let socket = match PacketSocket::open("lo") {
            Err(CaptureError::NotPermitted) => return None,
            opened => opened.expect("lo exists"),
        };
        socket.leave_out_sent();
        let step = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let (load_port, is_port) = (step(0x28, 0, 0, 36), step(0x15, 0, 1, u32::from(port)));
        let program = [load_port, is_port, step(0x06, 0, 0, u32::MAX), step(0x06, 0, 0, 0)];
        socket.attach_filter(&program).expect("a filter");
        let ring = Ring::map(socket, BLOCKS * BLOCK_BYTES).expect("a small ring");
        ring.socket.receive().expect("lo is up");
        Some(ring)
    }

    /// How many packets the ring holds, up to `most`, each checked. Waits until nothing comes for a while.
    fn drain(ring: &mut Ring, most: usize) -> usize {
        let mut seen = 0;
        while seen < most {
            let Some(mut block) = ring.next_block() else {
                let mut wanted = [PollFd::new(ring.socket.fd().as_fd(), PollFlags::POLLIN)];
                match poll(&mut wanted, 1_000_u16).expect("no signal comes") {
                    0 => break,
                    _ => continue,
                }
            };
            while let Some(packet) = block.next_packet() {
                assert!(packet.host_ns > 0);
                assert_eq!(packet.original_len as usize, HEADERS_LEN + PAYLOAD_LEN);
                assert_eq!(packet.frame.len(), HEADERS_LEN + PAYLOAD_LEN);
                let payload = &packet.frame[HEADERS_LEN..];
                assert!(
                    payload.iter().all(|&byte| byte == payload[0]),
                    "bytes of another packet"
                );
                seen += 1;
            }
        }
        seen
    }

    #[test]
    fn blocks_go_round_and_an_overflowing_ring_holds_whole_packets() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let to = receiver.local_addr().expect("bound");
        let Some(mut ring) = ring(to.port()) else {
            return eprintln!("skipped: may not open a packet socket");
        };
        let burst = |count: usize| {
            (0..count).for_each(|number| {
                receiver
                    .send_to(&[number as u8; PAYLOAD_LEN], to)
                    .expect("loopback takes all");
            });
        };
        for _ in 0..2 * BLOCKS + 1 {
            burst(PACKETS);
            assert_eq!(drain(&mut ring, PACKETS), PACKETS);
        }
        burst(5 * PACKETS);
        let kept = drain(&mut ring, usize::MAX);
        assert!(
            (PACKETS..5 * PACKETS).contains(&kept),
            "{kept} packets of an overflowing ring"
        );
        assert!(ring.socket.statistics().1 > 0);
        burst(PACKETS);
        assert_eq!(drain(&mut ring, PACKETS), PACKETS, "it goes on after it was full");
    }
}
