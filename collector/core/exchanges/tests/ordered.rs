//! Exchanges of protocols whose directions are followed from message to message (`twintap_protocols::ordered`).

use twintap_exchanges::{
    BuiltExchanges, Connections, Crossings, Heads, Hops, NO_PLACE, Pauses, Texts, UNSEEN, build, kind,
};
use twintap_protocols::ordered::flag::{ANSWER, ASIDE, CONTINUE, END, GAP, NAME, REQUEST};

/// PostgreSQL's.
const HEAD_KIND: u8 = 6;
const NO_RESULT: i32 = -1;

/// Bytes of one direction: from the client, first and last place, when they were sent and received.
type Transfer = (bool, (i64, i64), (i64, i64));
/// A message: from the client, place, length, flags, result code.
type Message = (bool, i64, u32, u8, i32);

fn exchanges(transfers: &[Transfer], messages: &[Message]) -> BuiltExchanges {
    let kinds = vec![kind::DATA; transfers.len()];
    exchanges_of(&kinds, transfers, messages)
}

fn exchanges_of(kinds: &[u8], transfers: &[Transfer], messages: &[Message]) -> BuiltExchanges {
    let (hops_count, heads_count) = (transfers.len(), messages.len());
    let column = |get: fn(&Transfer) -> i64| transfers.iter().map(get).collect::<Vec<i64>>();
    let hops = Hops {
        connection_id: &vec![1; hops_count],
        kind: kinds,
        from_client: &transfers.iter().map(|hop| hop.0).collect::<Vec<bool>>(),
        stream_start: &column(|hop| hop.1.0),
        stream_end: &column(|hop| hop.1.1),
        sent_ns: &column(|hop| hop.2.0),
        received_ns: &column(|hop| hop.2.1),
        uncertainty_ns: &vec![1; hops_count],
        likely_error_ns: &vec![1; hops_count],
    };
    let none = vec![0; heads_count + 1];
    let texts = Texts {
        offsets: &none,
        bytes: &[],
    };
    let heads = Heads {
        connection_id: &vec![1; heads_count],
        from_client: &messages.iter().map(|message| message.0).collect::<Vec<bool>>(),
        stream_offset: &messages.iter().map(|message| message.1).collect::<Vec<i64>>(),
        head_kind: &vec![HEAD_KIND; heads_count],
        flags: &messages.iter().map(|message| message.3).collect::<Vec<u8>>(),
        head_len: &messages.iter().map(|message| message.2).collect::<Vec<u32>>(),
        content_length: &vec![-1; heads_count],
        status: &vec![0; heads_count],
        result_code: &messages.iter().map(|message| message.4).collect::<Vec<i32>>(),
        frame_kind: &vec![1; heads_count],
        stream_id: &vec![-1; heads_count],
        method: texts,
        target: texts,
        id: texts,
    };
    let pauses = Pauses {
        connection_id: &[],
        from_client: &[],
        stream_offset: &[],
        is_reader: &[],
    };
    let connections = Connections {
        connection_id: &[1],
        handshake: &[true],
    };
    build(&hops, &heads, &connections, &pauses, &Crossings::default())
}

/// Of each exchange: when its request was sent and its answer had arrived, the rows that name it and show its result,
/// whether it is complete.
fn lines(built: &BuiltExchanges) -> Vec<(i64, i64, i64, i64, bool)> {
    let line = |one: &twintap_exchanges::Exchange| {
        let (asked, answered) = (one.request.first_sent_ns, one.response.last_received_ns);
        (asked, answered, one.request_row, one.result_row, one.complete)
    };
    built.in_order().map(line).collect()
}

#[test]
fn answers_are_of_the_oldest_requests_however_many_are_under_way() {
    let transfers = [
        (true, (0, 30), (10, 20)),
        (true, (30, 60), (11, 21)),
        (false, (0, 40), (30, 40)),
        (true, (60, 90), (31, 41)), // before the second answer
        (false, (40, 80), (50, 60)),
        (false, (80, 120), (70, 80)),
    ];
    let messages = [
        (true, 0, 30, REQUEST, NO_RESULT),
        (true, 30, 30, REQUEST, NO_RESULT),
        (true, 60, 30, REQUEST, NO_RESULT),
        (false, 0, 10, ANSWER, NO_RESULT),
        (false, 34, 6, END, 0),
        (false, 40, 10, ANSWER, 77),
        (false, 74, 6, END, 77),
        (false, 80, 10, ANSWER, NO_RESULT),
        (false, 114, 6, END, 0),
    ];
    let built = exchanges(&transfers, &messages);
    assert_eq!(
        lines(&built),
        [(10, 40, 0, 4, true), (11, 60, 1, 6, true), (31, 80, 2, 8, true)]
    );
    assert_eq!(built.hop_exchange, [0, 1, 0, 2, 1, 2]);
}

#[test]
fn what_is_no_exchange_lengthens_none() {
    let transfers = [
        (true, (0, 30), (10, 20)),
        (false, (0, 40), (30, 40)),
        (false, (40, 60), (1_000, 1_010)), // a notice
        (true, (30, 35), (2_000, 2_010)),  // goodbye
    ];
    let messages = [
        (true, 0, 10, REQUEST, NO_RESULT),
        (true, 20, 10, NAME, NO_RESULT),
        (true, 30, 5, ASIDE, NO_RESULT),
        (false, 0, 10, ANSWER, NO_RESULT),
        (false, 34, 6, END, 0),
    ];
    let built = exchanges(&transfers, &messages);
    assert_eq!(lines(&built), [(10, 40, 1, 4, true)]);
    let one = built.exchanges[0];
    assert_eq!(
        (one.request.bytes, one.response.bytes, one.request.last_sent_ns),
        (30, 40, 10)
    );
    let rare = built.rare.of(&one);
    assert!(rare.request_silent.is_none() && rare.response_silent.is_none());
    assert!(built.hop_exchange.iter().all(|place| *place != NO_PLACE));
}

#[test]
fn what_a_server_asks_for_is_part_of_the_request_and_its_word_of_no_answer() {
    let transfers = [
        (true, (0, 30), (10, 20)),
        (false, (0, 40), (30, 40)),
        (true, (30, 60), (100, 110)),      // CHANGE USER
        (false, (40, 80), (2_000, 2_010)), // another proof is asked for
        (true, (60, 90), (2_020, 2_030)),
        (false, (80, 90), (2_050, 2_060)),
    ];
    let messages = [
        (true, 0, 30, REQUEST, NO_RESULT),
        (true, 30, 30, REQUEST, NO_RESULT),
        (false, 0, 40, ANSWER | END, 0),
        (false, 40, 40, CONTINUE, NO_RESULT),
        (false, 80, 10, ANSWER | END, 0),
    ];
    let built = exchanges(&transfers, &messages);
    assert_eq!(lines(&built), [(10, 40, 0, 2, true), (100, 2_060, 1, 4, true)]);
    let one = built.exchanges[1];
    assert_eq!(
        (one.request.last_received_ns, one.response.first_sent_ns),
        (2_030, 2_050)
    );
    let rare = built.rare.of(&one);
    let asked = (rare.continue_sent_ns, rare.continue_received_ns, rare.body_sent_ns);
    assert_eq!(asked, (2_000, 2_010, 2_020));
    assert!(rare.request_silent.is_none());
    assert_eq!(built.hop_exchange, [0, 0, 1, 1, 1, 1]);
}

/// The greeting of a connection's first exchange: the handshake's end at the server, its first byte sent and received.
fn greeting_of(greeting_ns: i64, asked_ns: i64) -> ((i64, i64, i64), u32) {
    let kinds = [kind::SYN, kind::SYN_ACK, kind::ACK, kind::DATA, kind::DATA, kind::DATA];
    let transfers = [
        (true, (0, 0), (1, 2)),
        (false, (0, 0), (3, 4)),
        (true, (0, 0), (5, 6)),
        (false, (0, 40), (greeting_ns, greeting_ns + 10)),
        (true, (0, 30), (asked_ns, asked_ns + 10)),
        (false, (40, 50), (3_000, 3_010)),
    ];
    let messages = [(true, 0, 30, REQUEST, NO_RESULT), (false, 40, 10, ANSWER | END, 0)];
    let built = exchanges_of(&kinds, &transfers, &messages);
    let one = built.exchanges[0];
    let rare = built.rare.of(&one);
    assert_eq!((built.exchanges.len(), rare.connected_ns), (1, 5));
    let asked = (
        one.request.first_sent_ns,
        one.response.first_sent_ns,
        one.response.bytes,
    );
    assert_eq!(asked, (asked_ns, 3_000, 10));
    let greeting = (
        rare.connected_received_ns,
        rare.greeting_sent_ns,
        rare.greeting_received_ns,
    );
    (greeting, built.hop_exchange[3])
}

#[test]
fn the_greeting_of_a_server_that_speaks_first_is_of_the_first_exchange() {
    assert_eq!(greeting_of(2_000, 2_020), ((6, 2_000, 2_010), 0));
    // Its client did not wait for it.
    assert_eq!(greeting_of(2_000, 1_995), ((UNSEEN, UNSEEN, UNSEEN), NO_PLACE));
}

#[test]
fn an_answer_without_a_request_or_an_end_is_none_or_incomplete() {
    let transfers = [
        (false, (0, 40), (10, 20)), // to a request from before the capture
        (true, (0, 30), (30, 40)),
        (false, (40, 60), (50, 60)),
    ];
    let messages = [
        (false, 0, 10, ANSWER | GAP, NO_RESULT),
        (false, 34, 6, END, 0),
        (true, 0, 30, REQUEST | GAP, NO_RESULT),
        (false, 40, 10, ANSWER, NO_RESULT),
    ];
    assert_eq!(lines(&exchanges(&transfers, &messages)), [(30, 60, 2, -1, false)]);
}

#[test]
fn after_a_gap_answers_are_those_of_their_turn() {
    let transfers = [
        (true, (0, 30), (10, 20)),
        (false, (0, 40), (30, 40)),
        (true, (30, 60), (50, 60)),
        (false, (40, 3_000), (70, 80)),
        (false, (3_000, 4_000), (75, 85)),
        (true, (60, 90), (90, 100)),
        (false, (4_000, 4_040), (110, 120)),
    ];
    let messages = [
        (true, 0, 30, REQUEST, NO_RESULT),
        (true, 30, 30, REQUEST, NO_RESULT),
        (true, 60, 30, REQUEST, NO_RESULT),
        // Of the first answer nothing could be read.
        (false, 40, 10, ANSWER | GAP, NO_RESULT),
        (false, 3_000, 900, ANSWER | GAP, NO_RESULT), // a row of the same answer
        (false, 3_994, 6, END, -2),
        (false, 4_000, 10, ANSWER, NO_RESULT),
        (false, 4_034, 6, END, 0),
    ];
    let expected = [(10, 40, 0, -1, false), (50, 85, 1, 5, true), (90, 120, 2, 7, true)];
    assert_eq!(lines(&exchanges(&transfers, &messages)), expected);
}

#[test]
fn a_connection_without_requests_has_none() {
    let transfers = [(true, (0, 16), (10, 20)), (false, (0, 1), (30, 40))];
    let built = exchanges(&transfers, &[(true, 0, 16, ASIDE, NO_RESULT)]);
    assert_eq!((built.exchanges.len(), built.hop_exchange), (0, vec![NO_PLACE; 2]));
    assert_ne!(NO_PLACE as i64, UNSEEN);
}
