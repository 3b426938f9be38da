//! Body of the target of packed segments.
//!
//! Run by cargo-fuzz (`fuzz_targets/`) and, over the committed corpus and mutations of it, by
//! `packing/tests/fuzz_bodies.rs`.

use twintap_packing::{MAGIC, STREAM_COUNT, pack, unpack};

/// More than the streams of an input can become.
const LIMIT: usize = 1 << 20;

/// Invariant: any bytes come back from their packed segment; and whatever the streams of a segment hold, what they become
/// stays within the limit and comes back as well. The first byte says which: a capture, or the lengths of the streams, a
/// byte each, and the streams.
pub fn packed_segment(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    if kind & 1 == 0 {
        comes_back(rest);
    } else if let Ok(content) = unpack(&segment_of(rest), LIMIT) {
        assert!(content.len() <= LIMIT);
        comes_back(&content);
    }
}

fn comes_back(bytes: &[u8]) {
    assert!(
        unpack(&pack(bytes), bytes.len()).is_ok_and(|again| again == bytes),
        "other bytes come back"
    );
}

/// A segment whose streams are these, each of less than 256 bytes.
fn segment_of(data: &[u8]) -> Vec<u8> {
    let (lengths, contents) = data.split_at(STREAM_COUNT.min(data.len()));
    let mut segment = MAGIC.to_vec();
    for at in 0..STREAM_COUNT {
        put_number(&mut segment, lengths.get(at).copied().unwrap_or(0).into());
    }
    let frame = zstd::bulk::compress(contents, 1).expect("memory is all that it needs");
    put_number(&mut segment, frame.len());
    segment.extend(frame);
    segment
}

/// Append a number as LEB128.
fn put_number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
