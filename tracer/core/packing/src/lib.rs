//! Packed segments: what an agent sends instead of pcapng, and the collector turns back into the same bytes.
//!
//! zstd alone makes a third of a pcapng segment of headers: what does not repeat literally (times, sequence numbers,
//! checksums) stands between what does. So each packet is first compared with what its flow makes likely
//! ([`flow::Flow`]): the next sequence number, the acknowledgment of what the other direction sent, the time since its
//! last packet as a TCP timestamp, the checksum that a network card would fill in. A word of bits says which fields are
//! otherwise; only those are written, each into the stream of its kind ([`streams::Kind`]), and zstd compresses each
//! stream by itself. This is header compression as in RFC 1144 and RFC 6846, between files instead of links.
//!
//! Whatever is not a TCP packet as the agent writes it (other blocks, options of packets, fragments, tunnels) is kept
//! as it is in a stream of its own. `unpack(pack(bytes)) == bytes` for all bytes; a receiver checks it by the hash.
//!
//! Layout: [`MAGIC`]; the length of each stream, as LEB128; a zstd frame of the short streams, one after the other; a
//! zstd frame of each other stream. Before each frame its length, as LEB128.
//!
//! Not handled: anything between segments. Each is packed by itself, so it can be sent again, lost or reordered.

mod block;
mod checksums;
mod flow;
mod packer;
mod streams;
mod unpacker;

pub use packer::pack;
pub use streams::STREAM_COUNT;
pub use unpacker::{UnpackError, unpack};

/// The first bytes of a packed segment.
pub const MAGIC: &[u8; 8] = b"\x9etwpack1";
