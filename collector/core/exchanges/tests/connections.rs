//! Connections as scripts of transfers: their exchanges, and the invariants that hold for any input. Tables of cases,
//! one line for each exchange, are tested through the Python interface.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use twintap_exchanges::{
    BuiltExchanges, Cause, Connections, Crossings, Heads, Hops, NO_PLACE, Pauses, Silence, Texts, UNSEEN, build, kind,
};

const NO_PAUSES: Pauses = Pauses {
    connection_id: &[],
    from_client: &[],
    stream_offset: &[],
    is_reader: &[],
};

const ACK: u8 = 3;
const DATA: u8 = 2;

/// A transfer of one connection: from its client, bytes, when it was sent and received.
type Transfer = (bool, (i64, i64), (i64, i64));

/// A head: from its client, place, request or response, status, declared length.
type HeadLine = (bool, i64, u8, u16, i64);

fn exchanges_of(connection: i64, transfers: &[Transfer], lines: &[HeadLine]) -> BuiltExchanges {
    built_with(connection, transfers, lines, &NO_PAUSES)
}

fn built_with(connection: i64, transfers: &[Transfer], lines: &[HeadLine], pauses: &Pauses) -> BuiltExchanges {
    let kind_of = |hop: &Transfer| if hop.1.1 > hop.1.0 { DATA } else { ACK };
    let kinds: Vec<u8> = transfers.iter().map(kind_of).collect();
    built_of(connection, transfers, &kinds, lines, pauses)
}

fn built_of(
    connection: i64,
    transfers: &[Transfer],
    kinds: &[u8],
    lines: &[HeadLine],
    pauses: &Pauses,
) -> BuiltExchanges {
    built_in_doubt(connection, transfers, kinds, lines, pauses, 1)
}

/// With clocks that are uncertain by `doubt_ns`.
fn built_in_doubt(
    connection: i64,
    transfers: &[Transfer],
    kinds: &[u8],
    lines: &[HeadLine],
    pauses: &Pauses,
    doubt_ns: i64,
) -> BuiltExchanges {
    let count = transfers.len();
    let column = |get: fn(&Transfer) -> i64| transfers.iter().map(get).collect::<Vec<i64>>();
    let (starts, ends) = (column(|hop| hop.1.0), column(|hop| hop.1.1));
    let hops = Hops {
        connection_id: &vec![connection; count],
        kind: kinds,
        from_client: &transfers.iter().map(|hop| hop.0).collect::<Vec<bool>>(),
        stream_start: &starts,
        stream_end: &ends,
        sent_ns: &column(|hop| hop.2.0),
        received_ns: &column(|hop| hop.2.1),
        uncertainty_ns: &vec![doubt_ns; count],
        likely_error_ns: &vec![doubt_ns; count],
    };
    let of = lines.len();
    let none = vec![0; of + 1];
    let texts = Texts {
        offsets: &none,
        bytes: &[],
    };
    let heads = Heads {
        connection_id: &vec![connection; of],
        from_client: &lines.iter().map(|line| line.0).collect::<Vec<bool>>(),
        stream_offset: &lines.iter().map(|line| line.1).collect::<Vec<i64>>(),
        head_kind: &lines.iter().map(|line| line.2).collect::<Vec<u8>>(),
        flags: &vec![0; of],
        head_len: &vec![10; of],
        content_length: &lines.iter().map(|line| line.4).collect::<Vec<i64>>(),
        status: &lines.iter().map(|line| line.3).collect::<Vec<u16>>(),
        result_code: &vec![-1; of],
        frame_kind: &vec![0; of],
        stream_id: &vec![-1; of],
        method: texts,
        target: texts,
        id: texts,
    };
    assert!(hops.is_consistent() && heads.is_consistent());
    build(
        &hops,
        &heads,
        &Connections {
            connection_id: &[connection],
            handshake: &[false],
        },
        pauses,
        &Crossings::default(),
    )
}

#[test]
fn what_is_sent_again_in_other_pieces_does_not_arrive_again() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 3_000), (40, 50)),
        (false, (2_000, 3_000), (45, 5_000)), // a tail loss probe
    ];
    let end_of = |transfers: &[Transfer]| exchanges_of(7, transfers, &[]).exchanges[0].response.last_received_ns;
    assert_eq!(end_of(&transfers), 50);
    let hole = [
        (true, (0, 100), (10, 20)),
        (false, (0, 1_000), (40, 50)),
        (false, (1_000, 3_000), (40, UNSEEN)),
        (false, (3_000, 4_000), (40, 55)),
        (false, (500, 3_500), (60, 70)), // fills it
        (false, (0, 500), (80, 90)),
    ];
    assert_eq!(end_of(&hole), 70);
}

#[test]
fn turns_make_exchanges_and_acks_go_with_the_last_that_had_come() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 0), (21, 31)),
        (false, (0, 50), (40, 50)),
        (true, (100, 130), (60, 70)),
        (false, (50, 90), (80, 90)),
        (true, (130, 130), (95, 99)),
    ];
    let built = exchanges_of(7, &transfers, &[]);
    let times: Vec<_> = built
        .exchanges
        .iter()
        .map(|one| (one.request.first_sent_ns, one.response.last_received_ns))
        .collect();
    assert_eq!(times, [(10, 50), (60, 90)]);
    assert_eq!(built.hop_exchange, [0, 0, 0, 1, 1, 1]);
    assert!(built.exchanges.iter().all(|one| one.complete && !one.readable));
}

#[test]
fn packets_without_data_make_no_exchange_but_a_head_whose_bytes_were_not_seen_does() {
    let silent = [(true, (0, 0), (10, 20)), (false, (0, 0), (30, 40))];
    let found = exchanges_of(7, &silent, &[]);
    assert!(found.exchanges.is_empty() && found.streams.is_empty() && found.said.is_empty());
    assert_eq!(found.hop_exchange, [NO_PLACE; 2]);
    let found = exchanges_of(7, &silent, &[(true, 0, 1, 0, -1)]);
    assert_eq!(found.exchanges.len(), 1);
    assert_eq!(found.hop_exchange, [0; 2]);
}

#[test]
fn heads_split_what_turns_cannot_and_a_transfer_belongs_where_it_begins() {
    let transfers = [
        (true, (0, 200), (10, 20)),
        (false, (0, 30), (40, 50)),
        (false, (30, 50), (41, 51)),
    ];
    let lines = [
        (true, 0, 1, 0, -1),
        (true, 100, 1, 0, -1),
        (false, 0, 2, 200, -1),
        (false, 30, 2, 404, -1),
    ];
    let built = exchanges_of(1, &transfers, &lines);
    let rows: Vec<_> = built
        .exchanges
        .iter()
        .map(|one| (one.request_row, one.response_row, one.request.bytes))
        .collect();
    assert_eq!(rows, [(0, 2, 100), (1, 3, 100)]);
    assert_eq!(built.hop_exchange, [0, 0, 1]);
}

#[test]
fn what_is_inside_a_declared_body_is_no_head() {
    let transfers = [(true, (0, 10), (10, 20)), (false, (0, 200), (40, 50))];
    let lines = [(true, 0, 1, 0, -1), (false, 0, 2, 200, 190), (false, 100, 2, 500, 0)];
    let built = exchanges_of(1, &transfers, &lines);
    assert_eq!(
        built.exchanges.iter().map(|one| one.response_row).collect::<Vec<_>>(),
        [1]
    );
}

#[test]
#[cfg_attr(miri, ignore = "too many steps")]
fn hostile_lengths_and_many_answers_to_nothing_stay_cheap() {
    let count = 200_000;
    let transfers: Vec<Transfer> = (0..count)
        .map(|number| {
            (
                number % 2 == 0,
                (number / 2 * 10, number / 2 * 10 + 10),
                (number * 10, number * 10 + 5),
            )
        })
        .collect();
    let lines: Vec<HeadLine> = (0..count)
        .map(|number| {
            (
                number % 3 == 0,
                number / 2 * 10,
                1 + u8::from(number % 3 != 0),
                100 + (number % 2) as u16,
                i64::MAX,
            )
        })
        .collect();
    let started = Instant::now();
    exchanges_of(1, &transfers, &lines);
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "linear, even in a debug build"
    );
}

const FIN: u8 = 4;
const RST: u8 = 5;
const SERVER_FIN: (Transfer, u8) = ((false, (60, 60), (90_000_000, 90_000_050)), FIN);

/// An answer of 60 bytes and what closes the connection: bytes of the answer, when its end was sent and received, for
/// how long the server had nothing to send, and whether the end was the server's FIN.
fn end_of_answer(lines: &[HeadLine], ends_with_connection: &[(Transfer, u8)]) -> (i64, (i64, i64), i64, bool) {
    let asked = [
        ((true, (0, 20), (10, 20)), DATA),
        ((false, (0, 60), (40_000, 40_050)), DATA),
    ];
    let (transfers, kinds): (Vec<Transfer>, Vec<u8>) = asked.iter().chain(ends_with_connection).copied().unzip();
    let built = built_of(1, &transfers, &kinds, lines, &NO_PAUSES);
    let one = built.exchanges[0];
    let ended = (one.response.last_sent_ns, one.response.last_received_ns);
    (
        one.response.bytes,
        ended,
        built.rare.of(&one).response_silent.source_ns,
        one.until_close,
    )
}

#[test]
fn an_answer_without_a_length_ends_with_the_servers_fin() {
    let asked = (true, 0, 1, 0, -1);
    let no_length = [asked, (false, 0, 2, 200, -1)];
    let at_fin = (60, SERVER_FIN.0.2, 90_000_000 - 40_050, true);
    let at_last_byte = (60, (40_000, 40_050), 0, false);
    let client = |kind: u8, at: i64| ((true, (20, 20), (at, at + 50)), kind);
    assert_eq!(end_of_answer(&no_length, &[SERVER_FIN]), at_fin);
    assert_eq!(
        end_of_answer(&no_length, &[SERVER_FIN, client(FIN, 90_000_060)]),
        at_fin
    );
    assert_eq!(
        end_of_answer(&no_length, &[client(FIN, 30), SERVER_FIN]),
        at_fin,
        "a half-close"
    );
    let again = ((false, (60, 60), (95_000_000, 95_000_050)), FIN);
    assert_eq!(end_of_answer(&no_length, &[SERVER_FIN, again]), at_fin, "sent again");
    assert_eq!(end_of_answer(&no_length, &[]), at_last_byte);
    let reset = ((false, (60, 60), (90_000_000, 90_000_050)), RST);
    assert_eq!(end_of_answer(&no_length, &[reset]), at_last_byte);
    for left in [client(FIN, 80_000_000), client(RST, 80_000_000)] {
        assert_eq!(
            end_of_answer(&no_length, &[left, SERVER_FIN]),
            at_last_byte,
            "its client left"
        );
    }
    for status in [204, 304] {
        assert_eq!(
            end_of_answer(&[asked, (false, 0, 2, status, -1)], &[SERVER_FIN]),
            at_last_byte
        );
    }
    assert_eq!(
        end_of_answer(&[asked, (false, 0, 2, 200, 50)], &[SERVER_FIN]),
        at_last_byte
    );
    let missing = ((false, (70, 70), (90_000_000, 90_000_050)), FIN);
    assert_eq!(
        end_of_answer(&no_length, &[missing]),
        at_last_byte,
        "bytes before it were not seen"
    );
}

fn transfers() -> impl Strategy<Value = Vec<Transfer>> {
    let time = prop_oneof![8 => (0i64..1000).boxed(), 1 => Just(UNSEEN).boxed()];
    let one = (any::<bool>(), 0i64..300, 0i64..60, time.clone(), time);
    let transfer = one.prop_map(|(from_client, start, len, sent, received)| {
        (
            from_client,
            (start, start + len),
            (if received == UNSEEN { sent.max(0) } else { sent }, received),
        )
    });
    prop::collection::vec(transfer, 0..40)
}

fn lines() -> impl Strategy<Value = Vec<HeadLine>> {
    let status = prop_oneof![Just(100u16), Just(101), Just(102), Just(200), Just(204), Just(500)];
    prop::collection::vec((any::<bool>(), 0i64..300, 1u8..3, status, -1i64..200), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
    #[test]
    fn whatever_comes_times_are_in_order_and_hops_have_an_exchange_of_theirs(hops in transfers(), heads in lines()) {
        let found = exchanges_of(5, &hops, &heads);
        prop_assert!(found.exchanges.iter().all(|one| one.connection == 0));
        for (hop, exchange) in hops.iter().zip(&found.hop_exchange) {
            prop_assert!(*exchange == NO_PLACE || (*exchange as usize) < found.exchanges.len());
            prop_assert!(hop.1.1 > hop.1.0 || *exchange != NO_PLACE || found.exchanges.is_empty());
        }
        for part in found.exchanges.iter().flat_map(|one| [one.request, one.response]) {
            prop_assert!(part.bytes == UNSEEN || part.bytes >= 0);
            prop_assert!(part.last_received_ns == UNSEEN || part.last_received_ns >= part.first_received_ns);
        }
    }
}

#[test]
fn a_reset_of_the_client_on_an_open_question_gives_it_up() {
    let hops = Hops {
        connection_id: &[1, 1],
        kind: &[DATA, kind::RST],
        from_client: &[true, true],
        stream_start: &[0, 9],
        stream_end: &[9, 9],
        sent_ns: &[10, 500],
        received_ns: &[20, 510],
        uncertainty_ns: &[1, 1],
        likely_error_ns: &[1, 1],
    };
    let no_texts = Texts {
        offsets: &[0],
        bytes: &[],
    };
    let none = Heads {
        connection_id: &[],
        from_client: &[],
        stream_offset: &[],
        head_kind: &[],
        flags: &[],
        head_len: &[],
        content_length: &[],
        status: &[],
        result_code: &[],
        frame_kind: &[],
        stream_id: &[],
        method: no_texts,
        target: no_texts,
        id: no_texts,
    };
    let built = build(
        &hops,
        &none,
        &Connections {
            connection_id: &[1],
            handshake: &[true],
        },
        &NO_PAUSES,
        &Crossings::default(),
    );
    assert_eq!(built.exchanges[0].given_up_ns, 500);
    assert!(!built.exchanges[0].complete);
}

/// Silences of the only exchange of a connection: in its response, from, to, cause.
fn silences_of(transfers: &[Transfer]) -> Vec<(bool, i64, i64, Cause)> {
    let built = exchanges_of(7, transfers, &[]);
    let row = |one: &Silence| (one.in_response, one.from_ns, one.to_ns, one.cause);
    built.silences.iter().map(row).collect()
}

const MS: i64 = 1_000_000;

#[test]
fn a_server_that_sends_now_and_then_has_nothing_to_send_in_between() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 50), (5 * MS, 5 * MS + 10)),
        (true, (100, 100), (5 * MS + 20, 5 * MS + 30)), // an acknowledgement
        (false, (50, 100), (9 * MS, 9 * MS + 10)),
    ];
    assert_eq!(silences_of(&transfers), [(true, 5 * MS + 10, 9 * MS, Cause::Source)]);
    let built = exchanges_of(7, &transfers, &[]);
    assert_eq!(
        built.rare.of(&built.exchanges[0]).response_silent.source_ns,
        4 * MS - 10
    );
    assert!(built.rare.of(&built.exchanges[0]).request_silent.is_none());
}

#[test]
fn what_is_lost_is_on_the_way_until_its_copy_arrives() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 50), (5 * MS, 5 * MS + 10)),
        (false, (50, 100), (5 * MS, UNSEEN)),
        (false, (50, 100), (300 * MS, 300 * MS + 10)),
        (false, (100, 150), (300 * MS + 40_000, 300 * MS + 40_010)),
    ];
    assert_eq!(silences_of(&transfers), []);
}

#[test]
fn a_copy_of_what_had_arrived_ends_no_silence() {
    let transfers = [
        (true, (0, 2_000), (10, 20)),
        (true, (1_856, 2_000), (7 * MS, 7 * MS + 10)), // a tail loss probe at a closed window
        (true, (2_000, 4_000), (40 * MS, 40 * MS + 10)),
        (false, (0, 50), (45 * MS, 45 * MS + 10)),
    ];
    let pauses = Pauses {
        connection_id: &[7],
        from_client: &[true],
        stream_offset: &[2_000],
        is_reader: &[true],
    };
    let built = built_with(7, &transfers, &[], &pauses);
    let found: Vec<_> = built
        .silences
        .iter()
        .map(|one| (one.from_ns, one.to_ns, one.cause))
        .collect();
    assert_eq!(found, [(20, 40 * MS, Cause::Reader)]);
    assert_eq!(built.rare.of(&built.exchanges[0]).request_silent.source_ns, 0);
}

#[test]
fn what_clocks_leave_open_is_no_silence() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 50), (5 * MS, 5 * MS + 10)),
        (false, (50, 100), (9 * MS, 9 * MS + 10)),
    ];
    let in_doubt = |doubt_ns: i64| {
        let built = built_in_doubt(7, &transfers, &[DATA; 3], &[], &NO_PAUSES, doubt_ns);
        (
            built.silences.len(),
            built.rare.of(&built.exchanges[0]).response_silent.is_none(),
        )
    };
    assert_eq!(in_doubt(MS), (1, false));
    assert_eq!(in_doubt(2 * MS), (0, true)); // 4 ms less 10 ns, and both ends are uncertain
}

#[test]
fn what_was_overtaken_is_still_on_its_way() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 50), (MS, 9 * MS)),
        (false, (50, 100), (MS + 100, 2 * MS)),
        (false, (100, 150), (5 * MS, 5 * MS + 10)),
    ];
    assert_eq!(silences_of(&transfers), []);
}

#[test]
fn silences_are_found_in_the_order_of_time_where_a_first_sending_was_missed() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (50, 100), (MS, MS + 10)),
        (false, (100, 150), (5 * MS, 5 * MS + 10)),
        (false, (0, 50), (9 * MS, 9 * MS + 10)), // a copy: the first was not captured
    ];
    let found = silences_of(&transfers);
    assert_eq!(
        found,
        [
            (true, MS + 10, 5 * MS, Cause::Source),
            (true, 5 * MS + 10, 9 * MS, Cause::Source)
        ]
    );
}

#[test]
fn a_long_silence_that_no_pause_explains_is_the_applications() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 2_000), (MS, MS + 10)),
        (true, (100, 100), (MS + 20, 5 * MS - 100_000)), // an acknowledgement, right before
        (false, (2_000, 4_000), (5 * MS, 5 * MS + 10)),
    ];
    assert_eq!(silences_of(&transfers), [(true, MS + 10, 5 * MS, Cause::Source)]);
}

#[test]
fn where_an_arrival_was_not_seen_nothing_is_called_silence() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 50), (5 * MS, UNSEEN)),
        (false, (50, 100), (9 * MS, 9 * MS + 10)),
    ];
    assert_eq!(silences_of(&transfers), []);
}

#[test]
fn where_the_receiver_was_not_captured_bytes_have_arrived_when_the_sender_hears_so() {
    let uploads = |heard_ns: i64, again: (i64, i64)| {
        silences_of(&[
            (true, (0, 2_000), (10, UNSEEN)),
            (false, (0, 0), (UNSEEN, heard_ns)), // an acknowledgement
            (true, again, (9 * MS, UNSEEN)),
            (false, (0, 50), (UNSEEN, 20 * MS)),
        ])
    };
    assert_eq!(
        uploads(2 * MS, (2_000, 4_000)),
        [(false, 2 * MS, 9 * MS, Cause::Source)],
        "the client had nothing to send"
    );
    assert_eq!(
        uploads(9 * MS - 1_000, (2_000, 4_000)),
        [],
        "it waited for the acknowledgement"
    );
    assert_eq!(uploads(2 * MS, (0, 2_000)), [], "the same bytes again: they were lost");
    assert_eq!(uploads(UNSEEN, (2_000, 4_000)), [], "it heard none");
}

#[test]
fn short_silences_behind_an_acknowledgement_are_held_if_a_full_segment_follows() {
    let silent = |bytes: i64| {
        let transfers = [
            (true, (0, 100), (10, 20)),
            (false, (0, 2_000), (MS, MS + 10)),
            (true, (100, 100), (MS + 20, MS + 200_000)),
            (false, (2_000, 2_000 + bytes), (MS + 250_000, MS + 250_010)),
        ];
        let built = exchanges_of(7, &transfers, &[]);
        built.rare.of(&built.exchanges[0]).response_silent
    };
    assert_eq!((silent(2_000).held_ns, silent(2_000).source_ns), (249_990, 0));
    assert_eq!((silent(500).held_ns, silent(500).source_ns), (0, 249_990));
}

#[test]
fn a_pause_says_what_held_the_sender() {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 2_000), (MS, MS + 10)),
        (false, (2_000, 4_000), (5 * MS, 5 * MS + 10)),
        (false, (4_000, 6_000), (9 * MS, 9 * MS + 10)),
    ];
    let pauses = Pauses {
        connection_id: &[7, 7],
        from_client: &[false, false],
        stream_offset: &[2_000, 4_000],
        is_reader: &[true, false],
    };
    let built = built_with(7, &transfers, &[], &pauses);
    let causes: Vec<Cause> = built.silences.iter().map(|one| one.cause).collect();
    assert_eq!(causes, [Cause::Reader, Cause::Held]);
}

#[test]
fn a_client_asked_for_its_body_is_not_silent_until_then() {
    let transfers = [
        (true, (0, 10), (10, 20)),
        (false, (0, 10), (5 * MS, 5 * MS + 10)), // 100 Continue
        (true, (10, 50), (6 * MS, 6 * MS + 10)),
        (true, (50, 90), (9 * MS, 9 * MS + 10)),
        (false, (10, 20), (10 * MS, 10 * MS + 10)),
    ];
    let lines = [(true, 0, 1, 0, 80), (false, 0, 2, 100, -1), (false, 10, 2, 201, 0)];
    let built = exchanges_of(7, &transfers, &lines);
    assert_eq!(built.rare.of(&built.exchanges[0]).request_silent.source_ns, 3 * MS - 10);
}

/// How many exchanges a connection has whose client says something at 400 and closes it at `closed_ns`.
fn exchanges_closed_at(closed_ns: i64) -> usize {
    let transfers = [
        (true, (0, 100), (10, 20)),
        (false, (0, 50), (120, 130)),
        (true, (100, 105), (400, 410)),
        (true, (105, 105), (closed_ns, closed_ns + 10)),
    ];
    let kinds = [DATA, DATA, DATA, kind::FIN];
    built_of(7, &transfers, &kinds, &[], &NO_PAUSES).exchanges.len()
}

#[test]
fn what_is_said_right_before_closing_is_no_request() {
    assert_eq!(exchanges_closed_at(450), 1);
    assert_eq!(exchanges_closed_at(600), 2); // it waited longer than for the answer before
}
