//! Frames of Ceph 16.2, as captured, and frames made here.

use twintap_secrets::SecretRules;

use super::*;
use crate::excerpt::{ExcerptColumns, Notes};
use crate::http1::{HeaderMarks, IdHeaders, KeptLines};

const READ: &str = "1102290000000800d50000000800000000000000000000000000000014af4d38010000000000000001000000000000002a003f00 \
    080000000000000000000000000000000303000000de5ce7bd01011200000001050000000000000007000000ffffffffffffdef8 \
    6c150000001400400002021500000000000000000000000000000000000000000000000000000000000000000000000000000000 \
    000000000000000000000000000000000000000006031c0000000500000000000000ffffffff0000000000000000ffffffffffff \
    ffff040000006f626a3101000112000000000000000000000000000040000000000000000000000000000000000000000000feff \
    ffffffffffff00000000000000000000000000000000fffffdffbdcf013f0e92691fde0000000000000000";
const REPOP: &str = "11042900000008001f04000008000000000008003316000000100000e93f38794b00000000000000400000000000000070007f00 \
    030000000000b00e40000000000000000301000000d6d1de12150000001100000000000000000000000000000000000000000000 \
    000000000002021500000008241000000000000001000000000000000000000001011200000001050000000000000004000000ff \
    ffffffff04032500000000000000040000006f626a30feffffffffffffff54263e2b000000000005000000000000000501000000 \
    0000000015000000b4000000010000000e04aa00000001000000040325000000";
const REPOP_REPLY: &str = "11022900000008006f0000000800000000000000000000000000000039374eb95e0000000000000075000000000000007100c400 \
    02000000000000004d0000000000000003010000006d365a47160000001100000000000000000000000000000000000000000000 \
    0000000000020215000000084b1000000000000005000000000000000000000001011200000001050000000000000006000000ff \
    ffffffff040000000000000000000000000000000001010500000000000000ff0e8e91988e0000000000000000";
const EC_WRITE: &str = "11022900000008006a03000008000000000000000000000000000000a8bda39d880100000000000000000000000000006c007f00 \
    020000000000000098010000000000000301000000cb9caa8901011200000001060000000000000002000000ffffffff01160000 \
    0004012c030000010105000000010000000002010000000000000202150000000845100000000000000100000000000000000000 \
    00040326000000000000000500000065636f626afeffffffffffffffc2b6aa19000000000006000000000000001a166c02000001 \
    00000000000000160000000b";
const EC_WRITE_REPLY: &str = "11022900000008005f000000080000000000000000000000000000007c165237900100000000000000000000000000006d00c400 \
    020000000000000087010000000000000301000000e19f0a0a01011200000001060000000000000002000000ffffffff00160000 \
    00010121000000010105000000000000000101010000000000000100000000000000160000000101150000000000000000000000 \
    000000000000000000000000000000000ef289fd4d0000000000000000";
const EC_READ: &str = "1102290000000800d900000008000000000000000000000000000000f9bab15a8d0100000000000000000000000000006e007f00 \
    030000000000000099010000000000000301000000abd18dbd01011200000001060000000000000002000000ffffffff01160000 \
    0003029b0000000101050000000100000000030100000000000001000000040326000000000000000500000065636f626afeffff \
    ffffffffffc2b6aa1900000000000600000000000000010000000000000000000000001000000000000000000000000000000100 \
    0000040326000000000000000500000065636f626afeffffffffffffffc2b6aa1900000000000600000000000000010000000000 \
    000001000000150000000000000000000000000000000000000000000000000000000ea4fef5680000000000000000";
const AUTH_DONE: &str = "06013400000008000000000000000000000000000000000000000000b23a07b72410000000000000010000002400000020000000 \
    d9341265f9c74f58eede4b14e22768a2c32c551e79c2dbab37db76d0585da446992c16ad";
const NOT_FOUND: &str = "1102290000000800940000000800000000000000000000000000000054adcde2010000000000000001000000000000002b007f00 \
    080000000000000001000000000000000302000000337e4169040000006e6f706501050000000000000007000000ffffffff1400 \
    400000000000feffffff000000000000000000000000150000000100000001120000000000000000000000000000400000000000 \
    00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
    00000000000000000000000000000000000e600b40150000000000000000";

struct NoNotes;

impl Notes for NoNotes {
    fn head(&mut self, _: &Head<'_>, _: u64, _: bool) {}
    fn head_cut(&mut self) {}
    fn left_out(&mut self) {}
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).unwrap_or(0);
    digits.chunks(2).map(pair).collect()
}

/// A frame as its sender makes it.
fn frame(tag: u8, segments: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![tag, segments.len() as u8];
    for place in 0..4 {
        let len = segments.get(place).map_or(0, |segment| segment.len() as u32);
        frame.extend(len.to_le_bytes());
        frame.extend(8_u16.to_le_bytes());
    }
    frame.extend([0, 0]);
    frame.extend((!crc32c::crc32c_append(!0, &frame)).to_le_bytes());
    let (first, others) = segments.split_first().expect("a segment");
    frame.extend_from_slice(first);
    frame.extend([0; CRC_LEN]);
    others.iter().for_each(|segment| frame.extend_from_slice(segment));
    frame.extend(vec![0; if others.is_empty() { 0 } else { 13 }]);
    frame
}

fn header(kind: u16, tid: u64, version: u16) -> Vec<u8> {
    let mut header = [7_u64.to_le_bytes(), tid.to_le_bytes()].concat();
    header.extend(kind.to_le_bytes());
    header.extend(127_u16.to_le_bytes());
    header.extend(version.to_le_bytes());
    header.resize(messages::HEADER_LEN, 0);
    header
}

fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

fn structure(content: &[u8]) -> Vec<u8> {
    [&[1, 1], &string(content)[..]].concat()
}

/// Code, two bytes of parameters, length of data.
type Operation = (u16, [u8; 2], u32);

/// The front of an operation on an object of pool 3, with these operations.
fn operation(object: &[u8], operations: &[Operation]) -> Vec<u8> {
    let mut front = structure(&[0; 18]);
    front.extend([1, 0, 0, 0x80]); // hash
    front.extend([0; 8]);
    front.extend(structure(&[0; 21]));
    front.extend([0; 24 + 4 + 8]);
    let locator = [
        &3_u64.to_le_bytes()[..],
        &[0xff; 4],
        &string(b""),
        &string(b""),
        &[0xff; 8],
    ]
    .concat();
    front.extend(structure(&locator));
    front.extend(string(object));
    front.extend((operations.len() as u16).to_le_bytes());
    for (code, parameters, data_len) in operations {
        front.extend(code.to_le_bytes());
        front.extend([0; 4]);
        front.extend(parameters);
        front.extend([0; 26]);
        front.extend(data_len.to_le_bytes());
    }
    front.extend([0x5a; 40]); // snapshots
    front
}

/// As [`keep`] and [`read`] have the frames of one direction: kind, flags, tid, method, target, result, id; and all
/// bytes that were kept.
fn rows_of(frames: &[Vec<u8>], secrets: &SecretRules) -> (Vec<String>, Vec<u8>) {
    let (mut reader, mut excerpts) = ((FRAMING.reader)(true), ExcerptColumns::default());
    for bytes in frames {
        let mut said = Vec::new();
        let wanted = frame_len(&bytes[..PREAMBLE_LEN]).map_or(0, |len| PREAMBLE_LEN + len.kept_len as usize);
        reader.read(&bytes[..wanted.min(bytes.len())], &mut said);
        let mut keeper = Keeper {
            excerpts: &mut excerpts,
            frame: 1,
            protocol: 2,
            ids: &IdHeaders::default(),
            marks: &HeaderMarks::default(),
            secrets,
            notes: &mut NoNotes,
            lines: &mut KeptLines::default(),
        };
        let read = ReadFrame {
            header: &bytes[..PREAMBLE_LEN],
            at: 0,
            said: &said,
        };
        keep(&read, &mut keeper);
    }
    let mut found = Vec::new();
    for row in 0..excerpts.len() {
        read(&excerpts.row(row), &mut |at, head| {
            assert_eq!((at, head.kind), (PREAMBLE_LEN as u32, FRAME));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (method, target, id) = (text(head.method), text(head.target), text(head.transaction_id));
            let (kind, stream) = (head.frame.kind, head.frame.stream);
            found.push(format!(
                "{kind} {} {stream} [{method}] [{target}] {} [{id}]",
                head.flags, head.result_code
            ));
        });
    }
    (found, excerpts.bytes.bytes)
}

fn row_of(frame: Vec<u8>) -> String {
    rows_of(&[frame], SecretRules::built_in()).0.concat()
}

#[test]
fn messages_of_a_real_cluster_are_read() {
    let cases = [
        (READ, "42 0 1 [osd read] [5/obj1] -1 [0:1 5:ff7b1f36]"),
        (NOT_FOUND, "43 0 1 [osd_op_reply] [] 2 []"),
        (REPOP, "112 0 64 [osd_repop] [5/obj0] -1 [0:1 5:2a647cd4]"),
        (REPOP_REPLY, "113 0 117 [osd_repop_reply] [] 0 []"),
        (EC_WRITE, "108 0 258 [ec_write] [6/ecobj] -1 [0:1 6:436d5598]"),
        (EC_WRITE_REPLY, "109 0 257 [ec_write_reply] [] 0 []"),
        (EC_READ, "110 0 259 [ec_read] [6/ecobj] -1 []"),
        (AUTH_DONE, "65534 0 0 [] [] -1 []"),
    ];
    for (hex, row) in cases {
        assert_eq!(row_of(bytes(hex)), row);
    }
}

#[test]
fn lengths_are_those_of_the_wire() {
    for hex in [READ, NOT_FOUND, REPOP_REPLY, EC_WRITE_REPLY, EC_READ, AUTH_DONE] {
        let frame = bytes(hex);
        let len = frame_len(&frame[..PREAMBLE_LEN]).expect("a preamble");
        assert_eq!(PREAMBLE_LEN + len.body_len as usize, frame.len());
    }
}

#[test]
fn operations_are_named() {
    let called = b"rgwbucket_listinput";
    let cases: &[(&[Operation], &[u8], &str)] = &[
        (&[(0x2223, [0; 2], 0), (0x2201, [0; 2], 9)], b"", "osd write"),
        (&[(0x1401, [3, 11], 19)], called, "osd call rgw.bucket_list"),
        (&[(0x1401, [3, 11], 19)], b"", "osd call"),
        (&[(0x1401, [0, 0], 0)], called, "osd call"),
        (&[(0x1401, [255, 255], 19)], called, "osd call"),
        (&[(0x1401, [3, 11], 19)], b"rgw\nucket_listinput", "osd call"),
        (
            &[(0x2202, [0; 2], 2), (0x1401, [3, 11], 19)],
            b"abrgwbucket_list",
            "osd writefull+call rgw.bucket_list",
        ),
        (&[(0x2301, [0; 2], 2), (0x2301, [0; 2], 2)], b"", "osd setxattr"),
        (
            &[
                (0x1302, [0; 2], 0),
                (0x1202, [0; 2], 0),
                (0x1201, [0; 2], 0),
                (0x2205, [0; 2], 0),
            ],
            b"",
            "osd getxattrs+stat+read+...",
        ),
        (&[(0x9999, [0; 2], 0)], b"", "osd 0x9999"),
        (&[], b"", "osd "),
    ];
    for (operations, data, name) in cases {
        let front = operation(b"o", operations);
        let row = row_of(frame(17, &[&header(42, 9, 8), &front, b"", data]));
        assert_eq!(row, format!("42 0 9 [{name}] [3/o] -1 [0:9 3:80000001]"));
    }
}

#[test]
fn what_keeps_a_watch_alive_is_marked() {
    let watch = |action: u8, more: &[Operation]| {
        let mut front = operation(b"o", &[&[(0x220f, [0; 2], 0)], more].concat());
        let at = front.len() - 40 - 38 * (1 + more.len()) + 22;
        front[at] = action;
        row_of(frame(17, &[&header(42, 9, 8), &front]))
    };
    assert_eq!(watch(7, &[]), "42 4 9 [osd watch] [3/o] -1 [0:9 3:80000001]");
    assert_eq!(watch(3, &[]), "42 0 9 [osd watch] [3/o] -1 [0:9 3:80000001]");
    let both = watch(7, &[(0x1202, [0; 2], 0)]);
    assert_eq!(both, "42 0 9 [osd watch+stat] [3/o] -1 [0:9 3:80000001]");
}

#[test]
fn of_a_command_only_its_prefix_is_read() {
    let command = |json: &[u8]| {
        let front = [&[0; 34][..], &1_u32.to_le_bytes(), &string(json)].concat();
        frame(17, &[&header(50, 4, 1), &front])
    };
    let cases: &[(&[u8], &str)] = &[
        (br#"{"prefix": "osd pool create", "pool": "secret"}"#, "osd pool create"),
        (br#"{"prefix": "secret=1"}"#, ""),
        (br#"{"prefix": "osd pool"#, ""),
        (b"secret", ""),
    ];
    for (json, prefix) in cases {
        let (rows, kept) = rows_of(&[command(json)], SecretRules::built_in());
        assert_eq!(rows, [format!("50 0 4 [mon_command] [{prefix}] -1 []")]);
        assert!(!kept.windows(6).any(|bytes| bytes == b"secret"));
    }
}

#[test]
fn frames_that_are_missing_are_marked() {
    let mut reader = (FRAMING.reader)(false);
    let mut flags = |frame: &str| {
        let mut said = Vec::new();
        reader.read(&bytes(frame), &mut said);
        said.first().copied()
    };
    let acknowledgement = &frame(20, &[&[0; 8]]);
    let acknowledgement: String = acknowledgement.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(flags(&acknowledgement), None);
    assert_eq!(flags(READ), Some(flag::AFTER_GAP));
    assert_eq!(flags(READ), Some(0));
    assert_eq!(flags(&acknowledgement), None);
    assert_eq!(flags(READ), Some(0));
    reader.lose();
    let mut said = Vec::new();
    reader.read(&bytes(READ), &mut said);
    assert_eq!(said.first(), Some(&flag::AFTER_GAP));
}

#[test]
fn the_end_of_authentication_says_whether_the_rest_is_encrypted() {
    let done = |mode: u32| {
        frame(
            6,
            &[&[&5_u64.to_le_bytes()[..], &mode.to_le_bytes(), b"ticket"].concat()],
        )
    };
    assert_eq!(row_of(done(1)), "65534 0 0 [] [] -1 []");
    assert_eq!(row_of(done(2)), "65534 2 0 [] [] -1 []");
    let fields = |flags| FrameFields {
        kind: frame_kind::AUTH_DONE,
        flags,
        stream: 0,
        len: 90,
        content_length: -1,
    };
    assert!(meaning(&fields(2)).hides_rest && !meaning(&fields(0)).hides_rest);
}

#[test]
fn either_end_asks() {
    let fields = |kind| FrameFields {
        kind,
        flags: 0,
        stream: 1,
        len: 90,
        content_length: -1,
    };
    let of = |kind| {
        let meaning = meaning(&fields(kind));
        (meaning.asker, meaning.family, meaning.is_said, meaning.opens)
    };
    assert_eq!(of(42), (Asker::Sender, 42, true, true));
    assert_eq!(of(43), (Asker::Receiver, 42, true, false));
    assert_eq!(of(113), (Asker::Receiver, 112, true, false));
    assert_eq!(of(41), (Asker::Client, 0, false, false), "a map needs no answer");
    assert_eq!(
        of(70),
        (Asker::Client, 0, false, false),
        "nor has a ping one that anybody waits for"
    );
    let ping = FrameFields {
        flags: flag::KEEPALIVE,
        ..fields(42)
    };
    assert!(!meaning(&ping).is_said, "nor is what keeps a watch alive one");
}

#[test]
fn what_is_no_preamble_is_not_taken_for_one() {
    let whole = bytes(READ);
    for at in 0..PREAMBLE_LEN {
        for bit in 0..8 {
            let mut other = whole.clone();
            other[at] ^= 1 << bit;
            assert_eq!(frame_len(&other[..PREAMBLE_LEN]), None, "byte {at}");
            assert!(!(FRAMING.begins)(&other, other.len()));
        }
        assert_eq!(frame_len(&whole[..at]), None);
    }
    for other in [
        &b"ceph v2\n"[..],
        b"ceph v2\n\x11\0aaaaaaaaaaaaaaaaa",
        b"ceph v027",
        &[0; 100],
        b"",
    ] {
        assert!(!(FRAMING.begins)(other, other.len()), "{other:?}");
    }
    let banner = b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert!((FRAMING.begins)(banner, 26) && (PROTOCOL.begins)(banner, false));
    assert_eq!((FRAMING.preface_len)(&[banner, &whole[..]].concat()), 26);
}

#[test]
fn whatever_is_cut_or_forged_is_read_without_a_panic() {
    let called = frame(
        17,
        &[
            &header(42, 9, 8),
            &operation(b"o", &[(0x1401, [3, 11], 19)]),
            b"",
            b"rgwbucket_list",
        ],
    );
    let all = [
        READ,
        NOT_FOUND,
        REPOP,
        REPOP_REPLY,
        EC_WRITE,
        EC_WRITE_REPLY,
        EC_READ,
        AUTH_DONE,
    ]
    .map(bytes);
    for whole in all.into_iter().chain([called]) {
        let expected = row_of(whole.clone());
        for len in PREAMBLE_LEN..whole.len() {
            let (rows, _) = rows_of(&[whole[..len].to_vec()], SecretRules::built_in());
            let same = |row: &String| row.split(' ').next() == expected.split(' ').next();
            assert!(rows.iter().all(same), "cut at {len}");
            payload_policy::blank(&mut whole[..len].to_vec(), SecretRules::built_in());
        }
        for at in PREAMBLE_LEN..whole.len() {
            let mut forged = whole.clone();
            forged[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff);
            row_of(forged.clone());
            payload_policy::blank(&mut forged, SecretRules::built_in());
        }
    }
    let longest = frame(17, &[&header(42, 9, 8)]);
    for at in [8, 14, 20] {
        let mut forged = longest[..PREAMBLE_LEN].to_vec();
        forged[1] = 4;
        forged[at..at + 4].fill(0xff);
        let crc = !crc32c::crc32c_append(!0, &forged[..28]);
        forged[28..].copy_from_slice(&crc.to_le_bytes());
        let len = frame_len(&forged);
        assert!(
            len.is_none_or(|len| len.kept_len <= len.body_len && len.kept_len < 8192),
            "{len:?}"
        );
    }
}

/// What an agent keeps of a payload.
fn kept_of(payload: &[u8], rules: &SecretRules) -> Vec<u8> {
    let mut captured = payload[..payload_policy::kept_len(payload, 2048)].to_vec();
    payload_policy::blank(&mut captured, rules);
    captured
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[test]
fn an_agent_keeps_what_is_read_and_no_data() {
    let operations = [(0x2202, [0; 2], 6), (0x1401, [3, 11], 20)];
    let front = operation(b"name", &operations);
    let write = frame(17, &[&header(42, 9, 8), &front, b"", b"plantergwbucket_listplanted"]);
    let command = [
        &[0; 34][..],
        &1_u32.to_le_bytes(),
        &string(br#"{"prefix": "auth add", "key": "planted"}"#),
    ]
    .concat();
    let frames = [
        write,
        bytes(REPOP_REPLY),
        frame(17, &[&header(50, 4, 1), &command]),
        frame(17, &[&header(17, 5, 1), b"planted ticket"]),
        frame(2, &[b"planted ticket"]),
        bytes(READ),
    ];
    let whole = frames.concat();
    let kept = kept_of(&whole, SecretRules::built_in());
    assert!(
        !contains(&kept, b"planted") && !contains(&kept, b"\x5a\x5a\x5a"),
        "{kept:?}"
    );
    let mut at = 0;
    for frame in &frames {
        let end = (at + frame.len()).min(kept.len());
        let own = kept[at..end].to_vec();
        at = end;
        assert_eq!(
            rows_of(&[own], SecretRules::built_in()).0,
            rows_of(std::slice::from_ref(frame), SecretRules::built_in()).0
        );
    }
}

#[test]
fn of_a_front_that_is_not_as_expected_nothing_is_kept() {
    let good = operation(b"planted", &[(0x2202, [0; 2], 6)]);
    let mut long = good.clone();
    long[2..6].fill(0xff); // a placement group that reaches over all else
    let mut other = good.clone();
    other[0] = 0;
    for front in [long, other, vec![0; 200], [&[0x5a; 60][..], b"planted"].concat()] {
        let whole = [
            frame(17, &[&header(42, 9, 8), &front, b"", b"planted"]),
            frame(17, &[&header(43, 9, 8), &front]),
            bytes(READ),
        ];
        let kept = kept_of(&whole.concat(), SecretRules::built_in());
        assert!(!contains(&kept, b"planted"));
        let (first, rest) = kept.split_at(whole[0].len());
        assert_eq!(row_of(first.to_vec()), "42 0 9 [osd_op] [] -1 []");
        assert_eq!(
            row_of(rest[..whole[1].len()].to_vec()),
            "43 0 9 [osd_op_reply] [] -2 []"
        );
    }
}

#[test]
fn an_agent_keeps_nothing_else() {
    assert_eq!(
        kept_of(
            b"\x11\x04\x29\0\0\0\x08\0 and no frame, whatever follows here",
            SecretRules::built_in()
        ),
        b""
    );
    let read = bytes(READ);
    for len in 0..read.len() {
        assert!(payload_policy::kept_len(&read[..len], 2048) <= len);
    }
    assert_eq!(payload_policy::kept_len(&read, 40), 40);
}

#[test]
fn secrets_are_overwritten_wherever_a_payload_is_stored() {
    let rules = SecretRules::built_in();
    let object = b"a?X-Amz-Signature=planted";
    let write = frame(
        17,
        &[
            &header(42, 9, 8),
            &operation(object, &[(0x2202, [0; 2], 4)]),
            b"",
            b"data",
        ],
    );
    assert_eq!(
        row_of(write.clone()),
        "42 0 9 [osd writefull] [3/a?X-Amz-Signature=xxxxxxx] -1 [0:9 3:80000001]"
    );
    assert!(!contains(&kept_of(&write, rules), b"planted"));
    let command = [
        &[0; 34][..],
        &1_u32.to_le_bytes(),
        &string(br#"{"prefix": "auth add", "key": "planted"}"#),
    ]
    .concat();
    let frames = [
        frame(17, &[&header(50, 4, 1), &command, b"", b"planted"]),
        frame(17, &[&header(51, 4, 1), &[0; 40], b"", b"key = planted"]),
        frame(6, &[b"123456781234planted ticket"]),
        frame(5, &[b"planted"]),
    ];
    let mut whole = frames.concat();
    crate::redaction::redact(rules, &mut whole);
    assert!(!contains(&whole, b"planted"), "{}", String::from_utf8_lossy(&whole));
    assert!(contains(&whole, br#""prefix": "auth add""#));
    let mut at = 0;
    for frame in &frames {
        let preamble = &whole[at..at + PREAMBLE_LEN];
        assert_eq!(preamble, &frame[..PREAMBLE_LEN]);
        at += frame.len();
    }
}
