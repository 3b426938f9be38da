//! Bodies of the targets of what the agent keeps of a packet.
//!
//! Run by cargo-fuzz (`fuzz_targets/`) and, over the committed corpus and mutations of it, by
//! `capture/tests/fuzz_bodies.rs`.

use twintap_capture::connections::{Connections, Place};
use twintap_capture::cut_hellos::CutHellos;
use twintap_capture::pcapng::LinkType;
use twintap_capture::policy::{HEAD_LIMIT_BYTES, MESSAGES_LIMIT_BYTES, Packet, PayloadPolicy};
use twintap_protocols::tls::hellos::{self, Keeping};
use twintap_protocols::tls::{self, payload_policy};
use twintap_secrets::SecretRules;
use twintap_wire::link;
use twintap_wire::packet::walk;

const POLICIES: [PayloadPolicy; 4] = [
    PayloadPolicy::None,
    PayloadPolicy::Heads,
    PayloadPolicy::Bytes(9),
    PayloadPolicy::Bytes(u32::MAX),
];

/// Invariant: what is kept is a beginning of the frame, redacting leaves its headers alone, and the collector reads the
/// same segment from it as from the whole frame. The first byte is the link type.
pub fn kept_frame(data: &[u8]) {
    let Some((&kind, frame)) = data.split_first() else {
        return;
    };
    let (ours, theirs) = match kind & 1 {
        0 => (LinkType::Ethernet, link::LinkType(1)),
        _ => (LinkType::RawIp, link::LinkType(101)),
    };
    let original_len = frame.len() as u32;
    let whole = walk(theirs, frame, original_len).ok();
    for policy in POLICIES {
        let packet = Packet::whole(ours, frame);
        let Some(kept) = policy.keep(&packet, &mut Connections::default()) else {
            continue;
        };
        assert!(kept.captured_len <= frame.len());
        let mut captured = frame[..kept.captured_len].to_vec();
        kept.redact(SecretRules::built_in(), &mut captured);
        assert_eq!(captured.len(), kept.captured_len);
        let Some(whole) = &whole else { continue };
        let cut = walk(theirs, &captured, original_len).expect("its headers are kept");
        assert_eq!(
            (cut.tcp, cut.payload_len, cut.ip_id),
            (whole.tcp, whole.payload_len, whole.ip_id)
        );
        match policy {
            PayloadPolicy::None => assert!(cut.payload.is_empty()),
            PayloadPolicy::Bytes(u32::MAX) => assert_eq!(cut.payload.len(), whole.payload.len()),
            _ => assert!(cut.payload.len() <= MESSAGES_LIMIT_BYTES + 64),
        }
    }
}

/// What the hello at the start of records asks for, or chooses.
fn hello_of(records: &[u8]) -> (Option<Vec<u8>>, Option<u16>) {
    let message = hellos::message_of(records);
    let asked = hellos::client_hello(&message).map(|hello| hello.server_name.to_vec());
    let asked = asked.filter(|name| !name.is_empty()); // of a hello that ends before any name nothing need be kept
    (asked, hellos::server_hello(&message).and_then(|hello| hello.version))
}

/// Invariant: the parts of TLS records that are kept are ascending and disjoint; all else is overwritten; and what is
/// left shows the collector the same records and hellos. And that of [`cut_hellos`].
pub fn tls_records(data: &[u8]) {
    cut_hellos(data);
    for limit in [0, 7, HEAD_LIMIT_BYTES] {
        let parts: Vec<_> = payload_policy::kept_parts(data, limit).collect();
        assert!(
            parts
                .iter()
                .all(|part| !part.is_empty() && part.end <= data.len().min(limit))
        );
        assert!(parts.is_sorted_by(|one, next| one.end <= next.start), "records overlap");
        let kept_len = payload_policy::kept_len(data, limit);
        assert_eq!(kept_len, parts.last().map_or(0, |part| part.end));
        let mut left = data[..kept_len].to_vec();
        payload_policy::blank(&mut left, SecretRules::built_in());
        for (at, (&left, &given)) in left.iter().zip(data).enumerate() {
            let is_kept = parts.iter().any(|part| part.contains(&at));
            assert_eq!(left, if is_kept { given } else { 0 }, "byte {at}");
        }
        let inspected = &data[..data.len().min(limit)];
        let (mut at, mut hello_end) = (0, 0);
        while let (Some(whole), Some(kept)) = (inspected.get(at..), left.get(at..))
            && let Some(record) = tls::parse(whole)
            && at < kept_len
        {
            let seen = tls::parse(kept).map(|head| (head.status, head.len));
            assert_eq!(seen, Some((record.status, record.len)));
            if at >= hello_end
                && let Some(hello) = hellos::parts_of_records(whole, Keeping::Agent)
            {
                assert_eq!(hello_of(kept), hello_of(whole));
                hello_end = at + hello.records_len;
            }
            at += record.len as usize;
        }
    }
}

/// Invariant: of a hello that two packets cut, a packet shows what it shows in the whole, and nothing else.
fn cut_hellos(data: &[u8]) {
    let whole: Vec<_> = payload_policy::kept_parts(data, data.len()).collect();
    for cut in [data.len() / 4, data.len() / 2, data.len().saturating_sub(9)] {
        let (first, second) = data.split_at(cut);
        if !CutHellos::is_cut(first, first.len() as u32) {
            continue;
        }
        let place = |seq: usize, part: &[u8]| Place {
            seq: seq as u32,
            len: part.len() as u32,
        };
        let mut hellos = CutHellos::default();
        hellos.begin(7, place(0, first), first);
        let Some(kept) = hellos.continue_with(7, place(cut, second), second) else {
            assert!(second.is_empty());
            continue;
        };
        let shown = whole.iter().filter(|part| part.end > cut);
        let expected: Vec<_> = shown.map(|part| part.start.max(cut) - cut..part.end - cut).collect();
        assert_eq!(kept.parts, expected);
        assert!(kept.captured_len <= second.len());
        assert!(kept.parts.last().is_none_or(|last| last.end <= kept.captured_len));
    }
}
