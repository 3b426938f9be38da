//! Streams, recognised by the content of messages and by the shape of traffic; and requests that look like them.

use twintap_exchanges::{
    BuiltExchanges, Connections, Crossings, Heads, Hops, Pauses, StreamReason, Texts, build, kind,
};

const MS: i64 = 1_000_000;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const MARK: u8 = 4;
const EVENT_STREAM: u8 = 0x20;

/// From the client, bytes, when it was sent; it arrives 10 µs later.
type ClientMessage = (bool, i64, i64);

/// From the client, place, kind, flags, status, method.
type Line = (bool, i64, u8, u8, u16, &'static str);

fn exchanges_of(said: &[ClientMessage], lines: &[Line], fin: Option<(bool, i64)>) -> BuiltExchanges {
    built_as(said, lines, fin, true)
}

/// Of a capture that begins within the connection.
fn built_midway(said: &[ClientMessage], lines: &[Line]) -> BuiltExchanges {
    built_as(said, lines, None, false)
}

fn built_as(said: &[ClientMessage], lines: &[Line], fin: Option<(bool, i64)>, handshake: bool) -> BuiltExchanges {
    built_crossed(said, lines, fin, handshake, &Crossings::default())
}

fn built_crossed(
    said: &[ClientMessage],
    lines: &[Line],
    fin: Option<(bool, i64)>,
    handshake: bool,
    crossings: &Crossings,
) -> BuiltExchanges {
    let mut reach = [0, 0];
    let (mut from_client, mut starts, mut ends, mut sent) = (vec![], vec![], vec![], vec![]);
    for &(by_client, bytes, at) in said {
        let place = &mut reach[usize::from(by_client)];
        from_client.push(by_client);
        starts.push(*place);
        ends.push(*place + bytes);
        sent.push(at);
        *place += bytes;
    }
    let mut kinds = vec![kind::DATA; said.len()];
    if let Some((by_client, at)) = fin {
        let place = reach[usize::from(by_client)];
        from_client.push(by_client);
        starts.push(place);
        ends.push(place);
        sent.push(at);
        kinds.push(kind::FIN);
    }
    let received: Vec<i64> = sent.iter().map(|at| at + 10_000).collect();
    let count = kinds.len();
    let hops = Hops {
        connection_id: &vec![7; count],
        kind: &kinds,
        from_client: &from_client,
        stream_start: &starts,
        stream_end: &ends,
        sent_ns: &sent,
        received_ns: &received,
        uncertainty_ns: &vec![1; count],
        likely_error_ns: &vec![1; count],
    };
    let methods: String = lines.iter().map(|line| line.5).collect();
    let mut offsets = vec![0];
    lines
        .iter()
        .for_each(|line| offsets.push(offsets[offsets.len() - 1] + line.5.len() as i32));
    let none = vec![0; lines.len() + 1];
    let empty = Texts {
        offsets: &none,
        bytes: &[],
    };
    let heads = Heads {
        connection_id: &vec![7; lines.len()],
        from_client: &lines.iter().map(|line| line.0).collect::<Vec<bool>>(),
        stream_offset: &lines.iter().map(|line| line.1).collect::<Vec<i64>>(),
        head_kind: &lines.iter().map(|line| line.2).collect::<Vec<u8>>(),
        flags: &lines.iter().map(|line| line.3).collect::<Vec<u8>>(),
        head_len: &lines
            .iter()
            .map(|line| if line.2 == MARK { 0 } else { 10 })
            .collect::<Vec<u32>>(),
        content_length: &vec![-1; lines.len()],
        status: &lines.iter().map(|line| line.4).collect::<Vec<u16>>(),
        result_code: &vec![-1; lines.len()],
        frame_kind: &vec![0; lines.len()],
        stream_id: &vec![-1; lines.len()],
        method: Texts {
            offsets: &offsets,
            bytes: methods.as_bytes(),
        },
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
    build(&hops, &heads, &one, &nobody, crossings)
}

fn whys(built: &BuiltExchanges) -> Vec<StreamReason> {
    built.in_order().map(|one| one.reason).collect()
}

/// A question, then so many pieces, apart by so many ms; the last question and answer are `more` ms behind, if any.
fn pieces(count: i64, apart_ms: i64, more_ms: Option<i64>) -> Vec<ClientMessage> {
    let mut said = vec![(true, 100, 0), (false, 50, MS)];
    said.extend((1..=count).map(|number| (false, 50, (1 + number * apart_ms) * MS)));
    if let Some(more_ms) = more_ms {
        let at = (1 + count * apart_ms + more_ms) * MS;
        said.extend([(true, 100, at), (false, 50, at + MS)]);
    }
    said
}

const MASKED: u16 = 4;
const PLAIN: u16 = 5;

/// Why the turns are what they are of a connection whose first bytes were not captured: what was said, 20 bytes each,
/// and whether frames show in it.
fn midway(said: &[(bool, Option<u16>)]) -> Vec<StreamReason> {
    let at = |number: usize| 100 * number as i64 * MS;
    let all: Vec<ClientMessage> = said
        .iter()
        .enumerate()
        .map(|(number, one)| (one.0, 20, at(number)))
        .collect();
    let mut reach = [0, 0];
    let mut lines: Vec<Line> = Vec::new();
    for &(by_client, frames) in said {
        let place = &mut reach[usize::from(by_client)];
        lines.extend(frames.map(|of| (by_client, *place, MARK, 0, of, "frames")));
        *place += 20;
    }
    let mut whys = whys(&built_midway(&all, &lines));
    whys.dedup();
    whys
}

#[test]
fn frames_of_both_sides_are_a_websocket_whose_beginning_was_not_captured() {
    let (client, server) = ((true, Some(MASKED)), (false, Some(PLAIN)));
    let (other, answer) = ((true, None), (false, None));
    let websocket = [StreamReason::Word];
    let requests = [StreamReason::Request];
    assert_eq!(midway(&[server, server, client, server, server]), websocket);
    assert_eq!(midway(&[client, server, client, server]), websocket);
    let (client_as_server, server_as_client) = ((false, Some(MASKED)), (true, Some(PLAIN)));
    let guessed = [client_as_server, server_as_client, client_as_server, server_as_client];
    assert_eq!(midway(&guessed), websocket, "its client was taken for its server");
    assert_eq!(midway(&[server, server, server, server, server]), requests, "one side");
    assert_eq!(midway(&[client, server, client]), requests, "too few");
    assert_eq!(
        midway(&[client, server, other, answer, other, answer, other]),
        requests,
        "few of all"
    );
    assert_eq!(
        midway(&[client, server, (true, Some(PLAIN)), server]),
        requests,
        "not masked"
    );
}

#[test]
fn messages_say_what_is_no_request() {
    let ask = (true, 0, REQUEST, 0, 0, "GET");
    let said = [
        (true, 100, 0),
        (false, 60, MS),
        (true, 30, 300 * MS),
        (false, 30, 400 * MS),
    ];
    let answer = |status, flags| (false, 0, RESPONSE, flags, status, "");
    type Case = (&'static str, Vec<Line>, Vec<StreamReason>);
    let cases: Vec<Case> = vec![
        (
            "101",
            vec![ask, answer(101, 0)],
            vec![StreamReason::Request, StreamReason::Upgrade],
        ),
        (
            "an accepted CONNECT",
            vec![(true, 0, REQUEST, 0, 0, "CONNECT"), answer(200, 0)],
            vec![StreamReason::Request, StreamReason::Tunnel],
        ),
        (
            "HTTP inside a tunnel",
            vec![
                (true, 0, REQUEST, 0, 0, "CONNECT"),
                answer(200, 0),
                (true, 100, REQUEST, 0, 0, "GET"),
                (false, 60, RESPONSE, 0, 200, ""),
            ],
            vec![StreamReason::Request, StreamReason::Tunnel],
        ),
        (
            "a refused CONNECT",
            vec![(true, 0, REQUEST, 0, 0, "CONNECT"), answer(403, 0)],
            vec![StreamReason::Request],
        ),
        (
            "events",
            vec![ask, answer(200, EVENT_STREAM)],
            vec![StreamReason::EventStream],
        ),
        (
            "no events, but an error",
            vec![ask, answer(500, EVENT_STREAM)],
            vec![StreamReason::Request],
        ),
        (
            "an ordinary answer",
            vec![ask, answer(200, 0)],
            vec![StreamReason::Request],
        ),
        (
            "from the second message on",
            vec![(true, 100, MARK, 0, 1, "LISTEN")],
            vec![StreamReason::Request, StreamReason::Word],
        ),
        (
            "the first answer",
            vec![(true, 0, MARK, 0, 2, "BLPOP")],
            vec![StreamReason::Word, StreamReason::Request],
        ),
        (
            "all of it",
            vec![(false, 0, MARK, 0, 3, "SSH")],
            vec![StreamReason::Word, StreamReason::Word],
        ),
        (
            "a server cannot subscribe",
            vec![(false, 0, MARK, 0, 1, "LISTEN")],
            vec![StreamReason::Request, StreamReason::Request],
        ),
        ("nothing", vec![], vec![StreamReason::Request, StreamReason::Request]),
    ];
    for (case, lines, expected) in cases {
        assert_eq!(whys(&exchanges_of(&said, &lines, None)), expected, "{case}");
    }
}

#[test]
fn a_server_that_speaks_again_and_again_unasked_makes_a_stream() {
    let cases = [
        (
            "still open",
            exchanges_of(&pieces(9, 100, None), &[], None),
            StreamReason::Unasked,
        ),
        (
            "its client closes it later",
            exchanges_of(&pieces(9, 100, None), &[], Some((true, 951 * MS))),
            StreamReason::Unasked,
        ),
        (
            "it ends with its connection",
            exchanges_of(&pieces(9, 100, None), &[], Some((false, 902 * MS))),
            StreamReason::Request,
        ),
        (
            "its client leaves when all has come",
            exchanges_of(&pieces(9, 100, None), &[], Some((true, 902 * MS))),
            StreamReason::Request,
        ),
        (
            "few pieces",
            exchanges_of(&pieces(7, 100, None), &[], None),
            StreamReason::Request,
        ),
        (
            "no pauses to speak of",
            exchanges_of(&pieces(20, 30, None), &[], None),
            StreamReason::Request,
        ),
        (
            "asked again",
            exchanges_of(&pieces(9, 100, Some(400)), &[], None),
            StreamReason::Request,
        ),
    ];
    for (case, built, expected) in cases {
        assert_eq!(whys(&built)[0], expected, "{case}");
    }
}

#[test]
fn who_streams_each_answer_streams_the_last_too() {
    let mut said = pieces(9, 100, Some(400));
    let at = said[said.len() - 1].2;
    said.extend((1..=9).map(|number| (false, 50, at + number * 100 * MS)));
    assert_eq!(
        whys(&exchanges_of(&said, &[], None)),
        [StreamReason::Request, StreamReason::Request]
    );
}

#[test]
fn an_answer_in_pieces_with_a_head_is_a_request() {
    let heads = [(true, 0, REQUEST, 0, 0, "GET"), (false, 0, RESPONSE, 0, 200, "")];
    assert_eq!(
        whys(&exchanges_of(&pieces(20, 100, None), &heads, None)),
        [StreamReason::Request]
    );
}

#[test]
fn messages_are_counted_with_their_delays() {
    let said = [
        (true, 40, 0),
        (false, 10, MS),
        (false, 1_448, 200 * MS),
        (false, 300, 200 * MS + 5_000), // the rest of the one before
        (false, 20, 500 * MS),
        (false, 20, 500 * MS + 100_000), // another
    ];
    let built = exchanges_of(&said, &[(true, 0, MARK, 0, 1, "SUBSCRIBE")], None);
    let [stream] = built.streams[..] else {
        panic!("{:?}", built.streams)
    };
    assert_eq!((stream.reason, stream.row), (StreamReason::Word, 0));
    assert_eq!((stream.messages.server.count, stream.messages.server.bytes), (4, 1_798));
    assert_eq!((stream.messages.client.count, stream.messages.client.bytes), (1, 40));
    assert_eq!(
        (stream.delay_median_ns, stream.delay_p99_ns, stream.uncertainty_ns),
        (10_000, 15_000, 1)
    );
    assert_eq!((stream.begin_ns, stream.end_ns), (0, 500 * MS + 110_000));
    assert_eq!(stream.longest_idle_ns, 300 * MS - 15_000);
}

#[test]
fn a_server_that_speaks_late_is_a_candidate() {
    let mut said: Vec<ClientMessage> = vec![];
    (0..4).for_each(|turn| said.extend([(true, 10, turn * 200 * MS), (false, 10, (turn * 200 + 90) * MS)]));
    let built = exchanges_of(&said, &[], None);
    let late: Vec<_> = built.late.iter().map(|one| (one.at_ns / MS, one.asked)).collect();
    assert_eq!(late, [(90, true), (290, true), (490, true), (690, true)]);
    assert_eq!(
        built.said.iter().map(|one| one.at_ns).collect::<Vec<i64>>()[1],
        200 * MS + 10_000
    );
    assert_eq!(
        (built.streams[0].reason, built.streams[0].turns),
        (StreamReason::Request, 4)
    );
    assert!(whys(&built).iter().all(|reason| *reason == StreamReason::Request));
}

/// So many turns of 100 and 50 bytes; in each of the first `slow`, client and server go on after a silence.
fn turns(count: i64, slow: i64) -> Vec<ClientMessage> {
    let turn = |number: i64| {
        let at = number * 10 * MS;
        let parts = [
            (true, 60, at),
            (true, 40, at + MS),
            (false, 30, at + 2 * MS),
            (false, 20, at + 3 * MS),
        ];
        let whole = [(true, 100, at), (false, 50, at + 2 * MS)];
        if number < slow { parts.to_vec() } else { whole.to_vec() }
    };
    (0..count).flat_map(turn).collect()
}

/// Why the first turn is what it is, how many turns show it, and how many there are.
fn verdict_of(said: &[ClientMessage], crossings: &Crossings) -> (StreamReason, Option<(u32, u32)>) {
    let built = built_crossed(said, &[], None, true, crossings);
    let counts = built.streams.first().map(|one| (one.pieces, one.turns));
    assert!(whys(&built).windows(2).all(|two| two[0] == two[1]));
    (whys(&built)[0], counts)
}

#[test]
fn turns_of_which_some_crossed_are_no_requests() {
    let one = |crossed_start: &'static [i64; 1], crossed_end: &'static [i64; 1]| Crossings {
        connection_id: &[7],
        from_client: &[true],
        stream_offset: &[300],
        crossed_start,
        crossed_end,
    };
    let crossed = one(&[120], &[150]);
    assert_eq!(
        verdict_of(&turns(60, 0), &crossed),
        (StreamReason::Crossed, Some((1, 60)))
    );
    assert_eq!(verdict_of(&turns(200, 0), &crossed), (StreamReason::Request, None));
    assert_eq!(
        verdict_of(&turns(60, 0), &Crossings::default()),
        (StreamReason::Request, None)
    );
    // Bytes that are part of no turn.
    let beside = one(&[1 << 40], &[1 << 41]);
    assert_eq!(verdict_of(&turns(2, 0), &beside), (StreamReason::Request, None));
}

#[test]
fn turns_in_which_both_sides_go_on_are_no_requests() {
    let of = |count, slow| verdict_of(&turns(count, slow), &Crossings::default());
    assert_eq!(of(40, 4), (StreamReason::Several, Some((4, 40))));
    assert_eq!(of(40, 3), (StreamReason::Request, None));
    assert_eq!(of(19, 19), (StreamReason::Request, None));
    let uploads: Vec<ClientMessage> = turns(40, 40).into_iter().filter(|one| one.1 != 20).collect();
    assert_eq!(
        verdict_of(&uploads, &Crossings::default()),
        (StreamReason::Request, None)
    );
}
