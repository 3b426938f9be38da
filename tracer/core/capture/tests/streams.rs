//! Streams of messages with secrets in them, cut into packets in every way: an agent keeps no secret, and the head of
//! every message that begins behind a packet's start.

use twintap_capture::connections::Connections;
use twintap_capture::pcapng::LinkType;
use twintap_capture::policy::{MESSAGES_LIMIT_BYTES, Packet, PayloadPolicy};
use twintap_secrets::SecretRules;

/// In every secret, and nowhere else.
const SECRET: &[u8] = b"Zq";

/// One direction of a connection.
struct Stream {
    name: &'static str,
    bytes: Vec<u8>,
    /// Where a value is, which looks like a message if it is judged by itself.
    value: std::ops::Range<usize>,
    /// Kept of the message behind it.
    next: &'static [u8],
}

impl Stream {
    /// Arguments: what is before the value; the value; what is behind it; and what is kept of the message there.
    fn new(name: &'static str, before: &[u8], value: &[u8], behind: &[u8], next: &'static [u8]) -> Self {
        Self {
            name,
            bytes: [before, value, behind].concat(),
            value: before.len()..before.len() + value.len(),
            next,
        }
    }

    /// The same with a value that looks like nothing.
    fn plain(mut self) -> Self {
        let value = &mut self.bytes[self.value.clone()];
        value
            .iter_mut()
            .zip(SECRET.iter().cycle())
            .for_each(|(to, from)| *to = *from);
        self
    }
}

fn http2_frame(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags, 0, 0, 0, 1], body].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn mysql_packet(number: u8, body: &[u8]) -> Vec<u8> {
    [&[body.len() as u8, (body.len() >> 8) as u8, 0, number], body].concat()
}

fn ceph_frame(segments: [&[u8]; 4]) -> Vec<u8> {
    let mut frame = vec![17, 4];
    for segment in segments {
        frame.extend((segment.len() as u32).to_le_bytes());
        frame.extend([8, 0]);
    }
    frame.extend([0, 0]);
    frame.extend((!crc32c::crc32c_append(!0, &frame)).to_le_bytes());
    [&frame, segments[0], &[0; 4], &segments[1..].concat(), &[0; 13]].concat()
}

/// A message with its length before it, which may count bytes that are sent later.
fn with_length(body: &[u8], later: usize) -> Vec<u8> {
    [&((body.len() + later) as u32).to_be_bytes(), body].concat()
}

/// A request of Kafka: its kind, version and number, its client's name, and what follows.
fn kafka_request([kind, version, number]: [u8; 3], client: &[u8], body: &[u8], later: usize) -> Vec<u8> {
    let header = [0, kind, 0, version, 0, 0, 0, number, 0, client.len() as u8];
    with_length(&[&header, client, body].concat(), later)
}

fn streams() -> Vec<Stream> {
    let text = |text: String| text.into_bytes();
    let command = b"*2\r\n$3\r\nGET\r\n$8\r\nZqZqkeyZ\r\n";
    let line = b"get ZqZqkey\r\n";
    let value_line = b"VALUE ZqZqkey 0 0\r\n\r\nEND\r\n";
    let block = |path: &str| [&[0x82, 0x04, path.len() as u8], path.as_bytes()].concat();
    let call = http2_frame(1, 4, &block("/ZqZq"));
    let settings = http2_frame(4, 0, &[0; 6]).into_iter().enumerate();
    let settings: Vec<u8> = settings
        .map(|(at, byte)| if (5..9).contains(&at) { 0 } else { byte })
        .collect();
    let authorization = b"\x10\x0dauthorization\x08ZqZqZqZq";
    let data_header = |len: usize| http2_frame(0, 0, &vec![0; len])[..9].to_vec();
    let query = message(b'Q', b"SELECT ZqZq FROM accounts\0");
    let copy_header = |kind: u8, len: usize| message(kind, &vec![0; len])[..5].to_vec();
    let statement = mysql_packet(0, b"\x03SELECT ZqZq FROM accounts");
    let greeting = mysql_packet(
        0,
        &[
            b"\x0a8.Zq\0\x07\0\0\0abcdefgh\0\xfe\xf7-\x02\0\xff\x81\x15",
            &[0; 20][..],
        ]
        .concat(),
    );
    let read = ceph_frame([&[0; 41], b"", b"", b"ZqZq"]);
    let mut header = [0_u8; 41];
    header[16] = 9;
    let write = |data: &[u8]| ceph_frame([&header, b"", b"", data]);
    let ceph = write(&read);
    let fetch = kafka_request([1, 12, 9], b"ZqZq", b"", 0);
    let produce = b"\0\0\0\x01\0\0\x75\x30\x02\x07orders";
    vec![
        Stream::new(
            "redis client",
            &text(format!(
                "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$6\r\nuser:7\r\n${}\r\n",
                command.len()
            )),
            command,
            b"\r\n*2\r\n$3\r\nGET\r\n$6\r\nuser:8\r\n*2\r\n$4\r\nAUTH\r\n$4\r\nZqZq\r\n",
            b"$3\r\nGET\0\0$6\r\nuser:*",
        ),
        Stream::new(
            "redis server",
            &text(format!("+OK\r\n${}\r\n", command.len())),
            command,
            b"\r\n-ERR Zq\r\n:5\r\n+OK\r\n",
            b"-ERR",
        ),
        Stream::new(
            "memcached client",
            &text(format!("get user:6\r\nset user:7 0 0 {}\r\n", line.len())),
            line,
            b"\r\nget user:8\r\n",
            b"get user:*\r\n",
        ),
        Stream::new(
            "memcached server",
            &text(format!("VALUE user:7 0 {}\r\n", value_line.len())),
            value_line,
            b"\r\nEND\r\nSTORED\r\nCLIENT_ERROR Zq\r\n",
            b"END\r\nSTORED\r\n",
        ),
        Stream::new(
            "HTTP/2 client",
            &[
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                &settings[..],
                &http2_frame(1, 4, &[&block("/cart")[..], authorization].concat()),
                &data_header(call.len()),
            ]
            .concat(),
            &call,
            &[
                http2_frame(0, 1, b"ZqZq"),
                http2_frame(1, 5, &[&block("/next")[..], authorization].concat()),
            ]
            .concat(),
            b"\x04\x05/next",
        ),
        Stream::new(
            "HTTP/2 server",
            &[&settings[..], &http2_frame(1, 4, &[0x88]), &data_header(call.len())].concat(),
            &call,
            &http2_frame(1, 5, &[&[0x88][..], authorization].concat()),
            b"\x88\x10\x0dauthorization",
        ),
        Stream::new(
            "PostgreSQL client",
            &[
                message(b'Q', b"COPY accounts FROM STDIN WITH 'Zq'\0"),
                copy_header(b'd', query.len()),
            ]
            .concat(),
            &query,
            &[
                message(b'c', b""),
                message(b'Q', b"SELECT name FROM carts WHERE id = 'ZqZq'\0"),
            ]
            .concat(),
            b"SELECT name FROM carts",
        ),
        Stream::new(
            "PostgreSQL server",
            &[message(b'1', b""), message(b'2', b""), copy_header(b'D', query.len())].concat(),
            &query,
            &[
                message(b'D', b"\0\x01\0\0\0\x04ZqZq"),
                message(b'C', b"SELECT 2\0"),
                message(b'Z', b"I"),
            ]
            .concat(),
            b"Z\0\0\0\x05I",
        ),
        Stream::new(
            "MySQL client",
            &mysql_packet(
                0,
                &[
                    b"\x03SELECT name FROM carts WHERE id = '",
                    &vec![0; statement.len() + 1][..],
                ]
                .concat(),
            )[..40],
            &statement,
            &[
                b"'",
                &mysql_packet(0, b"\x03SELECT other FROM carts WHERE id = 'ZqZq'")[..],
            ]
            .concat(),
            b"SELECT other FROM carts",
        ),
        Stream::new(
            "MySQL server",
            &[
                mysql_packet(1, &[1]),
                mysql_packet(2, b"\x03defZq"),
                mysql_packet(3, &[0xfe, 0, 0, 2, 0]),
                mysql_packet(4, &vec![0; greeting.len()])[..4].to_vec(),
            ]
            .concat(),
            &greeting,
            &[mysql_packet(5, b"\x04ZqZq"), mysql_packet(6, &[0xfe, 0, 0, 2, 0])].concat(),
            &[5, 0, 0, 6, 0xfe],
        ),
        Stream::new(
            "Kafka client",
            &[
                kafka_request([18, 3, 1], b"shop", &[0; 600], 0),
                kafka_request([0, 9, 2], b"shop", produce, fetch.len() + 4),
            ]
            .concat(),
            &fetch,
            &[&b"ZqZq"[..], &kafka_request([3, 12, 3], b"next", b"ZqZq", 0)].concat(),
            b"next",
        ),
        Stream::new(
            "Ceph",
            &ceph[..ceph.len() - 13 - read.len()],
            &read,
            &[&[0; 13][..], &write(b"ZqZq")].concat(),
            &[17, 4, 41],
        ),
    ]
}

/// A packet with a part of a stream.
fn packet(seq: usize, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 40];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
    ip[9] = 6;
    ip[24..28].copy_from_slice(&(seq as u32).wrapping_sub(100).to_be_bytes()); // it wraps within the stream
    ip[32] = 0x50;
    ip.extend(payload);
    ip
}

/// What is kept of the payload of a packet.
fn kept_of(stream: &Stream, part: std::ops::Range<usize>, connections: &mut Connections) -> Vec<u8> {
    let frame = packet(part.start, &stream.bytes[part]);
    let kept = PayloadPolicy::Heads
        .keep(&Packet::whole(LinkType::RawIp, &frame), connections)
        .expect("TCP");
    let mut captured = frame[..kept.captured_len].to_vec();
    kept.redact(SecretRules::built_in(), &mut captured);
    assert!(captured.len() <= 40 + MESSAGES_LIMIT_BYTES);
    captured.split_off(40)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// What is kept of the parts of a stream, which are sent in this order; nothing of a secret may be among it.
fn kept_of_all(stream: &Stream, parts: &[std::ops::Range<usize>], secret: &[u8]) -> Vec<Vec<u8>> {
    let mut connections = Connections::default();
    let kept = parts.iter().map(|part| kept_of(stream, part.clone(), &mut connections));
    let kept: Vec<Vec<u8>> = kept.collect();
    for bytes in &kept {
        let shown = String::from_utf8_lossy(bytes);
        assert!(
            !contains(bytes, secret),
            "{}, cut into {parts:?}: {shown:?}",
            stream.name
        );
    }
    kept
}

#[test]
fn a_value_that_looks_like_a_message_is_kept_if_its_packet_is_judged_by_itself() {
    let is_kept = |stream: &Stream| {
        let kept = kept_of(stream, stream.value.clone(), &mut Connections::default());
        contains(&kept, SECRET)
    };
    let kept: Vec<&str> = streams()
        .iter()
        .filter(|stream| is_kept(stream))
        .map(|stream| stream.name)
        .collect();
    assert!(kept.len() >= 8, "{kept:?}");
}

#[test]
fn wherever_packets_cut_a_value_none_of_it_is_kept_and_the_next_head_is() {
    for stream in streams() {
        let end = stream.bytes.len();
        for first in stream.value.start..=stream.value.end {
            for second in first + 1..=stream.value.end {
                let kept = kept_of_all(&stream, &[0..first, first..second, second..end], SECRET);
                let shown = String::from_utf8_lossy(&kept[2]);
                assert!(
                    contains(&kept[2], stream.next),
                    "{} {first} {second}: {shown:?}",
                    stream.name
                );
            }
        }
    }
}

#[test]
fn wherever_two_packets_cut_a_stream_no_secret_is_kept() {
    for stream in streams() {
        for cut in 1..stream.bytes.len() {
            kept_of_all(&stream, &[0..cut, cut..stream.bytes.len()], SECRET);
        }
    }
}

/// A packet behind a missing one is judged by itself. If it begins within a header of HTTP/2, up to 4 bytes behind that may
/// pass for the number of a stream.
#[test]
fn with_packets_lost_repeated_and_swapped_no_secret_is_kept() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for stream in streams().into_iter().map(Stream::plain) {
        for _ in 0..2_000 {
            let longest = 1 + random(60);
            let (mut parts, mut at) = (Vec::new(), 0);
            while at < stream.bytes.len() {
                let end = stream.bytes.len().min(at + 1 + random(longest));
                parts.push(at..end);
                at = end;
            }
            for _ in 0..random(4) {
                let (one, other) = (random(parts.len()), random(parts.len()));
                match random(3) {
                    0 => drop(parts.remove(one)),
                    1 => parts.insert(one, parts[other].clone()),
                    _ => parts.swap(one, other),
                }
                if parts.is_empty() {
                    break;
                }
            }
            kept_of_all(&stream, &parts, b"ZqZqZ");
        }
    }
}

/// A packet between a client and a server: who sends it, its sequence number, the other's byte that it expects.
fn packet_between(from_client: bool, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
    let mut ip = packet(0, payload);
    let ends = if from_client { [1, 2] } else { [2, 1] };
    (ip[15], ip[19], ip[21], ip[23]) = (ends[0], ends[1], ends[0], ends[1]);
    ip[24..28].copy_from_slice(&seq.to_be_bytes());
    ip[28..32].copy_from_slice(&ack.to_be_bytes());
    ip
}

/// What is kept of packets of both sides, one after the other; with each, whether its client sent it.
fn kept_between(packets: &[(bool, u32, u32, &[u8])]) -> Vec<Vec<u8>> {
    let mut connections = Connections::default();
    let mut kept_payload = |&(from_client, seq, ack, payload): &(bool, u32, u32, &[u8])| {
        let frame = packet_between(from_client, seq, ack, payload);
        let packet = Packet::whole(LinkType::RawIp, &frame);
        let kept = PayloadPolicy::Heads.keep(&packet, &mut connections).expect("TCP");
        let mut captured = frame[..kept.captured_len].to_vec();
        kept.redact(SecretRules::built_in(), &mut captured);
        captured.split_off(40)
    };
    packets.iter().map(&mut kept_payload).collect()
}

#[test]
fn answers_that_nothing_shows_are_kept_where_their_requests_were_recognised() {
    let hello = kafka_request([18, 3, 1], b"shop", &[0; 20], 0);
    let answer = with_length(b"\0\0\0\x01ZqZqZqZq", 40);
    let rest = [&[b'Z'; 40][..], &with_length(b"\0\0\0\x02ZqZq", 0)].concat();
    let seq = |seq: u32, bytes: &[u8]| seq.wrapping_add(bytes.len() as u32);
    let (asked, zero) = (100, u32::MAX - 3);
    let kept = kept_between(&[
        (true, asked, zero, &hello),
        (false, zero, seq(asked, &hello), &answer),
        (false, seq(zero, &answer), seq(asked, &hello), &rest),
        (false, seq(seq(zero, &answer), &rest).wrapping_add(9), 0, &answer), // behind a missing packet
        (true, seq(asked, &hello), seq(seq(zero, &answer), &rest), &hello),
        (false, seq(seq(zero, &answer), &rest), 0, &answer),
    ]);
    assert_eq!(kept[1], &answer[..8]);
    assert_eq!(kept[2], [&[0; 40], &rest[40..48]].concat());
    assert_eq!(kept[3], b"");
    assert_eq!(
        kept[5],
        &answer[..8],
        "the client's next packet says where its server goes on"
    );
    let alone = kept_between(&[(false, zero, asked, &answer), (false, seq(zero, &answer), asked, &rest)]);
    assert_eq!(alone, [b"", b""], "nothing shows what they are");
}

#[test]
fn where_a_request_is_known_to_begin_less_is_asked_of_it() {
    let get = with_length(b"\0\0\0\x02\0\0\0\x04\0\0\0\x04/app\0", 0); // ZooKeeper's getData /app
    let close = with_length(b"\0\0\0\x03\xff\xff\xff\xf5", 0);
    let kept = kept_between(&[
        (true, 100, 0, &close),
        (true, 112, 0, &get),
        (true, 112 + get.len() as u32, 0, &close),
    ]);
    assert_eq!(kept, [&b""[..], &get[..20], &close]);
}
