//! Invariant: `unpack(pack(bytes)) == bytes` for all bytes, and `unpack` of anything ends within its limit.

use std::path::Path;

use twintap_packing::{UnpackError, pack, unpack};

/// xorshift64: random enough to damage bytes, and the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

fn captures() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../captures");
    let folders = ["bench-2-puts", "swift-upload-1B"];
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).expect("a folder of captures"));
    let found: Vec<_> = files
        .map(|file| file.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "pcapng"))
        .map(|path| (path.display().to_string(), std::fs::read(&path).expect("a file")))
        .collect();
    assert!(!found.is_empty());
    found
}

/// Ends of the blocks of a capture.
fn ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some(field) = bytes
        .get(ends[ends.len() - 1] + 4..)
        .and_then(|rest| rest.first_chunk::<4>())
    {
        ends.push(ends[ends.len() - 1] + u32::from_le_bytes(*field) as usize);
    }
    ends
}

#[track_caller]
fn check(name: &str, bytes: &[u8]) {
    let packed = pack(bytes);
    assert!(unpack(&packed, bytes.len()).as_deref() == Ok(bytes), "{name}");
    if !bytes.is_empty() {
        assert_eq!(unpack(&packed, bytes.len() - 1), Err(UnpackError::TooLarge), "{name}");
    }
}

/// A packet block of a frame.
fn block(frame: &[u8], original_len: usize, host_ns: u64) -> Vec<u8> {
    let padded_len = frame.len().next_multiple_of(4);
    let total_len = 44 + padded_len as u32;
    let mut out = Vec::new();
    for word in [
        6,
        total_len,
        0,
        (host_ns >> 32) as u32,
        host_ns as u32,
        frame.len() as u32,
        original_len as u32,
    ] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(frame);
    out.resize(28 + padded_len, 0);
    out.extend_from_slice(&[2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&total_len.to_le_bytes());
    out
}

fn ipv6_frame(seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x61, 0x2a, 0xbc, 0xde];
    frame.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[6, 64]);
    frame.extend_from_slice(&[0xfd; 32]);
    frame.extend_from_slice(&[0x1f, 0x90, 0xc0, 0x01]);
    frame.extend_from_slice(&seq.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 9, 0x50, 0x18, 1, 0, 0xab, 0xcd, 0, 0]);
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn captures_come_back_as_they_were() {
    for (name, bytes) in captures() {
        check(&name, &bytes);
        assert!(pack(&bytes).len() * 3 < bytes.len(), "{name}");
    }
}

#[test]
fn bytes_that_are_no_capture_come_back() {
    let mut random = Random(7);
    check("nothing", b"");
    check("a text", b"no capture, but bytes that are long enough to be one");
    for len in 1..200 {
        let bytes: Vec<u8> = (0..len).map(|_| random.next(256) as u8).collect();
        check("random", &bytes);
    }
}

#[test]
fn ipv6_comes_back_and_is_predicted() {
    let blocks = |count: u32| -> Vec<u8> {
        (0..count)
            .flat_map(|at| block(&ipv6_frame(7 + 5 * at, b"hello"), 79, 1_000 + u64::from(at)))
            .collect()
    };
    check("IPv6", &blocks(100));
    let grown = pack(&blocks(1_000)).len() - pack(&blocks(100)).len();
    assert!(grown < 900, "{grown} bytes for 900 packets of which nothing is new");
}

#[test]
fn prefixes_and_reordered_blocks_come_back() {
    for (name, bytes) in captures().into_iter().take(3) {
        for len in (0..bytes.len()).step_by(397) {
            check(&name, &bytes[..len]);
        }
        let ends = ends(&bytes);
        let backwards: Vec<u8> = ends
            .windows(2)
            .rev()
            .flat_map(|pair| bytes[pair[0]..pair[1]].to_vec())
            .collect();
        check(&name, &backwards);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many steps")]
fn changed_bytes_come_back() {
    let mut random = Random(42);
    for (name, bytes) in captures() {
        for _ in 0..40 {
            let mut changed = bytes.clone();
            for _ in 0..=random.next(20) {
                let at = random.next(changed.len());
                changed[at] = random.next(256) as u8;
            }
            check(&name, &changed);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many steps")]
fn damaged_segments_end_within_their_limit() {
    let mut random = Random(1);
    for (name, bytes) in captures() {
        let packed = pack(&bytes);
        for cut in (0..packed.len()).step_by(131) {
            assert!(unpack(&packed[..cut], bytes.len()).is_err(), "{name}");
        }
        for _ in 0..100 {
            let mut damaged = packed.clone();
            let at = random.next(damaged.len());
            damaged[at] ^= 1 << random.next(8);
            if let Ok(content) = unpack(&damaged, bytes.len()) {
                assert!(content.len() <= bytes.len());
            }
        }
    }
}

#[test]
fn a_bomb_is_refused() {
    let packed = pack(&vec![0; 50_000_000]);
    assert!(packed.len() < 10_000);
    assert_eq!(unpack(&packed, 1_000_000), Err(UnpackError::TooLarge));
}
