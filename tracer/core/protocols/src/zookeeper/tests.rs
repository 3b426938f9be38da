//! What is read of a client's and a server's bytes, wherever packets cut them.

use twintap_secrets::SecretRules;

use super::payload_policy::{
    blank_answers, blank_requests, kept_len_of_answers, kept_len_of_next, kept_len_of_requests, overwrite_secrets,
};
use super::*;
use crate::excerpt::Excerpt;
use crate::protocol::Scan;

fn with_length(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

fn request(number: i32, kind: i32, body: &[u8]) -> Vec<u8> {
    with_length(&[&number.to_be_bytes()[..], &kind.to_be_bytes(), body].concat())
}

fn path(text: &[u8]) -> Vec<u8> {
    with_length(text)
}

fn answer(number: i32, error: i32, body: &[u8]) -> Vec<u8> {
    let zxid = [0, 0, 0, 1, 0, 0, 0, 9];
    with_length(&[&number.to_be_bytes()[..], &zxid, &error.to_be_bytes(), body].concat())
}

const KEY: &[u8] = b"Zq-session-key-Z";

fn connect() -> Vec<u8> {
    let (zxid, id) = ([0; 8], [7; 8]);
    with_length(&[&[0; 4][..], &zxid, &[0, 0, 0x27, 0x10], &id, &[0, 0, 0, 16], KEY, &[0]].concat())
}

fn open_answer() -> Vec<u8> {
    with_length(&[&[0; 4][..], &[0, 0, 0x27, 0x10], &[7; 8], &[0, 0, 0, 16], KEY, &[0]].concat())
}

const PING: &[u8] = b"\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b";

/// Kind, number, length, place, result and path of a message.
type Message = (u16, i64, u32, i64, i32, String);

/// The messages of one direction; and how the last bytes were scanned.
fn messages(from_client: bool, packets: &[&[u8]]) -> (Vec<Message>, Scan) {
    let mut scanner = (SCANNING.scanner)(from_client);
    let (mut found, mut base, mut skipped, mut last) = (Vec::new(), 0_i64, 0, Scan::Skip(0));
    for packet in packets {
        let passed = packet.len().min(skipped);
        (skipped, base) = (skipped - passed, base + passed as i64);
        if passed == packet.len() {
            continue;
        }
        last = scanner.scan(&packet[passed..], &mut |read| {
            let excerpt = Excerpt {
                bytes: &[read.header, read.said].concat(),
                stream_len: read.header.len() as u32,
            };
            NAMING.read(&excerpt, &mut |_, head| {
                let path = String::from_utf8(head.target.to_vec()).expect("ASCII");
                let place = base + i64::from(read.at);
                found.push((
                    head.frame.kind,
                    head.frame.stream,
                    head.len,
                    place,
                    head.result_code,
                    path,
                ));
            });
        });
        base += (packet.len() - passed) as i64;
        match last {
            Scan::Skip(len) => skipped = len as usize,
            Scan::End => break,
        }
    }
    (found, last)
}

#[test]
fn a_session_is_read_on_both_sides() {
    let sent = [
        connect(),
        request(1, 4, &[&path(b"/app/config")[..], &[1]].concat()),
        PING.to_vec(),
        request(2, -11, b""),
    ];
    let (found, end) = messages(true, &[&sent.concat()]);
    let named: Vec<_> = found
        .iter()
        .map(|one| (operations::name(one.0), one.1, one.5.as_str()))
        .collect();
    let (opened, ping) = (messages::CONNECT_NUMBER, i64::from(u32::MAX - 1));
    assert_eq!(
        named,
        [
            ("connect", opened, ""),
            ("getData", 1, "/app/config"),
            ("", ping, ""),
            ("closeSession", 2, "")
        ]
    );
    assert_eq!((found[1].2, found[1].3), (sent[1].len() as u32, sent[0].len() as i64));
    assert_eq!((meaning(&frame(&found[2])).is_said, end), (false, Scan::Skip(0)));
    let said = [
        open_answer(),
        answer(1, -101, b""),
        answer(-2, 0, b""),
        answer(-1, 0, b"\0\0\0\x03"),
        answer(2, 0, b""),
    ];
    let (found, _) = messages(false, &[&said.concat()]);
    let results: Vec<_> = found.iter().map(|one| (one.0, one.1, one.4)).collect();
    let event = i64::from(u32::MAX);
    let none = crate::results::SAYS_NOTHING;
    assert_eq!(
        results,
        [
            (ANSWER, opened, none),
            (ANSWER, 1, 101),
            (ASIDE, ping, 0),
            (ASIDE, event, 0),
            (ANSWER, 2, 0)
        ]
    );
}

fn frame(one: &Message) -> FrameFields {
    FrameFields {
        kind: one.0,
        flags: 0,
        stream: one.1,
        len: one.2.into(),
        content_length: -1,
    }
}

#[test]
fn messages_are_the_same_wherever_packets_cut_them() {
    let sent = [
        connect(),
        request(1, 1, &[&path(b"/a")[..], &[9; 300]].concat()),
        request(2, 8, &path(b"/b")),
    ]
    .concat();
    let said = [open_answer(), answer(1, 0, &[5; 300]), answer(2, -110, b"")].concat();
    for (from_client, bytes) in [(true, sent), (false, said)] {
        let whole = messages(from_client, &[&bytes]).0;
        assert_eq!(whole.len(), 3);
        for cut in 1..bytes.len() {
            assert_eq!(
                messages(from_client, &[&bytes[..cut], &bytes[cut..]]).0,
                whole,
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn a_connection_is_zookeepers_only_if_its_requests_fit() {
    let get = request(3, 4, &path(b"/a"));
    assert!(is_of_client(&connect()) && is_of_client(PING) && is_of_client(&[&get[..], PING].concat()));
    assert!(
        is_of_client(&request(1, 5, &[&path(b"/a")[..], &[1; 900]].concat())[..500]),
        "data may be cut"
    );
    let others: &[&[u8]] = &[
        b"\0\0\0\x29\0\x03\0\0user\0alice\0database\0shop\0\0", // PostgreSQL's start-up message
        b"\0\0\0\x17\0\x12\0\x04\0\0\0\x01\0\x0aproducer-1\0\0\0", // Kafka's ApiVersions
        b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\xff\xff\xff\0\x05\0\0\x40\0", // HTTP/2's SETTINGS
        &request(3, 4, &path(b"a"))[..],
        &request(3, 4, &path(b"/a"))[..17],
        &request(3, 14, b""), // may be anything's
        b"",
    ];
    for payload in others {
        assert!(!is_of_client(payload), "{payload:?}");
    }
    assert!(is_of_server(&open_answer()) && is_of_server(&[answer(1, 0, b"x"), answer(-1, 0, b"")].concat()));
    assert!(!is_of_server(&answer(1, -99, b"")) && !is_of_server(b"\0\0\0\x04\0\0\0\x01") && !is_of_server(b""));
}

#[test]
fn what_is_no_message_ends_the_reading() {
    let good = request(3, 8, &path(b"/b"));
    for bad in [
        request(4, 99, b""),
        request(-1, 4, &path(b"/a")),
        request(4, 4, &path(b"a")),
        with_length(b""),
    ] {
        let (found, end) = messages(true, &[&[&good[..], &bad, &good].concat()]);
        assert_eq!((found.len(), end), (1, Scan::End), "{bad:?}");
    }
}

#[test]
fn an_agent_keeps_paths_and_errors_and_no_secret() {
    let login = request(
        -4,
        100,
        &[&[0; 4][..], &with_length(b"digest"), &with_length(b"alice:Zq")].concat(),
    );
    let set = request(5, 5, &[&path(b"/app")[..], &with_length(b"Zq")].concat());
    let sent = [connect(), login, set].concat();
    let mut kept = sent[..kept_len_of_requests(&sent, 2048)].to_vec();
    blank_requests(&mut kept, SecretRules::built_in());
    assert!(kept.ends_with(b"/app") && !kept.windows(2).any(|two| two == b"Zq"));
    assert_eq!(messages(true, &[&kept]).0, messages(true, &[&sent]).0);
    let close = request(6, -11, b"");
    assert_eq!(
        (kept_len_of_requests(&close, 2048), kept_len_of_next(&close, 2048)),
        (0, 12)
    );
    assert_eq!(
        kept_len_of_next(&[&close[..], b"\0\0\0\x08\0\0\0\x07\0\0\0\x63"].concat(), 2048),
        0
    );
    let said = [open_answer(), answer(-4, 0, b""), answer(5, -103, b"Zq")].concat();
    let mut kept = said[..kept_len_of_answers(&said, 2048)].to_vec();
    blank_answers(&mut kept);
    assert!(!kept.windows(2).any(|two| two == b"Zq") && !kept.windows(2).any(|two| two == [7, 7]));
    assert_eq!(messages(false, &[&kept]).0, messages(false, &[&said]).0);
    for (mut payload, shown) in [(sent, 1), (said, 1)] {
        overwrite_secrets(&mut payload);
        let count = payload.windows(2).filter(|two| *two == b"Zq").count();
        assert_eq!(count, shown, "what users store stays");
    }
}
