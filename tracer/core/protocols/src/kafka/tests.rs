//! What is read of a client's and a broker's bytes, wherever packets cut them.

use twintap_secrets::SecretRules;

use super::payload_policy::{
    blank_answers, blank_requests, kept_len_of_answers, kept_len_of_next, kept_len_of_requests, overwrite_secrets,
};
use super::*;
use crate::excerpt::{ExcerptColumns, Keeper, Notes};
use crate::head::Head;
use crate::http1::{HeaderMarks, IdHeaders, KeptLines};
use crate::protocol::{ReadFrame, Scan};
use crate::registry;

/// A message with its length before it.
fn with_length(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

/// A request of a client that calls itself `producer-1`.
fn request(kind: u16, version: u16, id: i32, body: &[u8]) -> Vec<u8> {
    let header = [&kind.to_be_bytes()[..], &version.to_be_bytes(), &id.to_be_bytes()].concat();
    with_length(&[&header, &b"\0\x0aproducer-1"[..], body].concat())
}

fn answer(id: i32, body: &[u8]) -> Vec<u8> {
    with_length(&[&id.to_be_bytes(), body].concat())
}

/// Bodies of `Produce` for the topic `orders`: as of versions 2, 8 and 9.
fn produce_2(acks: u16) -> Vec<u8> {
    [
        &acks.to_be_bytes()[..],
        &[0, 0, 0x75, 0x30],
        &[0, 0, 0, 1],
        b"\0\x06orders",
        &[7; 40],
    ]
    .concat()
}

fn produce_8(acks: u16) -> Vec<u8> {
    [&[0xff, 0xff][..], &produce_2(acks)].concat()
}

fn produce_9(acks: u16) -> Vec<u8> {
    let (tags, transaction) = ([0], [0]);
    [
        &tags[..],
        &transaction,
        &acks.to_be_bytes(),
        &[0, 0, 0x75, 0x30],
        &[2],
        b"\x07orders",
        &[7; 40],
    ]
    .concat()
}

struct NoNotes;

impl Notes for NoNotes {
    fn head(&mut self, _: &Head<'_>, _: u64, _: bool) {}
    fn head_cut(&mut self) {}
    fn left_out(&mut self) {}
}

/// A message: its place, kind, number, length, flags, name, topic and client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    at: i64,
    kind: u16,
    id: i64,
    len: u32,
    flags: u8,
    name: String,
    topic: String,
    client: String,
}

/// The messages of one direction, whose bytes come in packets; with how the last of them was scanned.
fn messages(from_client: bool, packets: &[&[u8]]) -> (Vec<Message>, Scan) {
    let mut scanner = (SCANNING.scanner)(from_client);
    let (mut excerpts, mut lines, mut base) = (ExcerptColumns::default(), KeptLines::default(), 0_i64);
    let (mut skipped, mut last) = (0, Scan::Skip(0));
    for packet in packets {
        let passed = packet.len().min(skipped);
        skipped -= passed;
        let bytes = &packet[passed..];
        base += passed as i64;
        if bytes.is_empty() {
            continue;
        }
        last = scanner.scan(bytes, &mut |read| {
            let mut keeper = Keeper {
                excerpts: &mut excerpts,
                frame: 1,
                protocol: registry::place("kafka").expect("it is registered"),
                ids: &IdHeaders::default(),
                marks: &HeaderMarks::default(),
                secrets: &SecretRules::nothing(),
                notes: &mut NoNotes,
                lines: &mut lines,
            };
            let at = (base + i64::from(read.at)) as i32;
            NAMING.keep(&ReadFrame { at, ..*read }, &mut keeper);
        });
        base += bytes.len() as i64;
        match last {
            Scan::Skip(len) => skipped = len as usize,
            Scan::End => break,
        }
    }
    let mut found = Vec::new();
    for row in 0..excerpts.len() {
        let start = i64::from(excerpts.payload_offset[row]);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        NAMING.read(&excerpts.row(row), &mut |at, head| {
            found.push(Message {
                at: start + i64::from(at),
                kind: head.frame.kind,
                id: head.frame.stream,
                len: head.len,
                flags: head.flags,
                name: text(head.method),
                topic: text(head.target),
                client: text(head.user_agent),
            });
        });
    }
    (found, last)
}

fn names(found: &[Message]) -> Vec<(i64, &str, &str)> {
    found
        .iter()
        .map(|one| (one.id, one.name.as_str(), one.topic.as_str()))
        .collect()
}

#[test]
fn requests_and_answers_are_read_with_their_numbers() {
    let sent = [
        request(18, 4, 1, b"\0\x0cjava\x064.0\0"),
        request(0, 9, 2, &produce_9(0xffff)),
    ];
    let (found, end) = messages(true, &[&sent.concat()]);
    assert_eq!(names(&found), [(1, "ApiVersions", ""), (2, "Produce", "orders")]);
    assert_eq!(found[1].at, sent[0].len() as i64);
    assert_eq!(found[1].len, sent[1].len() as u32);
    assert_eq!((found[1].client.as_str(), end), ("producer-1", Scan::Skip(0)));
    let (found, _) = messages(false, &[&answer(1, &[0; 600]), &answer(2, b"")]);
    let ids: Vec<_> = found.iter().map(|one| (one.kind, one.id, one.len)).collect();
    assert_eq!(ids, [(ANSWER, 1, 608), (ANSWER, 2, 8)]);
}

#[test]
fn a_topic_is_read_in_every_version_that_names_it() {
    let cases: &[(u16, Vec<u8>, &str)] = &[
        (2, produce_2(1), "orders"),
        (3, produce_8(1), "orders"),
        (8, produce_8(1), "orders"),
        (9, produce_9(1), "orders"),
        (12, produce_9(1), "orders"),
        (13, produce_9(1), ""),                                  // the id of a topic
        (9, [&[1, 0, 2, 9, 9][..], &produce_9(1)].concat(), ""), // with tagged fields, which are not read
        (9, Vec::new(), ""),
    ];
    for (version, body, topic) in cases {
        let (found, _) = messages(true, &[&request(0, *version, 5, body)]);
        assert_eq!(names(&found), [(5, "Produce", *topic)], "version {version}");
    }
}

#[test]
fn what_awaits_no_replica_or_waits_for_news_is_no_request() {
    let is_stream = |kind: u16, version: u16, body: &[u8]| {
        let (found, _) = messages(true, &[&request(kind, version, 5, body)]);
        let frame = FrameFields {
            kind: found[0].kind,
            flags: found[0].flags,
            stream: found[0].id,
            len: found[0].len.into(),
            content_length: -1,
        };
        meaning(&frame).is_no_request
    };
    assert!(is_stream(0, 9, &produce_9(0)) && is_stream(0, 3, &produce_8(0)) && is_stream(0, 2, &produce_2(0)));
    assert!(!is_stream(0, 9, &produce_9(1)) && !is_stream(0, 9, &produce_9(0xffff)) && !is_stream(0, 9, b""));
    assert!(is_stream(1, 12, b"") && is_stream(11, 9, b"") && is_stream(14, 5, b""));
    assert!(!is_stream(3, 12, b"") && !is_stream(12, 4, b""));
}

#[test]
fn messages_are_the_same_wherever_packets_cut_them() {
    let sent = [
        request(18, 4, 1, b"\0"),
        request(0, 9, 2, &[&produce_9(1)[..], &[7; 2000]].concat()),
        request(3, 12, 3, b"\0\0"),
    ]
    .concat();
    let whole = messages(true, &[&sent]).0;
    assert_eq!(whole.len(), 3);
    for cut in 1..sent.len() {
        assert_eq!(messages(true, &[&sent[..cut], &sent[cut..]]).0, whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = sent.chunks(1).collect();
    assert_eq!(messages(true, &bytes).0, whole);
    let answers = [answer(1, &[3; 700]), answer(2, b""), answer(3, &[0; 9])].concat();
    let whole = messages(false, &[&answers]).0;
    for cut in 1..answers.len() {
        assert_eq!(
            messages(false, &[&answers[..cut], &answers[cut..]]).0,
            whole,
            "cut at {cut}"
        );
    }
}

#[test]
fn a_connection_is_kafkas_only_if_its_requests_fit_whole() {
    let one = request(18, 3, 1, b"\0\x0cjava\x064.0\0");
    assert!(is_of_client(&one) && is_of_client(&[&one[..], &one].concat()));
    let nameless = with_length(b"\0\x12\0\0\0\0\0\x01\xff\xff");
    assert!(is_of_client(&nameless), "a client need not say its name");
    let large = request(0, 9, 7, &[&produce_9(1)[..], &[7; 9000]].concat());
    assert!(is_of_client(&large[..1448]) && !is_of_client(&large[..500]));
    let others: &[&[u8]] = &[
        b"\0\0\0\x29\0\x03\0\0user\0alice\0database\0shop\0\0", // PostgreSQL's start-up message
        b"\0\0\0\x08\x04\xd2\x16\x2f",                          // its SSLRequest
        b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\xff\xff\xff\0\x05\0\0\x40\0", // HTTP/2's SETTINGS
        b"\0\0\x2a\0\0\0\0\0\x01\0\0\0\0\x25\"#abcdefghijklmnopqrstuvwxyzabcdefghi", // its DATA, of gRPC
        b"\0\0\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x27\x10\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", // ZooKeeper's first
        b"\0\0\0\x0f\0\0\0\x01\0\0\0\x04\0\0\0\x02/a\0", // ZooKeeper's getData
        b"\0\0\0\x24\xfeSMB\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        &one[..one.len() - 1],
        b"",
    ];
    for payload in others {
        assert!(!is_of_client(payload), "{payload:?}");
    }
    let large = answer(1, &[0; 9000]);
    assert!(is_of_broker(&answer(1, &[0; 30])) && is_of_broker(&[answer(1, b""), answer(2, b"x")].concat()));
    assert!(is_of_broker(&large[..1448]) && is_of_broker(&[&answer(1, b"")[..], &large[..6]].concat()));
    assert!(is_of_broker(&answer(1 << 25, b"")) && !is_of_broker(&answer(1 << 25, &[0; 9000])[..1448]));
    assert!(!is_of_broker(&large[..7]) && !is_of_broker(&answer(-1, b"")) && !is_of_broker(b""));
    assert!(!is_of_broker(b"\x01\0\0\0\0\0\0\x01 longer than most"));
}

#[test]
fn passwords_are_overwritten_and_nothing_else() {
    let [login, before, behind] = [
        request(36, 2, 4, b"\0\x0e\0alice\0secret"),
        request(17, 1, 3, b"\0\x05PLAIN"),
        request(3, 12, 5, b"\0\0"),
    ];
    let mut payload = [&before[..], &login, &behind].concat();
    overwrite_secrets(&mut payload);
    let overwritten = [&login[..login.len() - 15], &[b'x'; 15]].concat();
    assert_eq!(payload, [&before[..], &overwritten, &behind].concat());
    let mut other = b"\0\0\0\x29\0\x03\0\0user\0alice\0".to_vec();
    overwrite_secrets(&mut other);
    assert_eq!(other, b"\0\0\0\x29\0\x03\0\0user\0alice\0");
}

#[test]
fn an_agent_keeps_who_asks_for_what_and_no_record() {
    let kept = |payload: &[u8]| {
        let mut kept = payload[..kept_len_of_requests(payload, 2048)].to_vec();
        blank_requests(&mut kept, SecretRules::built_in());
        kept
    };
    let [hello, produce, login] = [
        request(18, 3, 1, b"\0\x0cjava\x064.0\0"),
        request(0, 9, 2, &produce_9(1)),
        request(36, 2, 3, b"\0\x0e\0alice\0secret"),
    ];
    let (head_len, topic_end) = (HEADER_LEN + 12, produce.len() - 40);
    assert_eq!(kept(&hello), &hello[..head_len]);
    assert_eq!(kept(&produce), &produce[..topic_end]);
    let both = [&login[..], &produce].concat();
    let blanked = [
        &login[..head_len],
        &vec![0; login.len() - head_len],
        &produce[..topic_end],
    ]
    .concat();
    assert_eq!(kept(&both), blanked);
    assert_eq!(kept(&kept(&both)), blanked, "what is kept is kept of what is kept, too");
    assert_eq!(messages(true, &[&blanked]).0.len(), 2);
    assert_eq!(kept(b"\0\0\0\x29\0\x03\0\0user\0alice\0database\0shop\0\0"), b"");
    let cut = &[&hello[..], &produce[..60]].concat();
    assert_eq!(
        (kept_len_of_requests(cut, 2048), kept_len_of_next(cut, 2048)),
        (0, hello.len() + topic_end)
    );
    assert_eq!(
        kept_len_of_next(
            &[&hello[..], b"\0\0\0\x20\x03\xe7\0\0\0\0\0\x07\xff\xff"].concat(),
            2048
        ),
        0
    );
    let answers = [answer(1, b"secret"), answer(2, b"more")].concat();
    let mut of_answers = answers[..kept_len_of_answers(&answers, 2048)].to_vec();
    blank_answers(&mut of_answers);
    assert_eq!(of_answers, [&answers[..8], &[0; 6], &answers[14..22]].concat());
    assert_eq!(kept_len_of_answers(b"secret words", 2048), 0);
}

#[test]
fn of_what_is_too_long_for_a_name_an_agent_keeps_nothing() {
    let record = [b'r'; 3000];
    let no_name = with_length(&[&[0, 3, 0, 12, 0, 0, 0, 5, 0x0b, 0xb8][..], &record].concat());
    let topic = [&[0, 0, 0, 1, 0, 0, 0x75, 0x30, 2, 0x80, 0x10][..], &record].concat();
    let transaction = [&[0x0b, 0xb8][..], &record].concat();
    for (payload, kept) in [
        (no_name, HEADER_LEN),
        (request(0, 9, 5, &topic), HEADER_LEN + 12),
        (request(0, 8, 5, &transaction), HEADER_LEN + 12),
    ] {
        assert_eq!(kept_len_of_next(&payload, 4096), kept);
        assert_eq!(kept_len_of_next(&payload[..900], 4096), kept, "cut");
        let (found, end) = messages(true, &[&payload, &request(3, 12, 6, b"")]);
        assert_eq!((found.len(), found[0].topic.as_str(), end), (2, "", Scan::Skip(0)));
    }
}

#[test]
fn what_is_there_of_a_cut_request_is_read_when_no_more_comes() {
    let produce = request(0, 9, 2, &produce_9(1));
    let kept = &produce[..produce.len() - 40];
    let mut scanner = (SCANNING.scanner)(true);
    let (mut found, mut count) = (Vec::new(), 0);
    assert_eq!(scanner.scan(&kept[..30], &mut |_| count += 1), Scan::Skip(0));
    scanner.lose(&mut |read| found.push((read.at, read.header.to_vec())));
    assert_eq!((count, found), (0, vec![(-30, produce[..HEADER_LEN + 12].to_vec())]));
    assert_eq!(
        messages(true, &[kept]).1,
        Scan::Skip(40),
        "nothing behind the topic is wanted"
    );
}

#[test]
fn what_is_no_message_ends_the_reading() {
    let good = request(3, 12, 3, b"\0\0");
    for bad in [
        request(999, 0, 4, b""),
        request(3, 99, 4, b""),
        request(3, 12, -4, b""),
        with_length(b""),
        b"\xff\xff\xff\xff\0\x03\0\x0c".to_vec(),
    ] {
        let (found, end) = messages(true, &[&[&good[..], &bad, &good].concat()]);
        assert_eq!((found.len(), end), (1, Scan::End), "{bad:?}");
    }
    assert_eq!(messages(false, &[&answer(-2, b"12")]), (Vec::new(), Scan::End));
}

#[test]
fn after_a_gap_the_next_message_says_so() {
    let mut scanner = (SCANNING.scanner)(true);
    let one = request(3, 12, 3, b"\0\0");
    let mut flags = Vec::new();
    let mut scan = |scanner: &mut dyn Scanner, bytes: &[u8]| {
        scanner.scan(bytes, &mut |read| flags.push(read.said[0]));
    };
    scan(&mut *scanner, &[&one[..], &one, &one[..9]].concat());
    scanner.lose(&mut |_| {});
    scan(&mut *scanner, &one);
    assert_eq!(flags, [AFTER_GAP, 0, AFTER_GAP]);
}

#[test]
fn no_bytes_panic() {
    let sent = [request(0, 9, 2, &produce_9(1)), request(0, 8, 3, &produce_8(1))].concat();
    for at in 0..sent.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut odd = sent.clone();
            odd[at] = byte;
            for from_client in [true, false] {
                assert!(messages_count(from_client, &odd) <= odd.len() / LENGTH_LEN);
                assert!(!(is_of_client(&odd[..at]) && is_of_broker(&odd[..at])) || at > HEADER_LEN);
            }
        }
    }
}

/// How many messages are found in any bytes.
fn messages_count(from_client: bool, bytes: &[u8]) -> usize {
    let mut count = 0;
    (SCANNING.scanner)(from_client).scan(bytes, &mut |_| count += 1);
    count
}
