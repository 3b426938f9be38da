//! Bytes as memcached 1.6.18 and its clients sent them.

use super::*;
use crate::excerpt::{Excerpt, ExcerptColumns};
use crate::exchanges::flag;
use crate::protocol::{ReadFrame, Scan};

/// Place, length, and words of a message.
type Message = (i64, u32, String);

/// The messages of one direction whose bytes come in these pieces; of several at one place the last counts.
fn messages(pieces: &[&[u8]], from_client: bool) -> (Vec<Message>, Scan) {
    let mut scanner = (SCANNING.scanner)(from_client);
    let (mut found, mut at, mut skip, mut last) = (Vec::new(), 0_i64, 0_usize, Scan::Skip(0));
    for piece in pieces {
        let skipped = skip.min(piece.len());
        (skip, at) = (skip - skipped, at + skipped as i64);
        if skipped == piece.len() {
            last = Scan::Skip(skip as u32);
            continue;
        }
        let rest = &piece[skipped..];
        last = scanner.scan(rest, &mut |read| push(at, read, &mut found));
        at += rest.len() as i64;
        match last {
            Scan::Skip(len) => skip = len as usize,
            Scan::End => break,
        }
    }
    let keys: Vec<(i64, bool)> = found.iter().map(|one| (one.0, one.2.starts_with("mark"))).collect();
    let is_last = |place: usize| !keys[place + 1..].contains(&keys[place]);
    let found = found.into_iter().enumerate();
    (
        found.filter(|(place, _)| is_last(*place)).map(|(_, one)| one).collect(),
        last,
    )
}

fn push(base: i64, read: &ReadFrame<'_>, found: &mut Vec<Message>) {
    let mut excerpts = ExcerptColumns::default();
    excerpts.push_parts(1, read.at, 0, [read.header, read.said]);
    let excerpt = Excerpt {
        bytes: excerpts.bytes.row(0),
        stream_len: excerpts.stream_len[0],
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
    kept_messages::read(&KINDS, &excerpt, &mut |_, head| {
        let words = match head.kind {
            COMMAND => [text(head.method), text(head.target)].join(" ").trim_end().to_owned(),
            ANSWER => error(head.result_code).expect("a code").0.to_owned(),
            _ => format!("mark {} {}", text(head.method), head.status),
        };
        let batch = if head.flags & flag::BATCH != 0 { " (batch)" } else { "" };
        let bare = if head.flags & flag::NO_ANSWER != 0 {
            " (no answer)"
        } else {
            ""
        };
        found.push((base + i64::from(read.at), head.len, format!("{words}{batch}{bare}")));
    });
}

fn words(found: &[Message]) -> Vec<&str> {
    found.iter().map(|one| one.2.as_str()).collect()
}

const COMMANDS: &[(&[u8], &[&str])] = &[
    (b"set user:1234 0 60 6\r\nsecret\r\n", &["set user:*"]),
    (b"set auth 0 0 12\r\nuser secret1\r\n", &["set auth"]),
    (
        b"add a 0 0 4 noreply\r\n\r\n\r\n\r\n",
        &["add a (no answer)", "mark noreply 2"],
    ),
    (b"cas a 0 0 1 77\r\nx\r\n", &["cas a"]),
    (b"cas noreply 0 0 1 77\r\nx\r\n", &["cas noreply"]),
    (b"get user:1 user:2 user:3\r\n", &["get user:*"]),
    (b"get a noreply\r\n", &["get a"]),
    (b"gets 550e8400-e29b-41d4-a716-446655440000\r\n", &["gets *"]),
    (b"gat 60 user:7\r\n", &["gat user:*"]),
    (b"delete a noreply\r\n", &["delete a (no answer)", "mark noreply 2"]),
    (b"delete noreply\r\n", &["delete noreply"]),
    (b"incr counter:9 5\r\n", &["incr counter:*"]),
    (b"touch a 10 noreply\r\n", &["touch a (no answer)", "mark noreply 2"]),
    (b"mg user:1 t v\r\n", &["mg user:*"]),
    (b"ms user:1 6 T60\r\nsecret\r\n", &["ms user:*"]),
    (b"md user:1\r\n", &["md user:*"]),
    (b"mg a:1 v q\r\nmg b v q\r\nmn\r\n", &["mg a:* (batch)"]),
    (b"mn\r\n", &["mn"]),
    (b"flush_all noreply\r\n", &["flush_all (no answer)", "mark noreply 2"]),
    (b"stats items\r\n", &["stats"]),
    (b"version\r\n", &["version"]),
    (b"watch fetchers\r\n", &["watch", "mark watch 1"]),
    (b"quit\r\n", &[]),
];

#[test]
fn a_command_is_named_by_its_word_and_the_shape_of_its_key() {
    for (bytes, expected) in COMMANDS {
        let (found, last) = messages(&[bytes], true);
        assert_eq!(last, Scan::Skip(0), "{:?}", String::from_utf8_lossy(bytes));
        assert_eq!(words(&found), *expected);
        assert!(found.iter().all(|one| one.0 == 0));
        assert!(
            found.first().is_none_or(|one| one.1 as usize == bytes.len()),
            "{found:?}"
        );
    }
}

const ANSWERS: &[(&[u8], &str)] = &[
    (b"STORED\r\n", "OK"),
    (
        b"VALUE user:1 0 7\r\nEND\r\n\r\n\r\nVALUE user:2 0 1 99\r\nx\r\nEND\r\n",
        "OK",
    ),
    (b"END\r\n", "OK"),
    (b"NOT_FOUND\r\n", "OK"),
    (b"12345678901234567890\r\n", "OK"),
    (b"VA 6 t60\r\nsecret\r\n", "OK"),
    (b"HD\r\n", "OK"),
    (b"HD t60 c7\r\n", "OK"),
    (b"EN\r\n", "OK"),
    (b"MN\r\n", "OK (batch)"),
    (b"STAT pid 1\r\nSTAT uptime 2\r\nEND\r\n", "OK"),
    (b"VERSION 1.6.18\r\n", "OK"),
    (b"ERROR\r\n", "ERROR"),
    (b"CLIENT_ERROR bad data chunk\r\n", "CLIENT_ERROR"),
    (b"SERVER_ERROR object too large for cache\r\n", "SERVER_ERROR"),
    (
        b"VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory writing get response\r\n",
        "SERVER_ERROR",
    ),
];

#[test]
fn an_answer_is_one_whatever_lines_it_has() {
    let all: Vec<u8> = ANSWERS.iter().flat_map(|one| one.0).copied().collect();
    let (found, last) = messages(&[&all], false);
    assert_eq!(last, Scan::Skip(0));
    assert_eq!(words(&found), ANSWERS.iter().map(|one| one.1).collect::<Vec<_>>());
    let mut at = 0;
    for ((bytes, _), (place, len, _)) in ANSWERS.iter().zip(&found) {
        assert_eq!((*place, *len as usize), (at, bytes.len()));
        at += bytes.len() as i64;
    }
}

#[test]
fn wherever_packets_cut_the_stream_the_same_is_found() {
    let commands: Vec<u8> = COMMANDS.iter().flat_map(|one| one.0).copied().collect();
    let answers: Vec<u8> = ANSWERS.iter().flat_map(|one| one.0).copied().collect();
    for (bytes, from_client) in [(&commands, true), (&answers, false)] {
        let whole = messages(&[bytes], from_client);
        assert_eq!(whole.1, Scan::Skip(0));
        for first in 0..=bytes.len() {
            let halves = [&bytes[..first], &bytes[first..]];
            assert_eq!(messages(&halves, from_client), whole, "cut at {first}");
        }
        for len in [1, 3] {
            let pieces: Vec<&[u8]> = bytes.chunks(len).collect();
            assert_eq!(messages(&pieces, from_client), whole, "pieces of {len}");
        }
    }
}

#[test]
fn no_value_is_kept() {
    for (bytes, _) in COMMANDS {
        let mut scanner = (SCANNING.scanner)(true);
        let mut kept = Vec::new();
        for piece in bytes.chunks(5) {
            scanner.scan(piece, &mut |read| kept.extend([read.header, read.said].concat()));
        }
        assert!(!kept.windows(6).any(|part| part == b"secret"));
    }
}

#[test]
fn other_bytes_end_the_reading() {
    let cases: &[(&[u8], bool)] = &[
        (b"GET / HTTP/1.1\r\n", true),
        (b"set a 0 0 99999999999\r\n", true),
        (b"set a 0 0 -1\r\n", true),
        (b"get\r\n", true),
        (b"mg a q\r\nmg b\r\n", true),
        (b"HTTP/1.1 200 OK\r\n", false),
        (b"VALUE a 0 x\r\n", false),
        (b"220 mail.example ESMTP\r\n", false),
    ];
    for (bytes, from_client) in cases {
        let expected = if bytes.starts_with(b"220") {
            Scan::Skip(0)
        } else {
            Scan::End
        };
        assert_eq!(
            messages(&[bytes], *from_client).1,
            expected,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    let long = [&b"get "[..], &b"k ".repeat(1 << 20)].concat();
    let pieces: Vec<&[u8]> = long.chunks(1 << 16).collect();
    assert_eq!(messages(&pieces, true).1, Scan::End, "a line has an end");
}

#[test]
fn a_connection_is_followed_from_a_command_that_only_memcached_has() {
    let cases: &[(&[u8], bool)] = &[
        (b"get a\r\n", true),
        (b"set a 0 0 5\r\nhello", true),
        (b"mg a v\r\n", true),
        (b"incr a 1\r\n", true),
        (b"set a b\r\n", false),
        (b"get a", false),
        (b"get the book\x01\r\n", false),
        (b"delete 12\r\n", false),
        (b"stats\r\n", false),
        (b"mn\r\n", false),
        (b"put 0 0 60 5\r\n", false),
        (b"", false),
    ];
    for (payload, expected) in cases {
        assert_eq!(
            (SCANNING.begins)(payload),
            *expected,
            "{:?}",
            String::from_utf8_lossy(payload)
        );
    }
}

#[test]
fn a_long_line_ends_alike_wherever_packets_cut_it() {
    for end in ["5\r\r\n", "5\r\n", "5\n"] {
        let line = format!("set {} 0 0 {end}valuu\r\n", "k".repeat(505 - end.len()));
        let whole = messages(&[line.as_bytes()], true);
        for cut in 1..line.len() {
            let (one, other) = line.as_bytes().split_at(cut);
            assert_eq!(messages(&[one, other], true), whole, "{end:?} {cut}");
        }
    }
}
