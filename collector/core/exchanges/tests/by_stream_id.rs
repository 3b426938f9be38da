//! Streams as exchanges, from the headers of frames: their number and times, and which are no requests. HTTP/2, and
//! Ceph, of which either end asks and frames stand alone.

use twintap_exchanges::{
    BrokenBy, BuiltExchanges, Connections, Crossings, Exchange, Heads, Hops, Pauses, StreamReason, Texts, UNSEEN,
    build, kind,
};
use twintap_protocols::http2::kind::{DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE};

const MS: i64 = 1_000_000;
/// Every packet arrives so much later.
const WAY: i64 = 10_000;
const FRAME: u8 = 5;
const TLS_RECORD: u8 = 3;
const CEPH_FRAME: u8 = 10;
const END: u8 = 1;
const EMPTY: Texts = Texts {
    offsets: &[],
    bytes: &[],
};

/// Type, flags, stream, bytes behind the header.
type Frame = (u8, u8, i64, i64);
/// From the client, when it was sent in ms, its frames.
type Packet<'a> = (bool, i64, &'a [Frame]);

/// Hops and frames of one connection, as rows.
#[derive(Clone, Default)]
struct Rows {
    from_client: Vec<bool>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    sent: Vec<i64>,
    /// From the client, place behind the header, type, flags, stream, length.
    frames: Vec<(bool, i64, u16, u8, i64, u32)>,
    /// Result codes of some frames, by their places.
    codes: Vec<(usize, i32)>,
    /// The last stream of some GOAWAYs, by their places.
    last_streams: Vec<(usize, i64)>,
    /// Heads of HTTP/1: from the client, place, status, length.
    heads: Vec<(bool, i64, u16, u32)>,
}

/// What is said on a connection, begun with preface and settings where it is seen from its `beginning`.
fn rows(beginning: bool, packets: &[Packet]) -> Rows {
    let (mut found, mut reach) = (Rows::default(), [0, 0]);
    let mut said: Vec<Packet> = packets.to_vec();
    if beginning {
        found.frames.push((true, 24, PREFACE, 0, 0, 24));
        reach[1] = 24;
        said.splice(
            0..0,
            [
                (true, 0, &[(SETTINGS, 0, 0, 12)][..]),
                (false, 0, &[(SETTINGS, 0, 0, 18)][..]),
            ],
        );
    }
    for (number, &(from_client, at_ms, frames)) in said.iter().enumerate() {
        let place = &mut reach[usize::from(from_client)];
        let start = if beginning && number == 0 { 0 } else { *place };
        for &(kind, flags, stream, len) in frames {
            let row = (from_client, *place + 9, kind.into(), flags, stream, 9 + len as u32);
            found.frames.push(row);
            *place += 9 + len;
        }
        found.from_client.push(from_client);
        found.starts.push(start);
        found.ends.push(*place);
        found.sent.push(at_ms * MS);
    }
    found
}

fn exchanges_of(rows: &Rows, handshake: bool) -> BuiltExchanges {
    built_of(FRAME, rows, handshake)
}

fn built_of(head_kind: u8, rows: &Rows, handshake: bool) -> BuiltExchanges {
    let count = rows.sent.len();
    let hops = Hops {
        connection_id: &vec![7; count],
        kind: &vec![kind::DATA; count],
        from_client: &rows.from_client,
        stream_start: &rows.starts,
        stream_end: &rows.ends,
        sent_ns: &rows.sent,
        received_ns: &rows.sent.iter().map(|at| at + WAY).collect::<Vec<i64>>(),
        uncertainty_ns: &vec![1; count],
        likely_error_ns: &vec![1; count],
    };
    let (frames_count, is_record) = (rows.frames.len(), head_kind == TLS_RECORD);
    let kinds: Vec<u16> = rows.frames.iter().map(|frame| frame.2).collect();
    let code = |place| {
        rows.codes
            .iter()
            .find(|(of, _)| *of == place)
            .map_or(-1, |(_, code)| *code)
    };
    let last_stream = |place| {
        rows.last_streams
            .iter()
            .find(|(of, _)| *of == place)
            .map_or(-1, |(_, last)| *last)
    };
    let count = frames_count + rows.heads.len();
    let codes: Vec<i32> = (0..count).map(code).collect();
    let lasts: Vec<i64> = (0..count).map(last_stream).collect();
    let none = vec![0; count + 1];
    let empty = Texts {
        offsets: &none,
        ..EMPTY
    };
    // Of frames, then of heads.
    fn both<T>(frames: impl Iterator<Item = T>, heads: impl Iterator<Item = T>) -> Vec<T> {
        frames.chain(heads).collect()
    }
    let (frames, http) = (|| rows.frames.iter(), || rows.heads.iter());
    let kind_of = |head: &(bool, i64, u16, u32)| if head.2 == 0 { 1 } else { 2 };
    let heads = Heads {
        connection_id: &vec![7; count],
        from_client: &both(frames().map(|frame| frame.0), http().map(|head| head.0)),
        stream_offset: &both(frames().map(|frame| frame.1), http().map(|head| head.1)),
        head_kind: &both(frames().map(|_| head_kind), http().map(kind_of)),
        flags: &both(frames().map(|frame| frame.3), http().map(|_| 0)),
        head_len: &both(frames().map(|frame| frame.5), http().map(|head| head.3)),
        content_length: &lasts,
        status: &both(
            kinds.iter().map(|kind| if is_record { *kind } else { 0 }),
            http().map(|head| head.2),
        ),
        result_code: &codes,
        frame_kind: &both(kinds.iter().copied(), http().map(|_| 0)),
        stream_id: &both(frames().map(|frame| frame.4), http().map(|_| -1)),
        method: empty,
        target: empty,
        id: empty,
    };
    let nobody = Pauses {
        connection_id: &[],
        from_client: &[],
        stream_offset: &[],
        is_reader: &[],
    };
    let one = Connections {
        connection_id: &[7],
        handshake: &[handshake],
    };
    assert!(hops.is_consistent() && heads.is_consistent());
    build(&hops, &heads, &one, &nobody, &Crossings::default())
}

/// When a request was first sent, when the last of its answer came, in ms; and whether all of it was seen.
fn times(built: &BuiltExchanges) -> Vec<(i64, i64, bool)> {
    let of = |one: &Exchange| {
        let end = one.response.last_received_ns;
        (
            one.request.first_sent_ns / MS,
            if end == UNSEEN { -1 } else { (end - WAY) / MS },
            one.complete,
        )
    };
    built.in_order().map(of).collect()
}

fn whys(built: &BuiltExchanges) -> Vec<StreamReason> {
    built.in_order().map(|one| one.reason).collect()
}

/// Three calls at once: the second is answered first, the third streams its answer.
const AT_ONCE: &[Packet] = &[
    (true, 1, &[(HEADERS, 4, 1, 40), (DATA, END, 1, 7)]),
    (false, 1, &[(SETTINGS, 1, 0, 0)]),
    (
        true,
        2,
        &[(WINDOW_UPDATE, 0, 0, 4), (HEADERS, 5, 3, 40), (HEADERS, 4, 5, 40)],
    ),
    (true, 3, &[(DATA, END, 5, 900)]),
    (false, 9, &[(HEADERS, 4, 3, 20), (DATA, 0, 3, 400), (HEADERS, 5, 3, 9)]),
    (false, 20, &[(HEADERS, 4, 5, 20), (DATA, 0, 5, 400)]),
    (false, 25, &[(HEADERS, 4, 1, 20), (DATA, END, 1, 400)]),
    (true, 26, &[(PING, 0, 0, 8)]),
    (false, 26, &[(PING, 1, 0, 8)]),
    (false, 40, &[(DATA, END, 5, 400)]),
];

#[test]
fn each_stream_is_a_request_with_its_own_times() {
    let found = exchanges_of(&rows(true, AT_ONCE), true);
    assert_eq!(times(&found), [(1, 25, true), (2, 9, true), (2, 40, true)]);
    assert_eq!(whys(&found), [StreamReason::Request; 3]);
    assert!(found.in_order().all(|one| is_http2(one) && !one.readable));
    let third = found.in_order().nth(2).expect("three");
    assert_eq!(third.request.last_sent_ns, 3 * MS, "its body came later");
    assert_eq!((third.request.bytes, third.response.bytes), (49 + 909, 29 + 409 + 409));
    assert_eq!(
        found.rare.of(third).response_silent.source_ns,
        20 * MS - WAY,
        "its server had nothing to send, whatever others said"
    );
}

#[test]
fn it_is_the_same_wherever_packets_cut_the_bytes() {
    let whole = rows(true, AT_ONCE);
    let expected = times(&exchanges_of(&whole, true));
    for place in 0..whole.sent.len() {
        for cut in whole.starts[place] + 1..whole.ends[place] {
            let mut rows = whole.clone();
            rows.from_client.insert(place + 1, rows.from_client[place]);
            rows.sent.insert(place + 1, rows.sent[place]);
            rows.starts.insert(place + 1, cut);
            rows.ends.insert(place, cut);
            assert_eq!(
                times(&exchanges_of(&rows, true)),
                expected,
                "packet {place} cut at {cut}"
            );
        }
    }
}

#[test]
fn every_packet_belongs_to_a_stream_that_it_carries() {
    let found = exchanges_of(&rows(true, AT_ONCE), true);
    let ordinal = |place: &u32| found.exchanges[found.by_time[*place as usize] as usize].ordinal;
    let given: Vec<usize> = found
        .hop_exchange
        .iter()
        .map(|place| if *place == u32::MAX { 0 } else { ordinal(place) })
        .collect();
    assert_eq!(given, [0, 0, 1, 0, 2, 3, 2, 3, 1, 0, 0, 3]);
}

#[test]
fn with_a_frame_missing_nothing_is_said_of_requests() {
    let whole = rows(true, AT_ONCE);
    for missing in 1..whole.frames.len() {
        let mut rows = whole.clone();
        let (_, _, _, _, _, len) = rows.frames.remove(missing);
        let found = exchanges_of(&rows, true);
        assert!(len >= 9);
        assert!(
            found.in_order().all(|one| one.reason == StreamReason::Unread),
            "frame {missing}"
        );
        assert_eq!(found.streams.len(), 1, "frame {missing}");
        assert!(found.late.is_empty() && found.said.is_empty());
    }
}

#[test]
fn a_frame_that_is_none_does_not_matter() {
    let mut rows = rows(true, AT_ONCE);
    let expected = times(&exchanges_of(&rows, true));
    rows.frames.push((false, 330, DATA.into(), END, 1, 4_000_000));
    rows.frames.push((true, 100, HEADERS.into(), 4, 9, 12));
    assert_eq!(times(&exchanges_of(&rows, true)), expected);
}

#[test]
fn what_both_sides_go_on_with_is_no_request() {
    let ask: Frame = (HEADERS, 4, 1, 40);
    let one = (DATA, 0, 1, 30);
    let cases: &[(&str, &[Packet], StreamReason)] = &[
        (
            "a call",
            &[
                (true, 1, &[ask, (DATA, END, 1, 9)]),
                (false, 2, &[ask, one, (HEADERS, 5, 1, 9)]),
            ],
            StreamReason::Request,
        ),
        (
            "an answer in two pieces",
            &[
                (true, 1, &[(HEADERS, 5, 1, 9)]),
                (false, 2, &[ask, one]),
                (false, 90, &[(DATA, END, 1, 9)]),
            ],
            StreamReason::Request,
        ),
        (
            "a slow upload",
            &[
                (true, 1, &[ask, one]),
                (true, 90, &[(DATA, END, 1, 9)]),
                (false, 91, &[(HEADERS, 5, 1, 9)]),
            ],
            StreamReason::Request,
        ),
        (
            "an upload that is refused",
            &[
                (true, 1, &[ask, one]),
                (false, 2, &[ask, (DATA, END, 1, 9)]),
                (true, 3, &[one]),
            ],
            StreamReason::Request,
        ),
        (
            "an upload after an interim answer",
            &[
                (true, 1, &[ask]),
                (false, 2, &[ask]),
                (true, 3, &[one, (DATA, END, 1, 0)]),
                (false, 4, &[(HEADERS, 5, 1, 9)]),
            ],
            StreamReason::Request,
        ),
        (
            "both sides in turn",
            &[
                (true, 1, &[ask, one]),
                (false, 2, &[ask, one]),
                (true, 3, &[one, (DATA, END, 1, 0)]),
                (false, 4, &[(HEADERS, 5, 1, 9)]),
            ],
            StreamReason::TwoWay,
        ),
        (
            "a watch",
            &[(true, 1, &[ask, one]), (false, 2, &[ask, one]), (false, 300, &[one])],
            StreamReason::TwoWay,
        ),
        (
            "a watch that is left",
            &[
                (true, 1, &[ask, one]),
                (false, 2, &[ask, one]),
                (true, 9, &[(RST_STREAM, 0, 1, 4)]),
            ],
            StreamReason::TwoWay,
        ),
        ("no answer yet", &[(true, 1, &[ask, one])], StreamReason::Request),
    ];
    for (name, packets, expected) in cases {
        assert_eq!(whys(&exchanges_of(&rows(true, packets), true)), [*expected], "{name}");
    }
    let ask = [(HEADERS, 5, 1, 40)];
    let piece = [one];
    let mut pieces: Vec<Packet> = vec![(true, 1, &ask)];
    pieces.extend((1..=9).map(|number| (false, 100 * number, &piece[..])));
    assert_eq!(
        whys(&exchanges_of(&rows(true, &pieces), true)),
        [StreamReason::Unasked],
        "a server that goes on and on"
    );
    let last = [(DATA, END, 1, 0)];
    pieces.push((false, 1_000, &last));
    assert_eq!(
        whys(&exchanges_of(&rows(true, &pieces), true)),
        [StreamReason::Request],
        "and ends its answer"
    );
}

#[test]
fn a_stream_that_is_broken_off_is_given_up_then() {
    let asked: Packet = (true, 1, &[(HEADERS, 5, 1, 40)]);
    let left: Packet = (true, 301, &[(RST_STREAM, 0, 1, 4)]);
    let refused: Packet = (false, 7, &[(RST_STREAM, 0, 1, 4)]);
    let answer: Packet = (false, 5, &[(HEADERS, 5, 1, 40)]);
    let given_up = |packets: &[Packet]| {
        let found = exchanges_of(&rows(true, packets), true);
        let one = found.in_order().next().copied().expect("one");
        (one.given_up_ns, one.broken_by, one.complete)
    };
    assert_eq!(given_up(&[asked, left]), (301 * MS, BrokenBy::Client, false));
    assert_eq!(given_up(&[asked, refused]), (7 * MS + WAY, BrokenBy::Server, false));
    assert_eq!(given_up(&[asked, answer, left]), (UNSEEN, BrokenBy::Nobody, true));
}

/// The rows with so many bytes of HTTP/1 before all of either side: a request that is answered by 101.
fn behind_upgrade(mut rows: Rows, (asked, answered): (i64, i64)) -> Rows {
    let more = |from_client: bool| if from_client { asked } else { answered };
    for at in 0..rows.sent.len() {
        rows.starts[at] += more(rows.from_client[at]);
        rows.ends[at] += more(rows.from_client[at]);
    }
    rows.frames.iter_mut().for_each(|frame| frame.1 += more(frame.0));
    for (number, (from_client, len)) in [(true, asked), (false, answered)].into_iter().enumerate() {
        rows.from_client.insert(number, from_client);
        rows.starts.insert(number, 0);
        rows.ends.insert(number, len);
        rows.sent.insert(number, number as i64 * WAY);
    }
    rows.heads = vec![(true, 0, 0, asked as u32), (false, 0, 101, answered as u32)];
    rows
}

#[test]
fn the_request_that_asks_for_http2_is_that_of_its_first_stream() {
    let answer: Packet = (false, 5, &[(HEADERS, 4, 1, 40), (DATA, END, 1, 100)]);
    let ask: Packet = (true, 7, &[(HEADERS, 5, 3, 40)]);
    let more: Packet = (false, 9, &[(HEADERS, 5, 3, 40)]);
    let found = exchanges_of(&behind_upgrade(rows(true, &[answer, ask, more]), (120, 80)), true);
    assert_eq!(times(&found), [(0, 5, true), (7, 9, true)]);
    assert_eq!(whys(&found), [StreamReason::Request; 2]);
    let first = found.in_order().next().copied().expect("the first");
    let heads_begin = 7; // preface, settings of both, and the other frames are before
    assert_eq!(
        (
            first.request.bytes,
            first.response.bytes,
            first.request_row,
            is_http2(&first)
        ),
        (120, 149 + 9, heads_begin, true)
    );
}

#[test]
fn streams_above_the_last_of_a_goaway_were_refused() {
    let asked: Packet = (
        true,
        1,
        &[(HEADERS, 5, 1, 40), (HEADERS, 5, 3, 40), (HEADERS, 5, 5, 40)],
    );
    let answer: Packet = (false, 5, &[(HEADERS, 5, 1, 40)]);
    let leaving: Packet = (false, 6, &[(GOAWAY, 0, 0, 8)]);
    let late: Packet = (false, 9, &[(HEADERS, 5, 3, 40)]);
    let of = |last: i64, packets: &[Packet]| {
        let mut all = rows(true, packets);
        let goaway = all
            .frames
            .iter()
            .position(|frame| frame.2 == u16::from(GOAWAY))
            .expect("one");
        all.last_streams.push((goaway, last));
        all.codes.push((goaway, 1_100));
        let found = exchanges_of(&all, true);
        let outline = |one: &Exchange| (one.broken_by, one.complete, one.result_row == goaway as i64);
        found.in_order().map(outline).collect::<Vec<_>>()
    };
    let (whole, refused) = ((BrokenBy::Nobody, true, false), (BrokenBy::Refusal, false, true));
    assert_eq!(of(3, &[asked, answer, leaving, late]), [whole, whole, refused]);
    let open = (BrokenBy::Nobody, false, false);
    assert_eq!(
        of(i64::from(i32::MAX), &[asked, answer, leaving, late]),
        [whole, whole, open]
    );
    assert_eq!(
        of(1, &[asked, answer, late, leaving]),
        [whole, whole, refused],
        "it answered all the same"
    );
    let reset: Packet = (false, 7, &[(RST_STREAM, 0, 5, 4)]);
    let broken = (BrokenBy::Server, false, false);
    assert_eq!(of(3, &[asked, answer, reset, leaving, late]), [whole, whole, broken]);
}

#[test]
fn the_code_of_a_reset_counts_unless_the_answer_shows_one() {
    let (of_reset, of_answer, due) = (1_008, 14, -2);
    let asked: Packet = (true, 1, &[(HEADERS, 5, 1, 40)]);
    let answered: Packet = (false, 5, &[(HEADERS, 4, 1, 40)]);
    let left: Packet = (true, 301, &[(RST_STREAM, 0, 1, 4)]);
    let first = 3; // preface and settings come before
    for (of_answer, expected) in [(of_answer, first + 1), (due, first + 2), (-1, first + 2)] {
        let mut said = rows(true, &[asked, answered, left]);
        said.codes = vec![(first + 1, of_answer), (first + 2, of_reset)];
        let built = exchanges_of(&said, true);
        let row = built.in_order().next().map(|one| one.result_row);
        assert_eq!(row, Some(expected as i64), "{of_answer}");
    }
}

#[test]
fn a_capture_that_begins_within_a_connection_shows_the_streams_that_begin_later() {
    let packets: &[Packet] = &[
        (false, 1, &[(DATA, 0, 9, 300)]),
        (true, 2, &[(HEADERS, 5, 11, 40)]),
        (true, 3, &[(DATA, 0, 7, 40), (HEADERS, END | 4, 7, 12)]),
        (true, 3, &[(HEADERS, END | 4, 5, 12)]), // trailers, of which the server still waits to answer
        (false, 4, &[(HEADERS, 4, 11, 20), (DATA, END, 11, 40)]),
        (false, 5, &[(HEADERS, 5, 9, 20)]),
    ];
    let found = exchanges_of(&rows(false, packets), false);
    let requests = found.in_order().filter(|one| one.reason == StreamReason::Request);
    assert_eq!(
        requests.map(|one| one.request.first_sent_ns).collect::<Vec<i64>>(),
        [2 * MS]
    );
    assert_eq!(
        found
            .in_order()
            .filter(|one| one.reason == StreamReason::TwoWay)
            .count(),
        3
    );
}

#[test]
fn an_answer_whose_end_was_not_captured_is_not_whole() {
    let packets: &[Packet] = &[
        (true, 1, &[(HEADERS, 5, 1, 40)]),
        (false, 2, &[(HEADERS, 4, 1, 20), (DATA, END, 1, 900)]),
    ];
    let mut rows = rows(true, packets);
    assert_eq!(times(&exchanges_of(&rows, true)), [(1, 2, true)]);
    *rows.ends.last_mut().expect("four packets") -= 300;
    assert_eq!(times(&exchanges_of(&rows, true)), [(1, 2, false)]);
}

#[test]
fn frames_of_one_side_alone_may_be_anything() {
    let packets: &[Packet] = &[(true, 1, &[(PING, 0, 0, 8)]), (true, 5, &[(PING, 0, 0, 8)])];
    assert!(
        exchanges_of(&rows(false, packets), false)
            .in_order()
            .all(|one| !is_http2(one) && one.reason == StreamReason::Request)
    );
}

/// A TLS record in each packet: from the client, content type, flags, length.
fn records(said: &[(bool, u16, u8, u32)]) -> BuiltExchanges {
    let (mut rows, mut reach) = (Rows::default(), [0, 0]);
    for (number, &(from_client, content, flags, len)) in said.iter().enumerate() {
        let place = &mut reach[usize::from(from_client)];
        rows.frames.push((from_client, *place, content, flags, 0, len));
        rows.from_client.push(from_client);
        rows.starts.push(*place);
        *place += i64::from(len);
        rows.ends.push(*place);
        rows.sent.push(number as i64 * MS);
    }
    built_of(TLS_RECORD, &rows, true)
}

#[test]
fn inside_tls_nothing_is_said_of_requests() {
    let of_12 = |chosen: u8| {
        let shake = [
            (true, 22, 1, 517),
            (false, 22, 2 | chosen, 90),
            (true, 22, 0, 40),
            (false, 22, 0, 40),
        ];
        let said = [
            (true, 23, 0, 111),
            (false, 23, 0, 69),
            (true, 23, 0, 90),
            (false, 23, 0, 500),
        ];
        whys(&records(&[shake, said].concat()))
    };
    assert!(of_12(8).iter().all(|reason| *reason == StreamReason::Hidden) && !of_12(8).is_empty());
    assert_eq!(of_12(0), [StreamReason::Request; 2]);
    let of_13 = |first: u32, settings: u32, acknowledged: u32| {
        let shake = [
            (true, 22, 1, 517),
            (false, 22, 2 | 4, 127),
            (false, 23, 0, 1_200),
            (true, 23, 0, 58),
        ];
        let said = [
            (false, 23, 0, 255),
            (true, 23, 0, first),
            (false, 23, 0, settings),
            (false, 23, 0, acknowledged),
        ];
        let more = [(true, 23, 0, 90), (false, 23, 0, 500)];
        whys(&records(&[&shake[..], &said, &more].concat()))
    };
    assert!(of_13(86, 62, 31).iter().all(|reason| *reason == StreamReason::Hidden) && !of_13(86, 62, 31).is_empty());
    for (first, settings, acknowledged) in [(87, 62, 31), (86, 63, 31), (86, 62, 32), (107, 447, 447)] {
        assert_eq!(
            of_13(first, settings, acknowledged),
            [StreamReason::Request; 2],
            "{first}, {settings}, {acknowledged}"
        );
    }
}

fn is_http2(exchange: &twintap_exchanges::Exchange) -> bool {
    twintap_protocols::registry::REGISTRY[usize::from(exchange.protocol)].name == "http/2"
}

const OSD_OP: u16 = 42;
const OSD_OP_REPLY: u16 = 43;
const REPOP: u16 = 112;
const REPOP_REPLY: u16 = 113;
const OSD_MAP: u16 = 41;
const AUTH_DONE: u16 = 0xfffe;
const AFTER_GAP: u8 = 1;
const SECURE: u8 = 2;
/// From the client, when it was sent in ms, type, flags, tid, length of the frame, bytes that are missing before it.
type Message = (bool, i64, u16, u8, i64, i64, i64);

/// Messages of Ceph, a packet each, on a connection that was begun before.
fn ceph(messages: &[Message]) -> BuiltExchanges {
    let (mut found, mut reach) = (Rows::default(), [500, 900]);
    for &(from_client, at_ms, kind, flags, tid, len, missing) in messages {
        let place = &mut reach[usize::from(from_client)];
        let start = *place + missing;
        *place = start + len;
        found
            .frames
            .push((from_client, start + 32, kind, flags, tid, len as u32));
        found.from_client.push(from_client);
        found.starts.push(start);
        found.ends.push(*place);
        found.sent.push(at_ms * MS);
    }
    built_of(CEPH_FRAME, &found, false)
}

/// Of each exchange: whether the server asks, when the request was sent and the answer arrived in ms, bytes of both,
/// whether it is a request.
fn outline(built: &BuiltExchanges) -> Vec<(bool, i64, i64, i64, i64, bool)> {
    let ms = |at: i64| if at == UNSEEN { -1 } else { at / MS };
    let one = |one: &Exchange| {
        let is_request = one.reason == StreamReason::Request;
        let (request, response) = (one.request, one.response);
        let bytes = [request.bytes, response.bytes].map(|bytes| if bytes == UNSEEN { -1 } else { bytes });
        (
            one.swapped,
            ms(request.first_sent_ns),
            ms(response.last_received_ns),
            bytes[0],
            bytes[1],
            is_request,
        )
    };
    built.in_order().map(one).collect()
}

#[test]
fn either_end_asks_with_tids_of_its_own() {
    let found = ceph(&[
        (true, 1, REPOP, 0, 5, 400, 0),
        (false, 2, REPOP, 0, 5, 300, 0),
        (true, 3, REPOP_REPLY, 0, 5, 90, 0),
        (true, 4, OSD_OP, 0, 5, 250, 0),
        (false, 5, OSD_MAP, 0, 0, 700, 0),
        (false, 6, REPOP_REPLY, 0, 5, 80, 0),
        (false, 7, OSD_OP_REPLY, 0, 5, 70, 0),
    ]);
    let expected = [
        (false, 1, 6, 400, 80, true),
        (true, 2, 3, 300, 90, true),
        (false, 4, 7, 250, 70, true),
    ];
    assert_eq!(outline(&found), expected);
    let hops = &found.hop_exchange;
    assert_eq!((hops[0], hops[1], hops[2], hops[5]), (0, 1, 1, 0));
    assert!(
        found
            .in_order()
            .all(|one| one.complete && found.rare.of(one).connect_start_ns == UNSEEN)
    );
}

#[test]
fn a_tid_that_comes_again_after_its_answer_is_another_request() {
    let found = ceph(&[
        (true, 1, OSD_OP, 0, 5, 100, 0),
        (true, 2, OSD_OP, 0, 5, 100, 0),
        (false, 3, OSD_OP_REPLY, 0, 5, 50, 0),
        (true, 4, OSD_OP, 0, 5, 100, 0),
        (true, 5, OSD_OP, 0, 4, 100, 0),
        (false, 6, OSD_OP_REPLY, 0, 4, 50, 0),
        (false, 7, OSD_OP_REPLY, 0, 5, 50, 0),
    ]);
    let expected = [
        (false, 1, 3, 200, 50, true),
        (false, 4, 7, 100, 50, true),
        (false, 5, 6, 100, 50, true),
    ];
    assert_eq!(
        outline(&found),
        expected,
        "the second copy was sent again before the answer"
    );
}

#[test]
fn where_messages_are_missing_only_their_own_requests_are() {
    let messages = [
        (false, 1, OSD_OP_REPLY, 0, 1, 50, 0),
        (true, 2, OSD_OP, 0, 2, 100, 0),
        (true, 3, OSD_OP, 0, 3, 100, 60),
        (false, 4, OSD_OP_REPLY, 0, 3, 50, 0),
        (true, 5, OSD_OP, 0, 4, 100, 0),
        (false, 6, OSD_OP_REPLY, AFTER_GAP, 9, 50, 400),
        (true, 7, OSD_OP, 0, 5, 100, 0),
    ];
    let expected = [
        (false, 2, -1, 100, -1, false), // its answer may be missing
        (false, 3, 4, 100, 50, true),
        (false, 5, -1, 100, -1, false),
        (false, 7, -1, 100, -1, true), // after the gap
    ];
    let found = ceph(&messages);
    assert_eq!(outline(&found), expected);
    assert!(found.streams.iter().all(|stream| stream.reason == StreamReason::Unread));
    // The same copy of a message, by a capture that missed nothing.
    let mut both = messages.to_vec();
    both[5] = (false, 6, OSD_OP_REPLY, 0, 9, 50, 400);
    assert!(outline(&ceph(&both)).iter().all(|one| one.5));
}

#[test]
fn what_is_encrypted_is_said_to_be() {
    let found = ceph(&[
        (true, 1, OSD_OP, 0, 1, 100, 0),
        (false, 2, AUTH_DONE, SECURE, 0, 90, 0),
        (true, 3, 7, 0, 0, 60, 0),
    ]);
    assert!(found.in_order().len() > 0);
    assert!(found.in_order().all(|one| one.reason == StreamReason::Hidden));
}

const MONGODB_MESSAGE: u8 = 11;
const OP_MSG: u16 = 2013;
const OP_COMPRESSED: u16 = 2012;
const ASKS: u8 = 2;
const ANSWERS: u8 = 4;
const NO_REQUEST: u8 = 8;
const OPENS_WAIT: u8 = 0x20;
const GOES_ON: u8 = 0x40;

/// Messages of MongoDB, a packet each, as: when it was sent in ms, flags, number of the request, cursor.
fn mongodb(messages: &[(i64, u8, i64, i64)]) -> BuiltExchanges {
    built_of(MONGODB_MESSAGE, &mongodb_rows(messages), false)
}

fn mongodb_rows(messages: &[(i64, u8, i64, i64)]) -> Rows {
    let (mut found, mut reach) = (Rows::default(), [500, 900]);
    for (number, &(at_ms, flags, id, cursor)) in messages.iter().enumerate() {
        let from_client = flags & ASKS != 0;
        let place = &mut reach[usize::from(from_client)];
        found.frames.push((from_client, *place + 16, OP_MSG, flags, id, 100));
        found.last_streams.push((number, cursor));
        found.from_client.push(from_client);
        found.starts.push(*place);
        found.ends.push(*place + 100);
        found.sent.push(at_ms * MS);
        *place += 100;
    }
    found
}

#[test]
fn what_waits_for_news_is_no_request_and_what_opens_it_is() {
    let found = mongodb(&[
        (1, ASKS | OPENS_WAIT, 1, 0),
        (2, ANSWERS, 1, 77),
        (3, ASKS, 2, 77),
        (600, ANSWERS, 2, 77),
        (601, ASKS, 3, 0),
        (602, ANSWERS, 3, 78),
        (603, ASKS, 4, 78), // of a cursor that does not wait
        (604, ANSWERS, 4, 78),
        (605, ASKS | NO_REQUEST, 5, 78),
        (606, ANSWERS, 5, 0),
        (607, ASKS, 6, 78),
        (608, ANSWERS | NO_REQUEST, 6, 78),
        (609, ASKS | NO_REQUEST, 7, 0), // which nobody answers
    ]);
    let reasons: Vec<StreamReason> = found.in_order().map(|one| one.reason).collect();
    let (request, word) = (StreamReason::Request, StreamReason::Word);
    assert_eq!(reasons, [request, word, request, request, word, word, word]);
    let [stream] = &found.streams[..] else {
        panic!("{:?}", found.streams);
    };
    assert_eq!(
        (stream.row, stream.messages.server.count, stream.messages.client.count),
        (2, 3, 4)
    );
}

#[test]
fn a_compressed_command_that_is_not_answered_wants_no_answer_if_a_later_one_was() {
    let reasons = |kind: u16, messages: &[(i64, u8, i64, i64)]| -> Vec<StreamReason> {
        let mut rows = mongodb_rows(messages);
        rows.frames.iter_mut().for_each(|frame| frame.2 = kind);
        let found = built_of(MONGODB_MESSAGE, &rows, false);
        found.in_order().map(|one| one.reason).collect()
    };
    let (request, word) = (StreamReason::Request, StreamReason::Word);
    let said = [(1, ASKS, 1, 0), (2, ASKS, 2, 0), (3, ANSWERS, 2, 0), (4, ASKS, 3, 0)];
    assert_eq!(reasons(OP_COMPRESSED, &said), [word, request, request]);
    assert_eq!(reasons(OP_MSG, &said), [request, request, request]);
}

#[test]
fn what_is_answered_again_and_again_is_a_stream_of_all_answers() {
    let on = ANSWERS | GOES_ON | NO_REQUEST;
    let found = mongodb(&[
        (1, ASKS, 1, 0),
        (2, on, 1, 0),
        (300, on, 1, 0),
        (900, on, 1, 0),
        (950, ASKS, 2, 0),
        (951, ANSWERS, 2, 0),
    ]);
    assert_eq!(
        outline(&found),
        [(false, 1, 900, 100, 300, false), (false, 950, 951, 100, 100, true)]
    );
    assert_eq!(found.in_order().next().map(|one| one.reason), Some(StreamReason::Word));
}
