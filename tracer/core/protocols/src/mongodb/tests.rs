//! Messages made here from the specification, and messages of pymongo.

use twintap_secrets::SecretRules;

use super::*;
use crate::excerpt::{ExcerptColumns, Notes};
use crate::http1::{HeaderMarks, IdHeaders, KeptLines};
use crate::redaction::redact;

struct NoNotes;

impl Notes for NoNotes {
    fn head(&mut self, _: &Head<'_>, _: u64, _: bool) {}
    fn head_cut(&mut self) {}
    fn left_out(&mut self) {}
}

const SECRET: &[u8] = b"planted";

fn element(kind: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[kind], name.as_bytes(), &[0], value].concat()
}

fn text(name: &str, value: &str) -> Vec<u8> {
    let len = value.len() as u32 + 1;
    element(2, name, &[&len.to_le_bytes(), value.as_bytes(), &[0]].concat())
}

fn int32(name: &str, value: i32) -> Vec<u8> {
    element(0x10, name, &value.to_le_bytes())
}

fn int64(name: &str, value: i64) -> Vec<u8> {
    element(0x12, name, &value.to_le_bytes())
}

fn double(name: &str, value: f64) -> Vec<u8> {
    element(1, name, &value.to_le_bytes())
}

fn boolean(name: &str, value: bool) -> Vec<u8> {
    element(8, name, &[value.into()])
}

fn binary(name: &str, value: &[u8]) -> Vec<u8> {
    let len = (value.len() as u32).to_le_bytes();
    element(5, name, &[&len, &[0][..], value].concat())
}

fn document(elements: &[Vec<u8>]) -> Vec<u8> {
    let own = elements.concat();
    [&(own.len() as u32 + 5).to_le_bytes(), &own[..], &[0]].concat()
}

fn within(name: &str, elements: &[Vec<u8>]) -> Vec<u8> {
    element(3, name, &document(elements))
}

fn array(name: &str, elements: &[Vec<u8>]) -> Vec<u8> {
    element(4, name, &document(elements))
}

fn message(id: u32, answers: u32, opcode: u32, body: &[u8]) -> Vec<u8> {
    let len = (HEADER_LEN + body.len()) as u32;
    [&[len, id, answers, opcode].map(u32::to_le_bytes).concat(), body].concat()
}

fn msg(id: u32, answers: u32, flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    message(
        id,
        answers,
        2013,
        &[&flags.to_le_bytes(), &sections.concat()[..]].concat(),
    )
}

fn body(elements: &[Vec<u8>]) -> Vec<u8> {
    [&[0], &document(elements)[..]].concat()
}

fn sequence(name: &str, documents: &[Vec<u8>]) -> Vec<u8> {
    let own = [name.as_bytes(), &[0], &documents.concat()].concat();
    [&[1], &(own.len() as u32 + 4).to_le_bytes()[..], &own].concat()
}

/// A command of the request 7.
fn command(elements: &[Vec<u8>]) -> Vec<u8> {
    msg(7, 0, 0, &[body(elements)])
}

/// An answer to the request 7.
fn answer(elements: &[Vec<u8>]) -> Vec<u8> {
    msg(9, 7, 0, &[body(elements)])
}

fn query(collection: &str, elements: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[0; 4],
        collection.as_bytes(),
        &[0; 5],
        &[0xff; 4],
        &document(elements)[..],
    ]
    .concat();
    message(7, 0, 2004, &body)
}

fn reply(flags: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &flags.to_le_bytes(),
        &[0; 12][..],
        &1_u32.to_le_bytes(),
        &document(elements),
    ]
    .concat();
    message(9, 7, 1, &body)
}

/// As [`keep`] and [`read`] have the messages of one direction: flags without [`flag::AFTER_GAP`], id, method, target,
/// result, cursor; and all bytes that were kept.
fn rows_of(messages: &[Vec<u8>]) -> (Vec<String>, Vec<u8>) {
    let (mut reader, mut excerpts) = ((FRAMING.reader)(false), ExcerptColumns::default());
    for bytes in messages {
        let mut said = Vec::new();
        let wanted = frame_len(bytes).map_or(0, |len| HEADER_LEN + len.kept_len as usize);
        reader.read(&bytes[..wanted.min(bytes.len())], &mut said);
        let mut keeper = Keeper {
            excerpts: &mut excerpts,
            frame: 1,
            protocol: 1,
            ids: &IdHeaders::default(),
            marks: &HeaderMarks::default(),
            secrets: SecretRules::built_in(),
            notes: &mut NoNotes,
            lines: &mut KeptLines::default(),
        };
        let read = ReadFrame {
            header: &bytes[..HEADER_LEN],
            at: 0,
            said: &said,
        };
        keep(&read, &mut keeper);
    }
    let mut found = Vec::new();
    for row in 0..excerpts.len() {
        read(&excerpts.row(row), &mut |at, head| {
            assert_eq!((at, head.kind), (HEADER_LEN as u32, MESSAGE));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            found.push(format!(
                "{} {} [{}] [{}] {} {}",
                head.flags & !flag::AFTER_GAP,
                head.frame.stream,
                text(head.method),
                text(head.target),
                head.result_code,
                head.content_length,
            ));
        });
    }
    (found, excerpts.bytes.bytes)
}

fn row_of(message: &[u8]) -> String {
    rows_of(&[message.to_vec()]).0.concat()
}

/// What an agent keeps of a payload.
fn kept_of(payload: &[u8]) -> Vec<u8> {
    let mut captured = payload[..payload_policy::kept_len(payload, 4096)].to_vec();
    payload_policy::blank(&mut captured, SecretRules::built_in());
    captured
}

/// What an agent keeps of a message, with zeros up to its end.
fn with_zeros(kept: &[u8], len: usize) -> Vec<u8> {
    let mut whole = kept.to_vec();
    whole.resize(len, 0);
    whole
}

fn contains(bytes: &[u8], secret: &[u8]) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret)
}

fn database() -> Vec<u8> {
    text("$db", "shop")
}

/// Commands, each with a secret where a user's data is, and how they are read.
fn commands() -> Vec<(Vec<u8>, &'static str)> {
    let secret = || text("x", "planted");
    let stages = |stage: &str| array("pipeline", &[within("0", &[within(stage, &[secret()])])]);
    vec![
        (
            command(&[text("find", "orders"), within("filter", &[secret()]), database()]),
            "2 7 [find] [shop.orders] -1 0",
        ),
        (
            command(&[text("insert", "orders"), boolean("ordered", true), database()]),
            "2 7 [insert] [shop.orders] -1 0",
        ),
        (
            command(&[text("count", "a.b"), within("query", &[secret()]), database()]),
            "2 7 [count] [shop.a.b] -1 0",
        ),
        (
            command(&[int32("ping", 1), text("comment", "planted"), database()]),
            "2 7 [ping] [shop] -1 0",
        ),
        (
            command(&[int32("aggregate", 1), stages("$match"), database()]),
            "2 7 [aggregate] [shop] -1 0",
        ),
        (
            command(&[text("aggregate", "orders"), stages("$match"), database()]),
            "2 7 [aggregate] [shop.orders] -1 0",
        ),
        (
            command(&[text("aggregate", "orders"), stages("$changeStream"), database()]),
            "34 7 [aggregate] [shop.orders] -1 0",
        ),
        (
            command(&[
                text("find", "log"),
                boolean("tailable", true),
                boolean("awaitData", true),
                database(),
            ]),
            "34 7 [find] [shop.log] -1 0",
        ),
        (
            command(&[text("find", "log"), boolean("awaitData", false), database()]),
            "2 7 [find] [shop.log] -1 0",
        ),
        (
            command(&[int64("getMore", 5_000_000_000), text("collection", "log"), database()]),
            "2 7 [getMore] [shop.log] -1 5000000000",
        ),
        (
            command(&[
                int64("getMore", 5),
                text("collection", "log"),
                int32("maxTimeMS", 900),
                database(),
            ]),
            "10 7 [getMore] [shop.log] -1 5",
        ),
        (
            command(&[text("find", "orders"), int32("maxTimeMS", 900), database()]),
            "2 7 [find] [shop.orders] -1 0",
        ),
        (
            command(&[int32("hello", 1), int64("maxAwaitTimeMS", 10_000), text("$db", "admin")]),
            "10 7 [hello] [admin] -1 0",
        ),
        (
            msg(7, 0, 1 << 16, &[body(&[int32("hello", 1), text("$db", "admin")])]),
            "10 7 [hello] [admin] -1 0",
        ),
        (
            msg(
                7,
                0,
                1 << 16,
                &[body(&[int64("getMore", 5), text("collection", "log"), database()])],
            ),
            "2 7 [getMore] [shop.log] -1 5",
        ),
        (
            msg(7, 0, 2, &[body(&[text("insert", "orders"), database()])]),
            "10 7 [insert] [shop.orders] -1 0",
        ),
        (
            command(&[within("explain", &[text("find", "orders"), secret()]), database()]),
            "2 7 [explain] [shop.orders] -1 0",
        ),
        (
            command(&[text("renameCollection", "old.orders"), secret(), text("$db", "admin")]),
            "2 7 [renameCollection] [old.orders] -1 0",
        ),
        (
            command(&[text("createUser", "planted"), text("pwd", "planted"), database()]),
            "2 7 [createUser] [shop] -1 0",
        ),
        (
            command(&[within("usersInfo", &[secret()]), database()]),
            "2 7 [usersInfo] [shop] -1 0",
        ),
        (
            command(&[int32("saslStart", 1), binary("payload", SECRET), database()]),
            "2 7 [saslStart] [shop] -1 0",
        ),
        (
            command(&[
                int32("hello", 1),
                within("speculativeAuthenticate", &[binary("payload", SECRET)]),
                database(),
            ]),
            "2 7 [hello] [shop] -1 0",
        ),
        (
            command(&[text("not a name", "planted"), database()]),
            "2 7 [] [shop] -1 0",
        ),
        (
            command(&[text("find", "a\nplanted"), database()]),
            "2 7 [find] [shop] -1 0",
        ),
        (
            msg(
                7,
                0,
                0,
                &[
                    body(&[text("insert", "orders"), database()]),
                    sequence("documents", &[document(&[secret()])]),
                ],
            ),
            "2 7 [insert] [shop.orders] -1 0",
        ),
        (
            msg(
                7,
                0,
                0,
                &[
                    sequence("documents", &[document(&[secret()]), document(&[secret()])]),
                    body(&[text("insert", "orders"), database()]),
                ],
            ),
            "2 7 [insert] [shop.orders] -1 0",
        ),
        (
            msg(
                7,
                0,
                1,
                &[body(&[text("find", "orders"), database()]), vec![1, 2, 3, 4]],
            ),
            "2 7 [find] [shop.orders] -1 0",
        ),
        (
            msg(7, u32::MAX, 0, &[body(&[text("find", "orders"), database()])]),
            "2 7 [find] [shop.orders] -1 0",
        ),
        (
            query("admin.$cmd", &[int32("isMaster", 1), within("client", &[secret()])]),
            "2 7 [isMaster] [admin] -1 0",
        ),
        (
            query(
                "admin.$cmd",
                &[within("$query", &[int32("ismaster", 1)]), within("$x", &[secret()])],
            ),
            "2 7 [ismaster] [admin] -1 0",
        ),
        (
            query("shop.orders", &[text("name", "planted")]),
            "2 7 [query] [shop.orders] -1 0",
        ),
    ]
}

/// Answers, likewise.
fn answers() -> Vec<(Vec<u8>, &'static str)> {
    let secret = || text("x", "planted");
    let batch = |name: &str, own: &[Vec<u8>], id: i64| within("cursor", &[array(name, own), int64("id", id)]);
    let error = |ok: Vec<u8>| vec![ok, text("errmsg", "planted"), int32("code", 11_000)];
    let failed = |code: i32| {
        array(
            "writeErrors",
            &[within("0", &[int32("index", 0), int32("code", code), secret()])],
        )
    };
    vec![
        (answer(&[double("ok", 1.0)]), "4 7 [] [] 0 0"),
        (answer(&[int32("n", 3), int32("ok", 1)]), "4 7 [] [] 0 0"),
        (answer(&error(double("ok", 0.0))), "4 7 [] [] 11000 0"),
        (answer(&error(boolean("ok", false))), "4 7 [] [] 11000 0"),
        (
            answer(&[double("ok", 0.0), text("errmsg", "planted")]),
            "4 7 [] [] 2147483647 0",
        ),
        (
            answer(&[failed(11_000), int32("n", 0), double("ok", 1.0)]),
            "4 7 [] [] 11000 0",
        ),
        (
            answer(&[
                within("writeConcernError", &[int32("code", 64), secret()]),
                double("ok", 1.0),
            ]),
            "4 7 [] [] 64 0",
        ),
        (
            answer(&[batch("firstBatch", &[within("0", &[secret()])], 5), double("ok", 1.0)]),
            "4 7 [] [] 0 5",
        ),
        (
            answer(&[batch("nextBatch", &[within("0", &[secret()])], 5), double("ok", 1.0)]),
            "4 7 [] [] 0 5",
        ),
        (
            answer(&[batch("nextBatch", &[], 5), double("ok", 1.0)]),
            "12 7 [] [] 0 5",
        ),
        (
            answer(&[batch("nextBatch", &[], 0), double("ok", 1.0)]),
            "4 7 [] [] 0 0",
        ),
        (
            answer(&[batch("firstBatch", &[], 5), double("ok", 1.0)]),
            "4 7 [] [] 0 5",
        ),
        (msg(9, 7, 2, &[body(&[double("ok", 1.0)])]), "76 7 [] [] 0 0"),
        (
            answer(&[boolean("done", false), binary("payload", SECRET), double("ok", 1.0)]),
            "4 7 [] [] 0 0",
        ),
        (
            reply(8, &[boolean("ismaster", true), secret(), double("ok", 1.0)]),
            "4 7 [] [] 0 0",
        ),
        (reply(8, &error(double("ok", 0.0))), "4 7 [] [] 11000 0"),
        (
            reply(2, &[text("$err", "planted"), int32("code", 13)]),
            "4 7 [] [] 13 0",
        ),
        (
            reply(8, &[double("ok", 0.0), int32("code", 5), secret()]),
            "4 7 [] [] -1 0",
        ),
        // To the request 0: every command names its database.
        (
            msg(
                9,
                0,
                0,
                &[body(&[boolean("helloOk", true), secret(), double("ok", 1.0)])],
            ),
            "4 0 [] [] 0 0",
        ),
    ]
}

#[test]
fn commands_are_named_and_answers_have_results() {
    for (message, row) in commands().into_iter().chain(answers()) {
        assert_eq!(row_of(&message), row);
        assert!(is_sure(&message), "{row}");
    }
}

#[test]
fn nothing_of_a_users_is_in_excerpts() {
    for (message, row) in commands().into_iter().chain(answers()) {
        let (_, kept) = rows_of(&[message]);
        assert!(!contains(&kept, SECRET), "{row}");
    }
}

#[test]
fn an_agent_keeps_what_is_read_and_nothing_else() {
    for (message, row) in commands().into_iter().chain(answers()) {
        let kept = kept_of(&message);
        assert!(!contains(&kept, SECRET), "{row}: {}", String::from_utf8_lossy(&kept));
        assert_eq!(row_of(&kept), row, "as captured");
        assert_eq!(row_of(&with_zeros(&kept, message.len())), row, "beside another host's");
        assert_eq!(kept_of(&kept), kept, "what is kept is overwritten once");
    }
    let two = [commands()[0].0.clone(), commands()[1].0.clone()].concat();
    let second = commands()[0].0.len();
    assert_eq!(row_of(&kept_of(&two)[second..]), "2 7 [insert] [shop.orders] -1 0");
    let large = command(&[
        text("find", "orders"),
        within("filter", &[text("x", &"planted".repeat(900))]),
        database(),
    ]);
    assert_eq!(
        row_of(&kept_of(&large)),
        "2 7 [find] [orders] -1 0",
        "behind the first 4 KiB"
    );
    for other in [
        &b"planted"[..],
        b"",
        &[0; 40],
        b"\x28\0\0\0planted!\xdd\x07\0\0\0\0\0\0\0planted, no document",
    ] {
        assert_eq!(kept_of(other), b"", "{other:?}");
    }
}

#[test]
fn in_a_whole_payload_what_proves_who_asks_is_overwritten() {
    let proofs = [
        command(&[
            int32("saslStart", 1),
            text("mechanism", "PLAIN"),
            binary("payload", SECRET),
            database(),
        ]),
        command(&[int32("saslContinue", 1), binary("payload", SECRET), database()]),
        command(&[
            int32("authenticate", 1),
            text("nonce", "planted"),
            text("key", "planted"),
            database(),
        ]),
        command(&[text("createUser", "bob"), text("pwd", "planted"), database()]),
        command(&[
            text("updateUser", "bob"),
            within("customData", &[text("a", "planted")]),
            database(),
        ]),
        command(&[
            int32("hello", 1),
            within("speculativeAuthenticate", &[binary("payload", SECRET)]),
            database(),
        ]),
        query(
            "admin.$cmd",
            &[
                int32("isMaster", 1),
                within("speculativeAuthenticate", &[binary("payload", SECRET)]),
            ],
        ),
        answer(&[int32("conversationId", 1), binary("payload", SECRET), double("ok", 1.0)]),
        answer(&[
            within("speculativeAuthenticate", &[binary("payload", SECRET)]),
            double("ok", 1.0),
        ]),
        reply(
            8,
            &[
                within("speculativeAuthenticate", &[binary("payload", SECRET)]),
                double("ok", 1.0),
            ],
        ),
        answer(&[text("nonce", "planted"), double("ok", 1.0)]),
    ];
    for proof in proofs {
        let whole = [command(&[int32("ping", 1), database()]), proof.clone()].concat();
        let mut redacted = whole.clone();
        redact(SecretRules::built_in(), &mut redacted);
        assert_eq!(redacted.len(), whole.len());
        assert!(!contains(&redacted, SECRET), "{}", String::from_utf8_lossy(&redacted));
        assert_eq!(row_of(&redacted[whole.len() - proof.len()..]), row_of(&proof));
    }
    let name = command(&[text("find", "a?X-Amz-Signature=planted"), database()]);
    let (_, kept) = rows_of(std::slice::from_ref(&name));
    assert!(!contains(&kept, SECRET) && !contains(&kept_of(&name), SECRET));
    let mut redacted = name.clone();
    redact(SecretRules::built_in(), &mut redacted);
    assert!(!contains(&redacted, SECRET));
}

#[test]
fn of_compressed_messages_only_the_header_is_read() {
    let compressed = |id, answers| {
        message(
            id,
            answers,
            2012,
            &[&2013_u32.to_le_bytes()[..], &99_u32.to_le_bytes(), &[2], SECRET].concat(),
        )
    };
    for (message, row) in [
        (compressed(7, 0), "2 7 [compressed] [] -1 0"),
        (compressed(9, 7), "4 7 [] [] -1 0"),
    ] {
        assert_eq!(row_of(&message), row);
        assert!(is_sure(&message));
        assert_eq!(kept_of(&message), message[..25]);
    }
}

#[test]
fn each_further_answer_belongs_to_the_same_request() {
    let answer = |id, answers, flags| msg(id, answers, flags, &[body(&[double("ok", 1.0)])]);
    let said = [
        answer(50, 7, 2),
        answer(51, 50, 2),
        answer(52, 51, 0),
        answer(53, 52, 0),
    ];
    let (rows, _) = rows_of(&said);
    let ids: Vec<&str> = rows.iter().filter_map(|row| row.split(' ').nth(1)).collect();
    assert_eq!(ids, ["7", "7", "7", "52"]);
    assert!(rows[0].starts_with("76 ") && rows[2].starts_with("4 "));
}

#[test]
fn what_frames_mean() {
    let of = |flags| {
        meaning(&FrameFields {
            kind: 2013,
            flags,
            stream: 7,
            len: 90,
            content_length: 5,
        })
    };
    let request = of(flag::REQUEST | flag::OPENS_WAIT);
    assert_eq!(
        (request.asker, request.opens, request.ends),
        (Asker::Sender, true, true)
    );
    assert_eq!(
        (request.opens_wait, request.is_no_request, request.series),
        (true, false, 5)
    );
    let answer = of(flag::ANSWER | flag::GOES_ON | flag::NO_REQUEST);
    assert_eq!(
        (answer.asker, answer.opens, answer.ends),
        (Asker::Receiver, false, false)
    );
    assert!(answer.is_no_request && answer.is_said);
    assert!(!of(flag::AFTER_GAP).is_said && of(flag::AFTER_GAP).follows_gap);
    let mut old = message(7, 0, 2006, &[0; 30]);
    assert_eq!(
        row_of(&old),
        "0 0 [] [] -1 0",
        "a deletion of an old client wants no answer"
    );
    assert!(!is_sure(&old), "nor does a connection begin with it");
    old[12] = 0;
    assert_eq!(frame_len(&old), None);
}

#[test]
fn what_is_no_message_is_not_taken_for_one() {
    let whole = command(&[text("find", "orders"), database()]);
    let forged = |at: usize, bytes: &[u8]| {
        let mut other = whole.clone();
        other[at..at + bytes.len()].copy_from_slice(bytes);
        other
    };
    let others = [
        forged(0, &[25, 0, 0, 0]),
        forged(0, &50_000_000_u32.to_le_bytes()),
        forged(12, &[0xde, 7]),
        forged(14, &[1]),
        forged(16, &[4]),
        forged(17, &[1]),
        forged(20, &[2]),
        forged(20, &[1]),
        forged(21, &[0, 1]),
        forged(21, &[4, 0]),
        forged(25, &[0x14]),
        forged(26, b"\n"),
        whole[..24].to_vec(),
        reply(8, &[double("ok", 1.0)]).into_iter().take(39).collect(),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0".repeat(4),
        vec![],
    ];
    for other in others {
        assert!(!is_sure(&other), "{other:?}");
        assert!(!(FRAMING.resumes)(&other, other.len()));
    }
    let start = &whole[..HEADER_LEN];
    assert!(begins(start, true) && !begins(start, false));
    let start = &answer(&[double("ok", 1.0)])[..HEADER_LEN];
    assert!(begins(start, false) && !begins(start, true));
    assert!(!begins(&whole[..15], true));
}

#[test]
fn other_protocols_do_not_claim_what_begins_with_a_message() {
    use crate::registry::{framings_of_payload, scannings_of_payload};
    // Lengths and ids whose bytes are other protocols' types, and what follows them.
    for len in [0x0316, 0x0100, 0x0317, 0x2a, 0x51, 0x0a50] {
        for id in [1, 3, 0x0a, 0x16, 0x100, 0x4000_0000] {
            let mut elements = vec![text("find", "orders"), database()];
            let bare = command(&elements).len() + text("comment", "").len();
            elements.push(text("comment", &"c".repeat(usize::saturating_sub(len, bare))));
            let message = msg(id, 0, 0, &[body(&elements)]);
            let (_, first) = framings_of_payload(&message)
                .find(|(_, framing)| (framing.begins)(&message, message.len()))
                .expect("a message");
            assert_eq!(first.header_len, HEADER_LEN);
            assert_eq!(scannings_of_payload(&message).count(), 0);
        }
    }
}

#[test]
fn whatever_is_cut_or_forged_is_read_without_a_panic() {
    for (whole, row) in commands().into_iter().chain(answers()) {
        let id = |row: &str| row.split(' ').nth(1).map(str::to_owned);
        for len in HEADER_LEN..whole.len() {
            let is_same = id(&row_of(&whole[..len])) == id(row);
            assert!(is_same || row.starts_with("4 0 "), "{row}, cut at {len}");
            let kept = kept_of(&whole[..len]);
            assert!(kept.len() <= len);
            redact(SecretRules::built_in(), &mut whole[..len].to_vec());
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                for count in [1, 4] {
                    let mut forged = whole.clone();
                    forged[at..].iter_mut().take(count).for_each(|own| *own = byte);
                    row_of(&forged);
                    is_sure(&forged);
                    let kept = kept_of(&forged);
                    assert_eq!(kept_of(&kept), kept, "byte {at} is {byte}");
                    redact(SecretRules::built_in(), &mut forged);
                }
            }
        }
    }
}

/// Messages of pymongo 4.20 and of FerretDB 1.24, as captured.
const CAPTURED: &[(&str, &str)] = &[
    (
        "a60000007348336600000000dd07000000000000005600000002696e7365727400090000006f72646572735f3000086f7264657265640001036c \
         736964001e000000056964001000000004912549d9827045a18fd6ff4e1b6986700002246462000500000073686f700000013a000000646f6375 \
         6d656e7473002c000000105f69640000000000026e616d6500080000006f72646572203000046974656d7300050000000000",
        "2 1714636915 [insert] [shop.orders_0] -1 0",
    ),
    (
        "85000000e2ac255b00000000dd070000000000000070000000126765744d6f726500bc6d4eaa0000000002636f6c6c656374696f6e0009000000 \
         6f72646572735f300010626174636853697a650032000000036c736964001e000000056964001000000004912549d9827045a18fd6ff4e1b6986 \
         700002246462000500000073686f700000",
        "2 1529195746 [getMore] [shop.orders_0] -1 2857266620",
    ),
    (
        "7a00000064d3f22600000000dd07000002000000004800000002696e7365727400050000006261726500086f7264657265640001037772697465 \
         436f6e6365726e000c000000107700000000000002246462000500000073686f700000011c000000646f63756d656e7473000e000000105f6964 \
         000000000000",
        "10 653448036 [insert] [shop.bare] -1 0",
    ),
    (
        "8e00000062b4a60c00000000dd0700000000000000790000000266696e6400050000006e657773000366696c7465720005000000001062617463 \
         6853697a650001000000087461696c61626c650001086177616974446174610001036c736964001e00000005696400100000000487374392b310 \
         45e6a7748de8a20c1b740002246462000500000073686f700000",
        "34 212251746 [find] [shop.news] -1 0",
    ),
    (
        "9d0000007100000042437500dd070000000000000088000000106e00000000000477726974654572726f727300630000000330005b0000001069 \
         6e646578000000000010636f646500f82a0000026572726d73670035000000453131303030206475706c6963617465206b6579206572726f7220 \
         636f6c6c656374696f6e3a2073686f702e6f72646572735f31000000016f6b00000000000000f03f00",
        "4 7684930 [] [] 11000 0",
    ),
    (
        "810000000300000080b63c76dd07000000000000006c00000003637572736f720053000000046e657874426174636800250000000330001d0000 \
         00075f6964006b0bd002d9b0c5a0c9f05014106e0000000000000012696400f46d4eaa00000000026e73000a00000073686f702e6e6577730000 \
         016f6b00000000000000f03f00",
        "4 1983690368 [] [] 0 2857266676",
    ),
];

#[test]
fn messages_of_a_real_driver_and_server_are_read() {
    for (hex, row) in CAPTURED {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).unwrap_or(0);
        let message: Vec<u8> = digits.chunks(2).map(pair).collect();
        assert_eq!(row_of(&message), *row);
        assert_eq!(
            frame_len(&message).map(|len| len.body_len as usize + HEADER_LEN),
            Some(message.len())
        );
        assert!(is_sure(&message));
        assert_eq!(row_of(&kept_of(&message)), *row);
    }
}
