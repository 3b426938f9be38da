//! Bytes as Redis 7.0.15, redis-cli and redis-benchmark sent them.

use super::*;
use crate::excerpt::{Excerpt, ExcerptColumns};
use crate::exchanges::flag;
use crate::protocol::{ReadFrame, Scan};

/// Place, length, and words of a message: name and shape of a command, word of an answer, or word of a mark.
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
            ANSWER => errors::word(head.result_code).expect("a code").to_owned(),
            _ => format!("mark {} {}", text(head.method), head.status),
        };
        let is_bare = head.flags & flag::NO_ANSWER != 0;
        let unasked = head.flags & flag::UNASKED != 0;
        let more = if is_bare {
            " (no answer)"
        } else if unasked {
            " (unasked)"
        } else {
            ""
        };
        found.push((base + i64::from(read.at), head.len, format!("{words}{more}")));
    });
}

fn words(found: &[Message]) -> Vec<&str> {
    found.iter().map(|one| one.2.as_str()).collect()
}

/// A command as clients send it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

fn commands_of(all: &[&[&str]]) -> Vec<u8> {
    all.iter().flat_map(|words| command(words)).collect()
}

const COMMANDS: &[(&[&str], &str)] = &[
    (&["SET", "key:000000000042", "VXKeHogKgJ"], "SET key:*"),
    (&["get", "user:1234"], "GET user:*"),
    (&["MGET", "user:1", "user:2"], "MGET user:*"),
    (&["HSET", "cart:{17}", "field", "secret"], "HSET cart:{*}"),
    (&["EVAL", "return 1", "0", "secret"], "EVAL"),
    (&["EVAL", "return 1", "2", "a:1", "b:2", "secret"], "EVAL a:*"),
    (&["XREAD", "COUNT", "2", "STREAMS", "events:7", "0"], "XREAD events:*"),
    (&["AUTH", "secret"], "AUTH"),
    (&["HELLO", "3", "AUTH", "user", "secret", "SETNAME", "x"], "HELLO"),
    (&["CONFIG", "SET", "requirepass", "secret"], "CONFIG SET"),
    (&["ACL", "SETUSER", "alice", "on", ">secret"], "ACL SETUSER"),
    (
        &["MIGRATE", "host", "6379", "key", "0", "5000", "AUTH", "secret"],
        "MIGRATE",
    ),
    (&["CONFIG", "secret1"], "CONFIG"),
    (&["JSON.GET", "doc:1", "$.secret"], "JSON.GET"),
    (&["b840fc02d524045429941cc15f59e41cb7be6c52", "x"], "?"),
    (&["OBJECT", "ENCODING", "user:77"], "OBJECT ENCODING user:*"),
    (&["XGROUP", "CREATE", "events", "group", "$"], "XGROUP CREATE events"),
    (&["BITOP", "AND", "dest:1", "a", "b"], "BITOP dest:*"),
    (&["ZUNION", "2", "z:1", "z:2"], "ZUNION z:*"),
    (&["BLMPOP", "0.1", "1", "jobs:1", "LEFT"], "BLMPOP jobs:*"),
    (&["MULTI"], "MULTI"),
    (&["SET", "", ""], "SET"),
];

#[test]
fn a_command_is_named_by_its_word_and_the_shape_of_its_key() {
    for (words_of, expected) in COMMANDS {
        let bytes = command(words_of);
        let (found, last) = messages(&[&bytes], true);
        assert_eq!(last, Scan::Skip(0), "{words_of:?}");
        let (at, len, name) = &found[0];
        assert_eq!((*at, *len as usize, name.as_str()), (0, bytes.len(), *expected));
    }
}

fn every_command() -> Vec<u8> {
    COMMANDS.iter().flat_map(|(words, _)| command(words)).collect()
}

const ANSWERS: &[&[u8]] = &[
    b"+OK\r\n",
    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    b":1000\r\n",
    b"$5\r\nhel\r\n\r\n",
    b"$0\r\n\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n$3\r\nfoo\r\n:7\r\n",
    b"*3\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n+last\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
    b"~1\r\n#t\r\n",
    b",3.14\r\n",
    b"(3492890328409238509324850943850943825024385\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"!9\r\nERR wrong\r\n",
    b"|1\r\n+ttl\r\n:3600\r\n$2\r\nhi\r\n",
    b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\nhi\r\n",
    b"-MOVED 3999 127.0.0.1:6381\r\n",
    b"_\r\n",
];

#[test]
fn an_answer_is_found_whatever_it_consists_of() {
    let expected = [
        "OK",
        "WRONGTYPE",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "OK",
        "ERR",
        "OK",
        "OK (unasked)",
        "MOVED",
        "OK",
    ];
    let (found, last) = messages(&[&ANSWERS.concat()], false);
    assert_eq!((words(&found), last), (expected.to_vec(), Scan::Skip(0)));
    let mut at = 0;
    for (answer, (place, len, _)) in ANSWERS.iter().zip(&found) {
        assert_eq!(
            (*place, *len as usize),
            (at, answer.len()),
            "{:?}",
            String::from_utf8_lossy(answer)
        );
        at += answer.len() as i64;
    }
}

#[test]
fn wherever_packets_cut_the_stream_the_same_is_found() {
    let inline = b"PING\r\n\r\nset user:1 x\r\n*1\r\n$4\r\nPING\r\n";
    let streams = [
        (every_command(), true),
        ([&every_command()[..60], inline].concat(), true),
        (ANSWERS.concat(), false),
    ];
    for (bytes, from_client) in &streams {
        let whole = messages(&[bytes], *from_client);
        for first in 0..=bytes.len() {
            let halves = [&bytes[..first], &bytes[first..]];
            assert_eq!(messages(&halves, *from_client), whole, "cut at {first}");
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(messages(&bytewise, *from_client), whole, "byte by byte");
        let threes: Vec<&[u8]> = bytes.chunks(3).collect();
        assert_eq!(messages(&threes, *from_client), whole);
    }
}

#[test]
fn no_value_and_no_secret_is_kept() {
    for bytes in [
        &every_command()[..],
        b"set user:1 secret\r\nauth secret\r\nget x secret\r\n",
    ] {
        let mut scanner = (SCANNING.scanner)(true);
        let mut kept = Vec::new();
        let first = command(&["PING"]);
        let all = [&first, bytes].concat();
        for piece in all.chunks(7) {
            scanner.scan(piece, &mut |read| kept.extend([read.header, read.said].concat()));
        }
        assert!(
            !kept.windows(6).any(|part| part == b"secret"),
            "{:?}",
            String::from_utf8_lossy(&kept)
        );
    }
}

#[test]
fn what_begins_a_stream_is_marked_with_its_reach() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["SUBSCRIBE", "news"], &["SUBSCRIBE", "mark SUBSCRIBE 1"]),
        (&["subscribe", "news"], &["SUBSCRIBE", "mark SUBSCRIBE 1"]),
        (&["BLPOP", "q", "0"], &["BLPOP q", "mark BLPOP 2"]),
        (
            &["XREAD", "BLOCK", "0", "STREAMS", "s", "$"],
            &["XREAD s", "mark XREAD 2"],
        ),
        (
            &[
                "XREADGROUP",
                "GROUP",
                "g",
                "c",
                "COUNT",
                "1",
                "BLOCK",
                "5",
                "STREAMS",
                "s",
                ">",
            ],
            &["XREADGROUP s", "mark XREADGROUP 2"],
        ),
        (&["GET", "SUBSCRIBE"], &["GET SUBSCRIBE"]),
        (&["SYNC"], &["SYNC", "mark SYNC 1"]),
        (&["REPLCONF", "ACK", "12"], &["REPLCONF ACK", "mark REPLCONF ACK 3"]),
        (&["REPLCONF", "capa", "eof"], &["REPLCONF CAPA"]),
    ];
    for (words_of, expected) in cases {
        let (found, _) = messages(&[&command(words_of)], true);
        assert_eq!(words(&found), *expected);
    }
    assert_eq!(messages(&[&command(&["PSYNC", "?", "-1"])], true).1, Scan::End);
    let (found, last) = messages(&[&command(&["REPLCONF", "ACK", "12"])], false);
    assert_eq!((words(&found), last), (vec!["REPLCONF", "mark REPLCONF 3"], Scan::End));
}

#[test]
fn a_client_may_ask_for_no_answers() {
    let bytes = commands_of(&[
        &["CLIENT", "REPLY", "SKIP"],
        &["SET", "a", "1"],
        &["SET", "b", "1"],
        &["client", "reply", "off"],
        &["SET", "c", "1"],
        &["CLIENT", "REPLY", "ON"],
        &["GET", "a"],
    ]);
    let (found, _) = messages(&[&bytes], true);
    let commands: Vec<&str> = words(&found)
        .into_iter()
        .filter(|word| !word.starts_with("mark"))
        .collect();
    let bare: Vec<bool> = commands.iter().map(|word| word.ends_with("(no answer)")).collect();
    assert_eq!(bare, [true, true, false, true, true, false, false]);
    assert_eq!(found.len() - commands.len(), 4, "each is marked");
}

#[test]
fn what_is_missing_behind_a_command_is_known_to_be_unknown() {
    let bytes = command(&["MSET", "user:1", "value", "user:2", "value"]);
    let mut scanner = (SCANNING.scanner)(true);
    let mut found = Vec::new();
    scanner.scan(&bytes[..45], &mut |read| push(0, read, &mut found));
    scanner.lose(&mut |read| push(49, read, &mut found));
    scanner.scan(&command(&["GET", "x"]), &mut |read| push(60, read, &mut found));
    let expected = [(0, 0, "MSET user:*"), (0, 0, "MSET user:*"), (60, 20, "GET x")];
    assert_eq!(found, expected.map(|(at, len, name)| (at, len, name.to_owned())));
}

#[test]
fn other_bytes_end_the_reading_and_no_length_is_too_much() {
    let hostile: &[(&[u8], bool)] = &[
        (b"PUT /x HTTP/1.1\r\n", true),
        (b"*1\r\n$9999999999\r\n", true),
        (b"*1\r\n$-1\r\n", true),
        (b"*1\r\n+OK\r\n", true),
        (b"HTTP/1.1 200 OK\r\n", false),
        (b"$?\r\n", false),
        (b"+OK\nx", false),
    ];
    for (bytes, from_client) in hostile {
        assert_eq!(
            messages(&[bytes], *from_client).1,
            Scan::End,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    let deep = b"*1\r\n".repeat(1_000);
    assert_eq!(messages(&[&deep], false).1, Scan::End);
    let huge = b"*1073741824\r\n$1073741824\r\n";
    assert_eq!(messages(&[huge], false).1, Scan::Skip(1_073_741_826));
    assert_eq!(messages(&[huge, &[b'x'; 32]], true).1, Scan::Skip(1_073_741_826 - 32));
    let attributes = b"|1073741824\r\n".repeat(3);
    assert_eq!(messages(&[b"*2\r\n", &attributes], false).1, Scan::End);
}

#[test]
fn a_connection_is_followed_from_a_known_command() {
    let cases: &[(&[u8], bool)] = &[
        (b"*1\r\n$4\r\nPING\r\n", true),
        (b"*2\r\n$3\r\nget\r\n$", true),
        (b"*2\r\n$9\r\nSUBSCRIBE", true),
        (b"*2\r\n$3\r\nGE", false),
        (b"*2\r\n$7\r\nmessage\r\n", false),
        (b"*0\r\n", false),
        (b"PING\r\n", false),
        (b"*2\r\n$99\r\n", false),
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
    let answers: &[(&[u8], bool)] = &[
        (b"+OK\r\n", true),
        (b"$5\r\nhel", true),
        (b"*2\r\n:1\r\n", true),
        (b"- a list\r\n", true),
        (b"+OK", false),
        (b"12345\r\n", false),
        (b"lo\r\n", false),
        (b"", false),
    ];
    for (payload, expected) in answers {
        assert_eq!(
            (SCANNING.resumes)(payload, false),
            *expected,
            "{:?}",
            String::from_utf8_lossy(payload)
        );
    }
}
