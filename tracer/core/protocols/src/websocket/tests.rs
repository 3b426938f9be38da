use super::payload_policy::{blank, kept_len, redact_around};
use super::*;
use crate::protocol::{ReadFrame, Scan};

/// A frame: first byte, key if it is masked, payload.
fn frame(first: u8, key: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let masked = if key.is_some() { MASKED } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(len as u8 | masked),
        len @ 126..65536 => {
            bytes.push(126 | masked);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(127 | masked);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(key.unwrap_or_default().iter().take(if key.is_some() { 4 } else { 0 }));
    let key = key.unwrap_or_default();
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]));
    bytes
}

const KEY: Option<[u8; 4]> = Some(*b"\x01\xa2\x03\xf4");

/// Place, name, flags, length of the payload, code.
type FrameRow = (i64, String, u8, i64, u16);

fn read_frame(read: &ReadFrame<'_>, base: i64) -> FrameRow {
    let bytes = [read.header, read.said].concat();
    let mut found = None;
    let excerpt = Excerpt {
        bytes: &bytes,
        stream_len: read.header.len() as u32,
    };
    super::read(&excerpt, &mut |_, head| {
        let name = String::from_utf8_lossy(head.method).into_owned();
        found = Some((
            base + i64::from(read.at),
            name,
            head.flags,
            head.content_length,
            head.status,
        ));
    });
    found.expect("a frame")
}

/// The frames in pieces of a direction, and whether it can be read to its end.
fn scan(pieces: &[&[u8]]) -> (Vec<FrameRow>, bool) {
    let (mut scanner, mut found) = (scanner::FrameScanner::default(), Vec::new());
    let (mut at, mut skip) = (0_i64, 0_usize);
    for piece in pieces {
        let skipped = skip.min(piece.len());
        skip -= skipped;
        let (base, rest) = (at + skipped as i64, &piece[skipped..]);
        at += piece.len() as i64;
        if rest.is_empty() {
            continue;
        }
        match scanner.scan(rest, &mut |read| found.push(read_frame(read, base))) {
            Scan::Skip(len) => skip = len as usize,
            Scan::End => return (found, false),
        }
    }
    (found, true)
}

fn conversation(key: Option<[u8; 4]>) -> (Vec<u8>, Vec<FrameRow>) {
    let masked = if key.is_some() { flag::MASKED } else { 0 };
    let said: &[(u8, &[u8], &str, u8, u16)] = &[
        (0x81, b"hello", "text", flag::FINAL, 0),
        (0x02, &[7; 300], "binary", 0, 0),
        (0x89, b"?", "ping", flag::FINAL, 0),
        (0x00, b"", "continuation", 0, 0),
        (0x80, &[9; 70_000], "continuation", flag::FINAL, 0),
        (0xc1, b"\xf2\x48", "text", flag::FINAL | flag::COMPRESSED, 0),
        (0x8a, b"", "pong", flag::FINAL, 0),
        (0x88, b"\x03\xe9going away", "close", flag::FINAL, 1001),
        (0x88, b"", "close", flag::FINAL, 0),
    ];
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    for &(first, payload, name, flags, code) in said {
        found.push((
            bytes.len() as i64,
            name.to_owned(),
            flags | masked,
            payload.len() as i64,
            code,
        ));
        bytes.extend(frame(first, key, payload));
    }
    (bytes, found)
}

#[test]
fn frames_are_found_wherever_packets_cut_them() {
    for key in [None, KEY] {
        let (bytes, expected) = conversation(key);
        assert_eq!(scan(&[&bytes]), (expected.clone(), true));
        let near_headers = expected.iter().flat_map(|one| one.0 as usize..one.0 as usize + 20);
        for cut in near_headers.filter(|cut| *cut <= bytes.len()) {
            let (one, two) = bytes.split_at(cut);
            assert_eq!(scan(&[one, two]), (expected.clone(), true), "cut at {cut}");
        }
        let drops: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(scan(&drops), (expected, true), "byte by byte");
    }
}

#[test]
fn what_is_no_frame_ends_the_reading() {
    let hello = frame(0x81, None, b"hello");
    for other in [
        &b"\x91\x01!"[..],
        b"\x83\x01!",
        b"\x8b\x00",
        b"\x09\x00",
        b"\x89\x7e\x00\x7e",
        b"\xc8\x00",
        b"\x81\x7e\x00\x05hello",
        b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n",
    ] {
        let (found, is_whole) = scan(&[&hello, other]);
        assert_eq!((found.len(), is_whole), (1, false), "{other:?}");
    }
}

#[test]
fn a_length_beyond_all_packets_is_skipped_in_steps() {
    let mut scanner = scanner::FrameScanner::default();
    let huge = b"\x82\x7f\x00\x00\x00\x01\x00\x00\x00\x00";
    let mut lens = Vec::new();
    let mut scan = |bytes: &[u8]| scanner.scan(bytes, &mut |read| lens.push(read_frame(read, 0).3));
    let steps: Vec<Scan> = [&huge[..], b"", b"", b"", b""].map(&mut scan).to_vec();
    assert_eq!(steps[..4], [Scan::Skip(1 << 30); 4]);
    assert_eq!((steps[4], lens), (Scan::Skip(0), vec![1 << 32]));
}

#[test]
fn behind_a_loss_the_next_frame_says_so() {
    let mut scanner = scanner::FrameScanner::default();
    let mut found = Vec::new();
    let mut note = |read: &ReadFrame<'_>| found.push(read_frame(read, 0));
    scanner.scan(&frame(0x88, KEY, b"\x03\xe8")[..7], &mut note);
    scanner.lose(&mut note);
    scanner.scan(&frame(0x81, None, b"a"), &mut note);
    scanner.scan(&frame(0x81, None, b"b"), &mut note);
    let flags: Vec<(String, u8, u16)> = found.into_iter().map(|one| (one.1, one.2, one.4)).collect();
    let close = ("close".to_owned(), flag::FINAL | flag::MASKED, 0);
    let text = |more: u8| ("text".to_owned(), flag::FINAL | more, 0);
    assert_eq!(flags, [close, text(flag::AFTER_GAP), text(0)]);
}

fn captured_bytes(payload: &[u8]) -> Vec<u8> {
    let mut captured = payload[..kept_len(payload, 2048)].to_vec();
    blank(&mut captured);
    captured
}

#[test]
fn an_agent_keeps_headers_without_keys_and_the_codes_of_closes() {
    let secret = b"secret secret secret";
    let cases: &[(Vec<u8>, Vec<u8>)] = &[
        (frame(0x81, None, secret), b"\x81\x14".to_vec()),
        (frame(0x82, KEY, secret), b"\x82\x94\0\0\0\0".to_vec()),
        (
            frame(0x88, KEY, b"\x03\xe8secret"),
            b"\x88\x88\0\0\0\0\x03\xe8".to_vec(),
        ),
        (
            [frame(0x81, KEY, b"secret"), frame(0x89, KEY, b"")].concat(),
            b"\x81\x86\0\0\0\0\0\0\0\0\0\0\x89\x80\0\0\0\0".to_vec(),
        ),
        (
            frame(0x82, None, &[7; 3000])[..1448].to_vec(),
            b"\x82\x7e\x0b\xb8".to_vec(),
        ),
        (
            [frame(0x81, None, b"hi"), frame(0x81, None, secret)[..9].to_vec()].concat(),
            b"\x81\x02\0\0\x81\x14".to_vec(),
        ),
        (frame(0x81, None, secret)[..9].to_vec(), vec![]), // it may be anything
        (b"\x81secret".to_vec(), vec![]),
        ("\u{a3}5 for a secret".as_bytes().to_vec(), vec![]),
        (b"secret".to_vec(), vec![]),
        (vec![], vec![]),
    ];
    for (payload, expected) in cases {
        assert_eq!(captured_bytes(payload), *expected, "{payload:?}");
        assert_eq!(captured_bytes(expected), *expected, "kept again");
        (0..payload.len()).for_each(|len| drop(captured_bytes(&payload[..len])));
    }
}

#[test]
fn copies_hold_no_payload_that_rules_cannot_read() {
    let redact = |payload: &[u8]| {
        let mut bytes = payload.to_vec();
        redact_around(&mut bytes, &mut |bytes| bytes.fill(b'x'));
        bytes
    };
    assert_eq!(redact(&frame(0x81, KEY, b"secret")), b"\x81\x86\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(redact(&frame(0xc1, None, b"secret")), b"\xc1\x06\0\0\0\0\0\0");
    assert_eq!(redact(&frame(0x81, None, b"secret")), b"\x81\x06xxxxxx");
    assert_eq!(redact(b"secret"), b"xxxxxx");
}
