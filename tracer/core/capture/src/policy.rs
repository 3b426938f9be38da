//! The payload policy: how much of a packet's payload is written to disk (nothing, message heads, or the first bytes).
//! Secrets are written only if the operator asks for it.

use std::ops::Range;
use std::str::FromStr;

use twintap_protocols::parts::blank_beside;
use twintap_protocols::protocol::Parts;
use twintap_protocols::{fixed_bytes, redaction, registry};
use twintap_secrets::SecretRules;

use crate::connections::Connections;
use crate::cut_hellos::Continuation;
use crate::error::CaptureError;
use crate::heads;
use crate::layout::{Layout, locate};
use crate::pcapng::LinkType;

/// At most this much of a message head is kept; Swift's and S3's are well below it.
pub const HEAD_LIMIT_BYTES: usize = 2048;

/// Messages are looked for in this much of a payload. A pipeline of 100 Redis commands on counters is 2,700 bytes long, of
/// which 2,300 name commands and keys or are lengths.
pub const MESSAGES_LIMIT_BYTES: usize = 4096;

/// Room for all headers before the payload: Ethernet with two tags (22), IPv6 with some extension headers, TCP (60).
pub const HEADERS_LIMIT_BYTES: u32 = 256;

/// What the operator chose with `--payload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadPolicy {
    /// Headers only.
    None,
    /// Headers, and the parts of the payload that its protocol allows: the head of an HTTP message, the headers of TLS
    /// records, of HTTP/2 frames those and their header blocks, or fixed first bytes.
    Heads,
    /// Headers and the first bytes of any payload.
    Bytes(u32),
}

/// The part of a frame that is kept.
#[derive(Debug, Clone)]
pub struct KeptPart {
    /// Bytes from the frame's start.
    pub captured_len: usize,
    /// Bytes of the payload that continue a message which began in an earlier packet; none of them is kept.
    behind: Range<usize>,
    /// Range of the rest of the payload within the captured bytes.
    payload: Range<usize>,
    content: Content,
}

/// A packet: its bytes as far as they were captured, and where it was seen.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    pub interface: u32,
    pub link_type: LinkType,
    pub frame: &'a [u8],
    /// Length of the frame on the wire.
    pub original_len: u32,
}

/// How a payload is redacted.
#[derive(Debug, Clone)]
enum Content {
    /// It begins with a message head.
    Framed,
    Unframed,
    /// Only parts of it are kept, such as the headers of TLS records.
    Parts(Parts),
    /// Only these ranges of it are kept.
    Ranges(Vec<Range<usize>>),
}

impl PayloadPolicy {
    /// How much of a packet the kernel must hand over for this policy.
    pub fn snaplen(self) -> u32 {
        match self {
            PayloadPolicy::None => HEADERS_LIMIT_BYTES,
            PayloadPolicy::Heads => HEADERS_LIMIT_BYTES + MESSAGES_LIMIT_BYTES as u32,
            PayloadPolicy::Bytes(len) => HEADERS_LIMIT_BYTES.saturating_add(len),
        }
    }

    /// What to keep of a packet; `None` if it is no TCP packet. With [`PayloadPolicy::Heads`], messages are followed from
    /// one packet of a connection to the next.
    pub fn keep(self, packet: &Packet<'_>, connections: &mut Connections) -> Option<KeptPart> {
        match locate(packet.link_type, packet.frame) {
            Layout::NotTcp => None,
            Layout::Fragment { headers_len } => Some(KeptPart::nothing(headers_len.min(packet.frame.len()))),
            Layout::Tcp(segment) if self == PayloadPolicy::Heads => Some(heads::keep(packet, &segment, connections)),
            Layout::Tcp(segment) => {
                let payload = &packet.frame[segment.payload.clone()];
                let head_len = match self {
                    PayloadPolicy::None => 0,
                    _ => redaction::head_len(payload),
                };
                Some(self.keep_payload(payload, segment.payload.start, head_len))
            }
        }
    }

    /// What to keep of a payload that begins `start` bytes after its frame, judged by itself; of messages nothing but
    /// heads and fixed first bytes.
    ///
    /// Arguments: `head_len` of the text head that it begins with, 0 if it begins with none.
    pub(crate) fn keep_payload(self, payload: &[u8], start: usize, head_len: usize) -> KeptPart {
        let fixed_len = match self {
            PayloadPolicy::None => 0,
            _ if head_len > 0 => 0,
            PayloadPolicy::Bytes(_) if is_redacted_by_frames(payload) => 0,
            _ => fixed_bytes::fixed_len(payload),
        };
        let len = match self {
            PayloadPolicy::None => 0,
            PayloadPolicy::Heads => head_len.min(HEAD_LIMIT_BYTES) + fixed_len,
            PayloadPolicy::Bytes(limit) => payload.len().min(limit as usize),
        };
        KeptPart {
            captured_len: start + len,
            behind: 0..0,
            payload: start + fixed_len.min(len)..start + len,
            content: if head_len > 0 {
                Content::Framed
            } else {
                Content::Unframed
            },
        }
    }
}

/// Whether a payload consists of frames whose protocol redacts them itself, from the first byte on.
fn is_redacted_by_frames(payload: &[u8]) -> bool {
    let own = registry::of_payload(payload).filter(|protocol| protocol.redact_around.is_some());
    own.filter_map(|protocol| protocol.agent.parts())
        .any(|parts| (parts.kept_len)(payload, MESSAGES_LIMIT_BYTES) > 0)
}

impl FromStr for PayloadPolicy {
    type Err = CaptureError;

    /// Reads `none`, `heads` (or `http`, its name until other protocols had heads) or a number of bytes.
    fn from_str(text: &str) -> Result<Self, CaptureError> {
        match (text, text.parse()) {
            ("none", _) => Ok(PayloadPolicy::None),
            ("heads" | "http", _) => Ok(PayloadPolicy::Heads),
            (_, Ok(bytes)) => Ok(PayloadPolicy::Bytes(bytes)),
            _ => Err(CaptureError::UnknownPolicy { text: text.to_owned() }),
        }
    }
}

impl<'a> Packet<'a> {
    /// A packet that was captured whole, at the first interface.
    pub fn whole(link_type: LinkType, frame: &'a [u8]) -> Self {
        Self {
            interface: 0,
            link_type,
            frame,
            original_len: frame.len() as u32,
        }
    }
}

impl KeptPart {
    /// The headers alone, which end here.
    pub(crate) fn nothing(headers_len: usize) -> Self {
        Self {
            captured_len: headers_len,
            behind: 0..0,
            payload: 0..0,
            content: Content::Framed,
        }
    }

    /// Parts of messages, of which the first begins `at` bytes after the start of the payload, and the last part ends
    /// `len` bytes later.
    pub(crate) fn of_parts(parts: Parts, start: usize, at: usize, len: usize) -> Self {
        let end = start + at + len;
        Self {
            captured_len: end,
            behind: start..start + at,
            payload: start + at..end,
            content: Content::Parts(parts),
        }
    }

    /// Ranges of a payload that continues a hello of TLS.
    pub(crate) fn of_ranges(start: usize, kept: Continuation) -> Self {
        let end = start + kept.captured_len;
        Self {
            captured_len: end,
            behind: 0..0,
            payload: start..end,
            content: Content::Ranges(kept.parts),
        }
    }

    /// The same with as many bytes more as the frame has up to `end`; those that nothing allows are overwritten.
    pub(crate) fn extended_to(self, end: usize) -> Self {
        Self {
            captured_len: end,
            payload: self.payload.start..end,
            ..self
        }
    }

    /// Overwrites the credentials in a copy of the frame's first `captured_len` bytes.
    pub fn redact(&self, rules: &SecretRules, captured: &mut [u8]) {
        captured[self.behind.clone()].fill(0);
        let payload = &mut captured[self.payload.clone()];
        match &self.content {
            Content::Framed => redaction::redact_head(rules, payload),
            Content::Unframed => redaction::redact_unframed(rules, payload),
            Content::Parts(parts) => (parts.blank)(payload, rules),
            Content::Ranges(kept) => blank_beside(payload, kept.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0; 40];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        ip[9] = 6;
        ip[32] = 0x50;
        ip.extend(payload);
        ip
    }

    fn keep(policy: PayloadPolicy, frame: &[u8]) -> Option<KeptPart> {
        policy.keep(&Packet::whole(LinkType::RawIp, frame), &mut Connections::default())
    }

    fn bytes_kept(policy: PayloadPolicy, frame: &[u8]) -> Vec<u8> {
        let kept = keep(policy, frame).expect("TCP");
        let mut captured = frame[..kept.captured_len].to_vec();
        kept.redact(SecretRules::built_in(), &mut captured);
        captured[40..].to_vec()
    }

    #[test]
    fn each_policy_keeps_its_part() {
        let head = b"PUT /v1/a/c/o HTTP/1.1\r\nContent-Length: 4\r\nX-Auth-Token: AUTH_tk1\r\n\r\n";
        let redacted = b"PUT /v1/a/c/o HTTP/1.1\r\nContent-Length: 4\r\nX-Auth-Token: xxxxxxxx\r\n\r\n";
        let frame = packet(&[&head[..], b"body"].concat());
        assert_eq!(bytes_kept(PayloadPolicy::None, &frame), b"");
        assert_eq!(bytes_kept(PayloadPolicy::Heads, &frame), redacted);
        assert_eq!(bytes_kept(PayloadPolicy::Bytes(10), &frame), &redacted[..10]);
        assert_eq!(
            bytes_kept(PayloadPolicy::Bytes(9999), &frame),
            [&redacted[..], b"body"].concat()
        );
    }

    #[test]
    fn of_other_protocols_only_the_fixed_first_bytes_are_kept() {
        let frame = packet(b"INFO {\"server_id\":\"secret\"}\r\n");
        assert_eq!(bytes_kept(PayloadPolicy::None, &frame), b"");
        assert_eq!(bytes_kept(PayloadPolicy::Heads, &frame), b"INFO {\"server");
        assert_eq!(bytes_kept(PayloadPolicy::Bytes(2), &frame), b"IN");
        assert_eq!(
            bytes_kept(PayloadPolicy::Bytes(99), &frame),
            b"INFO {\"serverxxxxxxxxxxxxxx\r\n"
        );
        assert_eq!(bytes_kept(PayloadPolicy::Heads, &packet(b"secret")), b"");
    }

    #[test]
    fn of_tls_the_headers_of_records_are_kept() {
        let frame = packet(b"\x17\x03\x03\0\x06secret\x17\x03\x03\0\x06secret");
        assert_eq!(bytes_kept(PayloadPolicy::None, &frame), b"");
        assert_eq!(
            bytes_kept(PayloadPolicy::Heads, &frame),
            b"\x17\x03\x03\0\x06\0\0\0\0\0\0\x17\x03\x03\0\x06"
        );
    }

    #[test]
    fn of_http2_the_headers_of_frames_are_kept() {
        let frame = packet(b"\0\0\x06\x01\x04\0\0\0\x01secret\0\0\x06\0\x01\0\0\0\x01secret");
        assert_eq!(bytes_kept(PayloadPolicy::None, &frame), b"");
        assert_eq!(
            bytes_kept(PayloadPolicy::Heads, &frame),
            b"\0\0\x06\x01\x04\0\0\0\x01\0\0\0\0\0\0\0\0\x06\0\x01\0\0\0\x01"
        );
    }

    #[test]
    fn policies_are_read_from_the_command_line() {
        assert_eq!("none".parse(), Ok(PayloadPolicy::None));
        assert_eq!("heads".parse(), Ok(PayloadPolicy::Heads));
        assert_eq!("http".parse(), Ok(PayloadPolicy::Heads));
        assert_eq!("64".parse(), Ok(PayloadPolicy::Bytes(64)));
        for text in ["", "all", "-1", "64k", "99999999999"] {
            assert!(text.parse::<PayloadPolicy>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_long_head_is_cut_and_still_redacted() {
        let head = format!("GET / HTTP/1.1\r\nCookie: {}\r\n\r\n", "s".repeat(4000));
        let captured = bytes_kept(PayloadPolicy::Heads, &packet(head.as_bytes()));
        assert_eq!(captured.len(), HEAD_LIMIT_BYTES);
        assert!(!captured.contains(&b's'));
    }

    #[test]
    fn a_fragment_keeps_no_payload() {
        let mut frame = packet(b"X-Auth-Token: secret");
        frame[7] = 1;
        let kept = keep(PayloadPolicy::Bytes(9999), &frame).expect("TCP");
        assert_eq!(kept.captured_len, 20);
    }

    #[test]
    fn what_is_not_tcp_is_not_kept() {
        let mut frame = packet(b"");
        frame[9] = 17;
        assert!(keep(PayloadPolicy::Heads, &frame).is_none());
    }
}
