//! Which answer is whose on connections whose messages follow each other without a gap, with parts of them missing.

use proptest::prelude::*;
use twintap_exchanges::{
    BuiltExchanges, Connections, Crossings, Heads, Hops, Pauses, StreamReason, Texts, build, kind,
};

const US: i64 = 1_000;
const WAY: i64 = 10 * US;
const COMMAND: u8 = 8;
const ANSWER: u8 = 13;
const BATCH: u8 = 0x02;
const UNASKED: u8 = 0x80;
const NO_ANSWER: u8 = 0x40;

/// From the client, when the server sees it in µs, its length, its flags, whether its head was captured.
type SaidMessage = (bool, i64, i64, u8, bool);

fn request_at(at_us: i64) -> SaidMessage {
    (true, at_us, 30, 0, true)
}

fn answer_at(at_us: i64) -> SaidMessage {
    (false, at_us, 5, 0, true)
}

fn with_flags(flags: u8, (from_client, at_us, len, _, is_seen): SaidMessage) -> SaidMessage {
    (from_client, at_us, len, flags, is_seen)
}

fn without_head((from_client, at_us, len, flags, _): SaidMessage) -> SaidMessage {
    (from_client, at_us, len, flags, false)
}

/// The exchanges of a connection, and of each head's row the place of its message in `said`.
fn built_of(said: &[SaidMessage], handshake: bool) -> (BuiltExchanges, Vec<usize>) {
    let first = if handshake { 0 } else { 1_000 };
    let mut reach = [first, first];
    let places: Vec<i64> = said
        .iter()
        .map(|one| {
            let place = &mut reach[usize::from(one.0)];
            *place += one.2;
            *place - one.2
        })
        .collect();
    let sent = |one: &SaidMessage| one.1 * US - if one.0 { WAY } else { 0 };
    let hops = Hops {
        connection_id: &vec![7; said.len()],
        kind: &vec![kind::DATA; said.len()],
        from_client: &said.iter().map(|one| one.0).collect::<Vec<_>>(),
        stream_start: &places,
        stream_end: &places
            .iter()
            .zip(said)
            .map(|(place, one)| place + one.2)
            .collect::<Vec<_>>(),
        sent_ns: &said.iter().map(sent).collect::<Vec<_>>(),
        received_ns: &said.iter().map(|one| sent(one) + WAY).collect::<Vec<_>>(),
        uncertainty_ns: &vec![1; said.len()],
        likely_error_ns: &vec![1; said.len()],
    };
    let rows: Vec<usize> = (0..said.len()).filter(|place| said[*place].4).collect();
    let of = |value: fn(&SaidMessage) -> i64| rows.iter().map(|row| value(&said[*row])).collect::<Vec<i64>>();
    let none = vec![0; rows.len() + 1];
    let empty = Texts {
        offsets: &none,
        bytes: &[],
    };
    let heads = Heads {
        connection_id: &vec![7; rows.len()],
        from_client: &rows.iter().map(|row| said[*row].0).collect::<Vec<_>>(),
        stream_offset: &rows.iter().map(|row| places[*row]).collect::<Vec<_>>(),
        head_kind: &rows
            .iter()
            .map(|row| if said[*row].0 { COMMAND } else { ANSWER })
            .collect::<Vec<_>>(),
        flags: &rows.iter().map(|row| said[*row].3).collect::<Vec<_>>(),
        head_len: &of(|one| one.2).iter().map(|len| *len as u32).collect::<Vec<_>>(),
        content_length: &vec![0; rows.len()],
        status: &vec![0; rows.len()],
        result_code: &vec![0; rows.len()],
        frame_kind: &vec![0; rows.len()],
        stream_id: &vec![-1; rows.len()],
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
    (build(&hops, &heads, &one, &nobody, &Crossings::default()), rows)
}

/// For each request that became an exchange, by its place in `said`, the place of its answer.
fn pairs(said: &[SaidMessage], handshake: bool) -> Vec<(usize, Option<usize>)> {
    let (built, rows) = built_of(said, handshake);
    let row = |row: i64| usize::try_from(row).ok().map(|row| rows[row]);
    let mut found: Vec<_> = built
        .exchanges
        .iter()
        .filter_map(|one| Some((row(one.request_row)?, row(one.response_row))))
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn each_answer_is_that_of_the_request_that_waits_longest() {
    let said = [
        request_at(0),
        request_at(0),
        request_at(1),
        answer_at(5),
        request_at(6),
        answer_at(9),
        answer_at(9),
        answer_at(20),
        request_at(30),
    ];
    let expected = [(0, Some(3)), (1, Some(5)), (2, Some(6)), (4, Some(7)), (8, None)];
    assert_eq!(pairs(&said, true), expected);
}

#[test]
fn what_nobody_asked_for_is_no_answer_and_lengthens_none() {
    let said = [
        request_at(0),
        answer_at(50),
        with_flags(UNASKED, answer_at(700)),
        request_at(1_000),
        with_flags(UNASKED, answer_at(1_010)),
        answer_at(1_050),
    ];
    assert_eq!(pairs(&said, true), [(0, Some(1)), (3, Some(5))]);
    let (built, _) = built_of(&said, true);
    let ends: Vec<i64> = built.in_order().map(|one| one.response.last_sent_ns / US).collect();
    assert_eq!(ends, [50, 1_050]);
}

#[test]
fn a_request_without_an_answer_shifts_none() {
    let said = [
        request_at(0),
        with_flags(NO_ANSWER, request_at(1)),
        request_at(2),
        answer_at(5),
        answer_at(6),
    ];
    assert_eq!(pairs(&said, true), [(0, Some(3)), (1, None), (2, Some(4))]);
}

#[test]
fn a_batch_is_answered_by_all_up_to_its_last() {
    let said = [
        with_flags(BATCH, request_at(0)),
        request_at(1),
        answer_at(5),
        answer_at(6),
        with_flags(BATCH, answer_at(7)),
        answer_at(9),
    ];
    assert_eq!(pairs(&said, true), [(0, Some(2)), (1, Some(5))]);
    let (built, _) = built_of(&said, true);
    let first = built.in_order().next().expect("one");
    assert_eq!(
        (first.response.first_sent_ns, first.response.last_sent_ns),
        (5 * US, 7 * US)
    );
}

#[test]
fn answers_to_what_is_missing_are_no_ones() {
    let many = |from_us: i64| {
        (0..20).flat_map(move |turn| [request_at(from_us + 100 * turn), answer_at(from_us + 100 * turn + 20)])
    };
    let all = |cases: &[SaidMessage]| cases.iter().copied().chain(many(10_000)).collect::<Vec<_>>();
    // Two requests that were not captured, in a batch of four.
    let requests = all(&[
        request_at(0),
        without_head(request_at(0)),
        without_head(request_at(0)),
        request_at(0),
        answer_at(1),
        answer_at(2),
        answer_at(3),
        answer_at(4),
    ]);
    assert_eq!(pairs(&requests, true)[..3], [(0, Some(4)), (3, None), (8, Some(9))]);
    // Two answers.
    let answers = all(&[
        request_at(0),
        request_at(0),
        request_at(0),
        request_at(0),
        answer_at(1),
        without_head(answer_at(2)),
        without_head(answer_at(3)),
        answer_at(4),
    ]);
    assert_eq!(
        pairs(&answers, true)[..5],
        [(0, Some(4)), (1, None), (2, None), (3, None), (8, Some(9))]
    );
    // The capture began while two requests waited.
    let begun = all(&[
        answer_at(1),
        request_at(1),
        answer_at(2),
        request_at(3),
        answer_at(4),
        answer_at(5),
    ]);
    assert_eq!(pairs(&begun, false)[..3], [(1, None), (3, None), (6, Some(7))]);
}

#[test]
fn what_cannot_be_known_is_left_open_and_too_much_of_it_counts_as_not_read() {
    let many = (0..60).flat_map(|turn| [request_at(10_000 + 100 * turn), answer_at(10_000 + 100 * turn + 20)]);
    // Between two holes: who knows whether the answer is that of the request.
    let between = [
        request_at(0),
        answer_at(1),
        without_head(request_at(2)),
        without_head(answer_at(3)),
        request_at(4),
        answer_at(5),
        without_head(request_at(6)),
        without_head(answer_at(7)),
    ];
    let said: Vec<SaidMessage> = between.into_iter().chain(many).collect();
    assert_eq!(pairs(&said, true)[..2], [(0, Some(1)), (4, None)]);
    let unread: Vec<SaidMessage> = (0..40)
        .flat_map(|turn| [request_at(100 * turn), without_head(answer_at(100 * turn + 20))])
        .collect();
    let (built, _) = built_of(&unread, true);
    assert!(
        built
            .exchanges
            .iter()
            .all(|one| !one.readable && one.reason == StreamReason::Request)
    );
    assert_eq!(built.exchanges.len(), 40, "turns");
}

/// A client that sends bursts and pauses now and then, and a server that takes its time for each.
fn traffic() -> impl Strategy<Value = Vec<SaidMessage>> {
    let burst = (1_usize..9, 0_i64..200, prop::bool::weighted(0.3), 1_i64..40);
    prop::collection::vec(burst, 20..60).prop_map(|bursts| {
        let (mut said, mut now, mut free) = (Vec::new(), 0, 0);
        for (count, pause, is_idle, service) in bursts {
            now += pause;
            if is_idle {
                now = now.max(free) + 2_000;
            }
            for _ in 0..count {
                said.push(request_at(now));
            }
            for _ in 0..count {
                free = free.max(now) + service;
                said.push(answer_at(free));
            }
        }
        said.sort_by_key(|one| (one.1, !one.0));
        said
    })
}

/// Requests, answers, and in capitals what is missing, with their times.
fn text_of(said: &[SaidMessage]) -> String {
    let one = |one: &SaidMessage| {
        let letter = ["a", "c", "A", "C"][usize::from(one.0) + 2 * usize::from(!one.4)];
        format!("{letter}{} ", one.1)
    };
    said.iter().map(one).collect()
}

/// Whose answer an answer is, in truth.
fn is_true(said: &[SaidMessage], (request, answer): (usize, usize)) -> bool {
    let rank = |place: usize| said[..place].iter().filter(|one| one.0 == said[place].0).count();
    rank(request) == rank(answer)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_pair_is_wrong_whatever_is_missing(
        mut said in traffic(),
        holes in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..12, 0_u8..3), 0..4),
        from in any::<prop::sample::Index>(),
        handshake in any::<bool>(),
    ) {
        for (at, len, side) in &holes {
            let at = at.index(said.len());
            for one in said.iter_mut().skip(at).take(*len).filter(|one| *side == 2 || one.0 == (*side == 1)) {
                *one = without_head(*one);
            }
        }
        let from = if handshake { 0 } else { from.index(said.len() / 2) };
        let truth = said.clone();
        let seen: Vec<SaidMessage> = said.split_off(from);
        let found = pairs(&seen, handshake);
        for (request, answer) in &found {
            if let Some(answer) = answer {
                prop_assert!(is_true(&truth, (request + from, answer + from)), "{request} {answer} of {}", text_of(&seen));
            }
        }
        if holes.is_empty() && handshake {
            prop_assert_eq!(found.len() * 2, seen.len());
            prop_assert!(found.iter().all(|pair| pair.1.is_some()));
        }
    }
}
