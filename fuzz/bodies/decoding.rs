//! Bodies of the decoding targets. Each takes any bytes and panics where its invariant does not hold.
//!
//! Run by cargo-fuzz (`fuzz_targets/`) and, over the committed corpus and mutations of it, by `wire/tests/fuzz_bodies.rs`.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};

use twintap_protocols::excerpt::{ExcerptColumns, Payload, read_kept};
use twintap_protocols::http2::PREFACE;
use twintap_protocols::marks::STREAM_MARK;
use twintap_protocols::protocol::{Finder, Scan, Scanning};
use twintap_protocols::registry::REGISTRY;
use twintap_protocols::sql::{self, Dialect};
use twintap_protocols::{http1, redaction, tls};
use twintap_secrets::SecretRules;
use twintap_wire::counters::Counters;
use twintap_wire::events::{Event, EventColumns};
use twintap_wire::fragments::WINDOW_PACKETS;
use twintap_wire::frames::{self, Frames};
use twintap_wire::link::LinkType;
use twintap_wire::packet::{Decoder, Direction, Packet, walk};
use twintap_wire::reader::Reader;
use twintap_wire::stamps::{self, StampFilter};

/// Packets of a batch: small, so that batches end within small files.
const BATCH_PACKETS: usize = 3;

/// Gives one byte at a time, then two, up to 64 and again.
struct Dripping<'a> {
    rest: &'a [u8],
    step: usize,
}

impl Read for Dripping<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.step = self.step % 64 + 1;
        let count = self.step.min(out.len()).min(self.rest.len());
        out[..count].copy_from_slice(&self.rest[..count]);
        self.rest = &self.rest[count..];
        Ok(count)
    }
}

/// Invariant: any file gives rows or says that it is no capture; the same ones however it is read; and of the file cut in
/// half, the first of them.
pub fn capture_file(data: &[u8]) {
    let whole = rows(data);
    assert_eq!(
        rows(Dripping { rest: data, step: 0 }),
        whole,
        "depends on how it is read"
    );
    let half = rows(&data[..data.len() / 2]);
    assert!(half.len() <= whole.len());
    for (cut, row) in half.iter().zip(&whole) {
        // The other pieces of a split datagram may be in the half that is gone.
        let payload_len = row.payload_len;
        assert_eq!(Event { payload_len, ..*cut }, *row, "a cut file gives other rows");
    }
}

/// Rows of a capture; none if it is no capture.
pub fn rows(source: impl Read) -> Vec<Event> {
    let Ok(mut reader) = Reader::new(source) else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    while let Some(batch) = reader.next_batch(BATCH_PACKETS) {
        assert!(batch.events.len() <= BATCH_PACKETS + WINDOW_PACKETS as usize);
        rows.extend((0..batch.events.len()).map(|at| batch.events.row(at)));
        (0..batch.excerpts.len()).for_each(|at| read_excerpt(&batch.excerpts, at));
    }
    let addresses = reader.addresses().all().len();
    let known = |row: &Event| (row.src_addr.max(row.dst_addr) as usize) < addresses;
    assert!(rows.iter().all(known));
    assert!(rows.is_sorted_by_key(|row| row.frame));
    assert!(
        rows.iter()
            .all(|row| usize::from(row.interface) < reader.interfaces().len())
    );
    rows
}

/// An excerpt is read without a panic, and shows nothing behind the stream that it stands for.
fn read_excerpt(excerpts: &ExcerptColumns, at: usize) {
    let excerpt = excerpts.row(at);
    assert!(
        excerpts.solid_len[at] as usize <= excerpt.bytes.len() && excerpt.bytes.len() <= excerpt.stream_len as usize
    );
    let protocol = REGISTRY[usize::from(excerpts.protocol[at])];
    (protocol.read)(&excerpt, &mut |place, head| {
        assert!(place <= excerpt.stream_len && protocol.head_kinds.contains(&head.kind));
    });
}

/// Invariant: the short way and the walk give the same row, or both give none. The first two bytes are the link type, the
/// next two are added to the length on the wire.
pub fn packet(data: &[u8]) {
    let Some((head, frame)) = data.split_first_chunk::<4>() else {
        return;
    };
    let link_type = LinkType(u16::from_be_bytes([head[0], head[1]]));
    let original_len = frame.len() as u32 + u32::from(u16::from_be_bytes([head[2], head[3]]));
    let direction = Direction::Unknown;
    let packet = Packet {
        frame: 7,
        host_ns: -1,
        interface: 2,
        link_type,
        direction,
        original_len,
        data: frame,
    };
    let (mut decoder, mut counters) = (Decoder::default(), Counters::default());
    decoder.push(&packet, &mut counters);
    let (events, excerpts) = decoder.take_last(&mut counters);
    match walk(link_type, frame, original_len) {
        Err(reason) => assert_eq!((events.len(), counters.get(reason.counter())), (0, 1)),
        Ok(segment) => {
            assert_eq!(events.len(), 1);
            assert!(segment.payload.len() <= segment.payload_len as usize);
            assert_eq!(visible_event(&events), event_of_segment(&segment, &packet));
            (0..excerpts.len()).for_each(|at| read_excerpt(&excerpts, at));
            let end = |at: usize| i64::from(excerpts.payload_offset[at]) + excerpts.row(at).bytes.len() as i64;
            assert!((0..excerpts.len()).all(|at| end(at) <= segment.payload.len() as i64));
        }
    }
}

/// The row with what `event_of_segment` cannot know left out.
fn visible_event(events: &EventColumns) -> Event {
    Event {
        src_addr: 0,
        dst_addr: 0,
        ..events.row(0)
    }
}

fn event_of_segment(segment: &twintap_wire::packet::Segment<'_>, packet: &Packet<'_>) -> Event {
    let (tcp, options) = (segment.tcp, segment.tcp.options);
    Event {
        frame: packet.frame,
        host_ns: packet.host_ns,
        interface: packet.interface,
        direction: segment.direction as u8,
        src_addr: 0,
        dst_addr: 0,
        src_port: tcp.src_port,
        dst_port: tcp.dst_port,
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        window: tcp.window,
        payload_len: segment.payload_len,
        ip_id: segment.ip_id,
        tsval: options.tsval,
        tsecr: options.tsecr,
        options: options.present,
        mss: options.mss,
        window_scale: options.window_scale,
        sack_hash: options.sack_hash,
        captured_len: packet.data.len() as u32,
        original_len: packet.original_len,
    }
}

/// Invariant: a head's length and the end of its message are past its first line, what a shorter payload shows is never
/// another value than what the whole one shows, and what is kept of a head reads as the same one.
pub fn http_head(data: &[u8]) {
    let ids = http1::IdHeaders::default();
    let Some(whole) = http1::parse(data, &ids) else { return };
    let (payload, mut is_kept) = (
        Payload {
            bytes: data,
            wire_len: data.len(),
        },
        !http1::may_be_head(data),
    );
    read_kept(&payload, &ids, &mut |at, head| {
        if at == 0 && head.kind.0 <= http1::RESPONSE.0 {
            assert!(
                *head == whole || head.user_agent.len() < whole.user_agent.len(),
                "another head is kept"
            );
            is_kept = true;
        }
    });
    assert!(is_kept);
    let is_cut = whole.flags & http1::flag::CUT != 0;
    assert_eq!(is_cut, whole.len == 0);
    assert!(whole.len as usize <= data.len());
    assert!(http1::end_of_message(&whole).is_none_or(|end| end >= whole.len as usize && !is_cut));
    if let Some(cut) = http1::parse(&data[..data.len() / 2], &ids) {
        assert!(whole.target.starts_with(cut.target));
        assert!(cut.status == whole.status || cut.status == 0);
        assert!(
            cut.user_agent.is_empty() || is_line_end(data, cut.user_agent),
            "half a value"
        );
    }
}

/// Invariant: whatever bytes follow the preface, the frames found in them do not depend on how packets cut them, up to a
/// header that may not be sent; and no header ends behind the packet that brings it. The first byte gives the cuts.
pub fn http2_frames(data: &[u8]) {
    let Some((&step, said)) = data.split_first() else {
        return;
    };
    if has_preface(said) {
        return;
    }
    let stream = [PREFACE, said].concat();
    let whole = frames_of([&stream[..]]);
    let cut = frames_of(stream.chunks(PREFACE.len() + usize::from(step)));
    assert!(cut.starts_with(&whole), "depends on how it is cut");
}

/// Whether bytes hold a protocol's preface, with which another connection begins if a packet begins with it.
fn has_preface(said: &[u8]) -> bool {
    let framings = || REGISTRY.iter().filter_map(|protocol| protocol.framing);
    (0..said.len()).any(|at| framings().any(|framing| (framing.preface_len)(&said[at..]) > 0))
}

/// Whether bytes may begin TLS, which ends the following of a direction.
fn has_tls(said: &[u8]) -> bool {
    said.windows(3).any(|bytes| matches!(bytes, [0x16, 3, _]))
}

/// Invariant: whatever the frames of Ceph's messenger contain, what is read of them does not depend on how packets cut
/// them, and is the same of what an agent keeps of them. The first byte gives the cuts; the rest is preambles without
/// their checksums, each with its body.
pub fn ceph_frames(data: &[u8]) {
    const BANNER: &[u8; 26] = b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let Some((&step, said)) = data.split_first() else {
        return;
    };
    if has_preface(said) {
        return;
    }
    let stream = [BANNER, &ceph_stream(said)[..]].concat();
    keep_what_is_read("ceph", &stream, BANNER.len() + usize::from(step));
}

/// Frames do not depend on how packets of `step` bytes cut them, and are the same of what an agent keeps of them.
fn keep_what_is_read(name: &str, stream: &[u8], step: usize) {
    let whole = frames_of([stream]);
    let cut = frames_of(stream.chunks(step));
    assert!(cut.starts_with(&whole), "depends on how it is cut");
    let protocol = REGISTRY.iter().find(|one| one.name == name).expect("it is registered");
    let parts = protocol.agent.parts().expect("an agent keeps parts of it");
    let mut kept = stream[..(parts.kept_len)(stream, usize::MAX)].to_vec();
    (parts.blank)(&mut kept, &SecretRules::nothing());
    assert!(
        frames_of_cut(&kept, stream.len()).starts_with(&whole),
        "the agent keeps less than is read"
    );
}

/// Frames with the checksums that their preambles need, and lengths below 1 KiB.
fn ceph_stream(mut said: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((preamble, rest)) = said.split_first_chunk::<28>() {
        let mut preamble = *preamble;
        let mut body_len = if preamble[1] > 1 { 13 } else { 0 };
        for segment in 0..4 {
            let at = 2 + 6 * segment;
            preamble[at + 1] &= 3;
            preamble[at + 2..at + 4].fill(0);
            body_len += usize::from(u16::from_le_bytes([preamble[at], preamble[at + 1]]));
        }
        body_len += if preamble[2..4] == [0, 0] { 0 } else { 4 };
        let (body, next) = rest.split_at(body_len.min(rest.len()));
        stream.extend(preamble);
        stream.extend((!crc32c::crc32c_append(!0, &preamble)).to_le_bytes());
        stream.extend(body);
        said = next;
    }
    stream
}

/// The same of MongoDB's messages. The first byte gives the cuts; the rest is messages: kind, what it answers, length of its
/// body, and that.
pub fn mongodb_messages(data: &[u8]) {
    const HELLO: &[u8; 36] = b"\x24\0\0\0\x07\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x0f\0\0\0\x10ping\0\x01\0\0\0\0";
    let Some((&step, said)) = data.split_first() else {
        return;
    };
    if has_preface(said) {
        return;
    }
    let stream = [HELLO, &mongodb_stream(said)[..]].concat();
    keep_what_is_read("mongodb", &stream, HELLO.len() + usize::from(step));
    keep_as_agent("mongodb", &stream);
    redaction::redact(SecretRules::built_in(), &mut stream.clone());
}

/// Messages with the headers that they need.
fn mongodb_stream(mut said: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((&[kind, answers, low, high], rest)) = said.split_first_chunk() {
        let opcode = [2013_u32, 2012, 2004, 1, 2006, 2013, 2013, 2013][usize::from(kind % 8)];
        let len = usize::from(u16::from_le_bytes([low, high & 3])).min(rest.len());
        let header = [16 + len as u32, stream.len() as u32, answers.into(), opcode];
        stream.extend(header.map(u32::to_le_bytes).concat());
        let (body, next) = rest.split_at(len);
        stream.extend(body);
        said = next;
    }
    stream
}

/// A frame: where its header ends in the stream, and what its body says.
type FoundFrame = (usize, Vec<u8>);

/// The frames of a stream that comes in these packets.
fn frames_of<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Vec<FoundFrame> {
    frames_in(packets.into_iter().map(|piece| (piece, piece.len())))
}

/// The frames of a stream of so many bytes that comes in one packet, of which these were captured.
fn frames_of_cut(captured: &[u8], wire_len: usize) -> Vec<FoundFrame> {
    frames_in(std::iter::once((captured, wire_len)))
}

/// Arguments: `packets`, what was captured of each, and its length.
fn frames_in<'a>(packets: impl Iterator<Item = (&'a [u8], usize)>) -> Vec<FoundFrame> {
    let (mut frames, mut counters, mut found) = (Frames::default(), Counters::default(), Vec::new());
    let end = (IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
    let direction = frames::Direction {
        src: end,
        dst: end,
        interface: 0,
    };
    let mut at = 0;
    for (piece, wire_len) in packets {
        let event = Event {
            seq: (at as u32).wrapping_sub(99),
            payload_len: wire_len as u32,
            ..Event::default()
        };
        let is_followed = frames.take(direction, &event, piece, &mut counters, |frame, _| {
            let place = (at as i64 + i64::from(frame.read.at)) as usize + frame.read.header.len();
            found.push((place, frame.read.said.to_vec()));
        });
        assert!(is_followed);
        assert!(found.last().is_some_and(|(last, _)| *last <= at + piece.len()));
        at += wire_len;
    }
    found
}

/// Invariant: PostgreSQL's messages do not depend on how packets cut them, up to a header that is none; no statement's
/// name has a value of it, nor has what an agent keeps; and that is named as the statement was. The first byte gives the
/// cuts.
pub fn postgresql_messages(data: &[u8]) {
    let Some((&step, said)) = data
        .split_first()
        .filter(|(_, said)| !has_preface(said) && !has_tls(said))
    else {
        return;
    };
    let opening = &b"Z\0\0\0\x05I"[..];
    let whole = frames_of([opening, said]);
    let cut = frames_of([opening].into_iter().chain(said.chunks(1 + usize::from(step))));
    assert!(cut.starts_with(&whole), "depends on how it is cut");
    keep_as_agent("postgresql", said);
}

/// The same of MySQL's packets.
pub fn mysql_packets(data: &[u8]) {
    let Some((&step, said)) = data
        .split_first()
        .filter(|(_, said)| !has_preface(said) && !has_tls(said))
    else {
        return;
    };
    let opening = &b"\x07\0\0\x01\0\0\0\x02\0\0\0"[..];
    let whole = frames_of([opening, said]);
    let cut = frames_of([opening].into_iter().chain(said.chunks(1 + usize::from(step))));
    assert!(
        cut.starts_with(&whole) || said.contains(&0x16),
        "depends on how it is cut"
    ); // 0x16 may begin TLS
    keep_as_agent("mysql", said);
}

/// Invariant: messages of Redis and memcached do not depend on how packets cut them, and have valid places; a key's shape
/// has no digit. The first byte gives the protocol, the side and the cuts.
pub fn command_streams(data: &[u8]) {
    let Some((&choice, said)) = data.split_first() else {
        return;
    };
    let name = if choice & 1 == 0 { "redis" } else { "memcached" };
    let protocol = REGISTRY.iter().find(|one| one.name == name).expect("it is registered");
    let scanning = protocol.scanning.expect("it is scanned");
    let from_client = choice & 2 == 0;
    let whole = messages_of(scanning, from_client, [said]);
    let cut = messages_of(scanning, from_client, said.chunks(1 + usize::from(choice >> 2)));
    assert_eq!(whole, cut, "depends on how it is cut");
    keep_as_agent(name, said);
}

/// Invariant: Kafka's messages do not depend on how packets cut them, lie behind each other, and overwriting what may be a
/// password changes no length. The first byte gives the side and the cuts.
pub fn kafka_messages(data: &[u8]) {
    numbered_messages("kafka", data);
}

/// The same of ZooKeeper's.
pub fn zookeeper_messages(data: &[u8]) {
    numbered_messages("zookeeper", data);
}

fn numbered_messages(name: &str, data: &[u8]) {
    let Some((&choice, said)) = data.split_first() else {
        return;
    };
    let protocol = REGISTRY.iter().find(|one| one.name == name).expect("it is registered");
    let scanning = protocol.scanning.expect("it is scanned");
    let from_client = choice & 1 == 0;
    let whole = messages_of(scanning, from_client, [said]);
    let cut = messages_of(scanning, from_client, said.chunks(1 + usize::from(choice >> 1)));
    assert_eq!(whole, cut, "depends on how it is cut");
    assert!(whole.is_sorted_by(|one, next| one.0 < next.0));
    assert!(!(scanning.begins)(said) || !messages_of(scanning, true, [said]).is_empty());
    let redact = protocol.redact_around.expect("it is redacted");
    redact(&mut said.to_vec(), SecretRules::built_in(), &mut |_| {});
    keep_as_agent(name, said);
    let answers = protocol.agent_answers.expect("parts are kept");
    assert!((answers.kept_len)(said, 2048) <= said.len());
}

/// Invariant: a WebSocket's frames do not depend on how packets cut them, lie behind each other, and are the same of what
/// an agent keeps of them; nothing that they hold is kept but the code of a close. The first byte gives the cuts.
pub fn websocket_frames(data: &[u8]) {
    let Some((&step, said)) = data.split_first() else {
        return;
    };
    let protocol = REGISTRY
        .iter()
        .find(|one| one.name == "websocket")
        .expect("it is registered");
    let Some(Finder::Scanner(scanning)) = protocol.upgrade.as_ref().map(|upgrade| upgrade.finder) else {
        panic!("it is scanned");
    };
    let whole = messages_of(scanning, true, [said]);
    let cut = messages_of(scanning, true, said.chunks(1 + usize::from(step)));
    assert!(cut.starts_with(&whole), "depends on how it is cut");
    assert!(whole.is_sorted_by(|one, next| one.0 < next.0));
    assert!(whole.iter().all(|(_, bytes)| bytes.len() <= 14 + 3));
    keep_as_agent("websocket", said);
    let parts = protocol.agent.parts().expect("parts are kept");
    let mut kept = said[..(parts.kept_len)(said, usize::MAX)].to_vec();
    (parts.blank)(&mut kept, SecretRules::built_in());
    let of_kept = messages_of(scanning, true, [&kept[..]]);
    assert!(whole.starts_with(&of_kept), "an agent keeps other frames");
    let redact = protocol.redact_around.expect("it is redacted");
    redact(&mut said.to_vec(), SecretRules::built_in(), &mut |bytes| {
        bytes.fill(b'x')
    });
}

/// Place and bytes of the messages whose end is known, in bytes that come in pieces.
fn messages_of<'a>(
    scanning: &Scanning,
    from_client: bool,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<(i64, Vec<u8>)> {
    let mut scanner = (scanning.scanner)(from_client);
    let (mut found, mut at, mut skip) = (Vec::new(), 0_i64, 0_usize);
    for piece in pieces {
        let skipped = skip.min(piece.len());
        (skip, at) = (skip - skipped, at + skipped as i64);
        let rest = &piece[skipped..];
        if rest.is_empty() {
            continue;
        }
        let scan = scanner.scan(rest, &mut |read| {
            let place = at + i64::from(read.at);
            assert!(place >= 0);
            if read.said[0] & 0x10 == 0 {
                found.push((place, [read.header, read.said].concat()));
            }
        });
        at += rest.len() as i64;
        match scan {
            Scan::Skip(len) => skip = len as usize,
            Scan::End => break,
        }
    }
    found
}

/// What an agent keeps of a payload is no longer, and is kept of what is kept, too.
fn keep_as_agent(protocol: &str, payload: &[u8]) {
    let protocol = REGISTRY
        .iter()
        .find(|one| one.name == protocol)
        .expect("a protocol of the registry");
    let parts = protocol.agent.parts().expect("a protocol of which parts are kept");
    let len = (parts.kept_len)(payload, 2048);
    assert!(len <= payload.len());
    let mut kept = payload[..len].to_vec();
    (parts.blank)(&mut kept, SecretRules::built_in());
    let mut again = kept.clone();
    (parts.blank)(&mut again, SecretRules::built_in());
    assert_eq!(kept, again, "what is kept is overwritten once");
    (protocol.overwrite)(&mut payload.to_vec());
}

/// Invariant: a shape is bounded, has no part of a literal, and stays the same where literals are overwritten. The first
/// byte says whose SQL it is.
pub fn sql_shape(data: &[u8]) {
    let Some((&dialect, text)) = data.split_first() else {
        return;
    };
    let dialect = if dialect % 2 == 0 {
        Dialect::PostgreSql
    } else {
        Dialect::MySql
    };
    let whole = sql::shape(text, true, dialect);
    assert!(whole.verb.len() <= 24 && whole.rest.len() <= sql::REST_LIMIT + "…".len());
    let mut overwritten = text.to_vec();
    sql::overwrite_literals(&mut overwritten, dialect);
    assert_eq!(overwritten.len(), text.len());
    assert_eq!(
        sql::shape(&overwritten, true, dialect),
        whole,
        "overwriting changes the name"
    );
    sql::shape(&text[..text.len() / 2], false, dialect);
}

/// Whether `value`, a part of `data`, ends where its line does (spaces aside), or at the limit of what is kept.
fn is_line_end(data: &[u8], value: &[u8]) -> bool {
    let end = value.as_ptr() as usize - data.as_ptr() as usize + value.len();
    let behind = data[end..].trim_ascii_start();
    let skipped = &data[end..data.len() - behind.len()];
    value.len() == 512 || skipped.contains(&b'\n')
}

/// Invariant: marks stand at ascending places within the payload; and of a payload cut in half, all
/// but the last are those of the whole one.
pub fn marks(data: &[u8]) {
    let whole = marks_of(data, data.len());
    assert!(whole.is_sorted_by(|one, next| one.0 < next.0));
    assert!(
        whole
            .iter()
            .all(|(at, _, reach)| *at < data.len() && (1..=5).contains(reach))
    );
    let half = marks_of(&data[..data.len() / 2], data.len());
    let sure = half.len().saturating_sub(1); // the last may be a word that goes on
    assert_eq!(
        half[..sure],
        whole[..sure.min(whole.len())],
        "a cut payload has other marks"
    );
}

fn marks_of(payload: &[u8], wire_len: usize) -> Vec<(usize, Vec<u8>, u16)> {
    let mut found = Vec::new();
    let bytes = payload;
    read_kept(
        &Payload { bytes, wire_len },
        &http1::IdHeaders::default(),
        &mut |at, head| {
            if head.kind == STREAM_MARK {
                found.push((at as usize, head.method.to_vec(), head.status));
            }
        },
    );
    found
}

/// Invariant: every stamp that is taken lies in a believed range, is the packet's own exactly if that does, and the frames
/// of all others are noted in their order. The first byte says how many ranges there are; the rest is numbers.
pub fn stamps(data: &[u8]) {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let numbers: Vec<i64> = rest
        .as_chunks()
        .0
        .iter()
        .map(|bytes| i64::from_le_bytes(*bytes))
        .collect();
    let (bounds, given) = numbers.split_at(numbers.len().min(2 * usize::from(count % 4)));
    let ranges: Vec<(i64, i64)> = bounds
        .as_chunks()
        .0
        .iter()
        .map(|&[a, b]| (a.min(b), a.max(b)))
        .collect();
    let holds = |ns: i64| match &ranges[..] {
        [] => stamps::ALL.0 <= ns && ns <= stamps::ALL.1,
        some => some.iter().any(|range| range.0 <= ns && ns <= range.1),
    };
    let mut stamp_filter = StampFilter::new(ranges.clone());
    let mut others = Vec::new();
    for (frame, &ns) in (1..).zip(given) {
        let (taken, is_own) = stamp_filter.take(frame, ns);
        assert!(holds(taken), "{taken} is in no range");
        assert_eq!(is_own, holds(ns));
        assert!(!is_own || taken == ns);
        if !is_own {
            others.push(frame);
        }
    }
    assert_eq!(stamp_filter.frames(), others);
}

/// Invariant: a record's length is past its header, and of a payload cut in half nothing else is said of it than of the
/// whole one, but that a hello's version may not be seen yet.
pub fn tls_record(data: &[u8]) {
    let Some(whole) = tls::parse(data) else {
        assert!(tls::parse(&data[..data.len() / 2]).is_none());
        return;
    };
    assert!(tls::may_be_record(data) && whole.len as usize >= 5);
    if let Some(cut) = tls::parse(&data[..data.len() / 2]) {
        assert_eq!((cut.status, cut.len), (whole.status, whole.len));
        assert_eq!(cut.flags & tls::flag::CLIENT_HELLO & !whole.flags, 0);
    }
}
