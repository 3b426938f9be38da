//! Packets in, hops out: small scripts of what two hosts captured, and an oracle that goes byte by byte.

use std::collections::BTreeMap;

use proptest::prelude::*;
use twintap_matching::{Events, Kind, MatchResult, NO_EVENT, State, match_events};

const CLIENT: u16 = 0;
const SERVER: u16 = 1;
const FIN: u16 = 0x01;
const SYN: u16 = 0x02;
const RST: u16 = 0x04;
const ACK: u16 = 0x10;

/// One captured packet. `to_server` says who sent it; `host` who captured it.
#[derive(Clone, Copy, Debug)]
struct Packet {
    host: u16,
    to_server: bool,
    at: i64,
    seq: u32,
    len: u32,
    ack: u32,
    flags: u16,
    ip_id: i32,
    tsval: Option<u32>,
    window: u16,
    /// 255 if the packet has no such option.
    scale: u8,
    point: u16,
    /// (client address, client port, server address, server port) as this host knows them.
    tuple: (u32, u16, u32, u16),
}

fn packet(host: u16, to_server: bool, at: i64, seq: u32, len: u32) -> Packet {
    Packet {
        host,
        to_server,
        at,
        seq,
        len,
        ack: 0,
        flags: ACK,
        ip_id: -1,
        tsval: None,
        window: 100,
        scale: 255,
        point: 0,
        tuple: (0, 40000, 1, 80),
    }
}

impl Packet {
    fn flags(self, flags: u16) -> Self {
        Self { flags, ..self }
    }
    fn ack(self, ack: u32) -> Self {
        Self { ack, ..self }
    }
    fn id(self, ip_id: i32) -> Self {
        Self { ip_id, ..self }
    }
    fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }
    fn scale(self, scale: u8) -> Self {
        Self { scale, ..self }
    }
    fn ts(self, tsval: u32) -> Self {
        Self {
            tsval: Some(tsval),
            ..self
        }
    }
}

/// Sent by the client and captured there.
fn client_send(at: i64, seq: u32, len: u32) -> Packet {
    packet(CLIENT, true, at, seq, len)
}

/// The client's packet, captured at the server.
fn server_receive(at: i64, seq: u32, len: u32) -> Packet {
    packet(SERVER, true, at, seq, len)
}

fn run(packets: &[Packet]) -> MatchResult {
    run_with(packets, &[CLIENT, SERVER])
}

fn run_with(packets: &[Packet], host_of_address: &[u16]) -> MatchResult {
    run_knowing(packets, host_of_address, &[])
}

fn run_knowing(packets: &[Packet], host_of_address: &[u16], servers: &[(u32, u16)]) -> MatchResult {
    let column = |get: fn(&Packet) -> u32| packets.iter().map(get).collect::<Vec<u32>>();
    let small = |get: fn(&Packet) -> u16| packets.iter().map(get).collect::<Vec<u16>>();
    let direction: Vec<u8> = packets
        .iter()
        .map(|p| if (p.host == CLIENT) == p.to_server { 2 } else { 1 })
        .collect();
    let events = Events {
        host: &small(|p| p.host),
        point: &small(|p| p.point),
        host_ns: &packets.iter().map(|p| p.at).collect::<Vec<_>>(),
        direction: &direction,
        src_addr: &column(|p| if p.to_server { p.tuple.0 } else { p.tuple.2 }),
        dst_addr: &column(|p| if p.to_server { p.tuple.2 } else { p.tuple.0 }),
        src_port: &small(|p| if p.to_server { p.tuple.1 } else { p.tuple.3 }),
        dst_port: &small(|p| if p.to_server { p.tuple.3 } else { p.tuple.1 }),
        seq: &column(|p| p.seq),
        ack: &column(|p| p.ack),
        flags: &small(|p| p.flags),
        window: &small(|p| p.window),
        payload_len: &column(|p| p.len),
        ip_id: &packets.iter().map(|p| p.ip_id).collect::<Vec<_>>(),
        tsval: &column(|p| p.tsval.unwrap_or(0)),
        tsecr: &column(|_| 0),
        options: &packets.iter().map(|p| u8::from(p.tsval.is_some())).collect::<Vec<_>>(),
        mss: &small(|_| 0),
        window_scale: &packets.iter().map(|p| p.scale).collect::<Vec<_>>(),
        sack_hash: &column(|_| 0),
        host_of_address,
        servers,
    };
    match_events(&events, 0, &[])
}

type Row = (Kind, Option<usize>, Option<usize>, i64, i64, u16, State);

/// Rows as (kind, send, receive, start, end, attempt, state), sorted.
fn rows(matched: &MatchResult) -> Vec<Row> {
    let kinds = [
        Kind::Syn,
        Kind::SynAck,
        Kind::Data,
        Kind::Ack,
        Kind::Fin,
        Kind::Rst,
        Kind::Keepalive,
        Kind::WindowProbe,
    ];
    let states = [
        State::Matched,
        State::Lost,
        State::CaptureDropped,
        State::OutsideWindow,
        State::Ambiguous,
        State::Unmatched,
    ];
    let hops = &matched.hops;
    let event = |e: u32| (e != NO_EVENT).then_some(e as usize);
    let mut rows: Vec<Row> = (0..hops.kind.len())
        .map(|i| {
            (
                kinds[hops.kind[i] as usize],
                event(hops.send_event[i]),
                event(hops.receive_event[i]),
                hops.stream_start[i],
                hops.stream_end[i],
                hops.attempt[i],
                states[hops.state[i] as usize],
            )
        })
        .collect();
    rows.sort_by_key(|row| (row.1.unwrap_or(usize::MAX), row.2, row.3));
    rows
}

fn data(send: usize, receive: usize, start: i64, end: i64, attempt: u16) -> Row {
    (
        Kind::Data,
        Some(send),
        Some(receive),
        start,
        end,
        attempt,
        State::Matched,
    )
}

#[test]
fn a_super_segment_goes_to_several_receives() {
    let matched = run(&[
        client_send(10, 1, 4344),
        server_receive(20, 1, 2896),
        server_receive(21, 2897, 1448),
    ]);
    assert_eq!(rows(&matched), [data(0, 1, 0, 2896, 1), data(0, 2, 2896, 4344, 1)]);
}

#[test]
fn boundaries_that_agree_nowhere() {
    let matched = run(&[
        client_send(10, 1, 300),
        client_send(11, 301, 300),
        server_receive(20, 1, 200),
        server_receive(21, 201, 400),
    ]);
    assert_eq!(
        rows(&matched),
        [data(0, 2, 0, 200, 1), data(0, 3, 200, 300, 1), data(1, 3, 300, 600, 1)]
    );
}

#[test]
fn a_retransmission_is_recognised_by_its_timestamp() {
    let matched = run(&[
        client_send(10, 1, 100).ts(5),
        client_send(300, 1, 100).ts(9),
        server_receive(310, 1, 100).ts(9),
    ]);
    let lost = (Kind::Data, Some(0), None, 0, 100, 1, State::Lost);
    assert_eq!(rows(&matched), [lost, data(1, 2, 0, 100, 2)]);
}

#[test]
fn a_lone_copy_is_not_paired_with_what_arrived_of_another() {
    // The sender's capture missed the first copy, the receiver's the second: one of each is left, of the same bytes.
    let matched = run(&[
        client_send(10, 1, 100).ts(5),
        server_receive(20, 1, 100).ts(5),
        server_receive(31, 101, 100).ts(6),
        client_send(300, 101, 100).ts(9),
    ]);
    let copy = (Kind::Data, Some(3), None, 100, 200, 1, State::Lost);
    let missed = (Kind::Data, None, Some(2), 100, 200, 1, State::CaptureDropped);
    assert_eq!(rows(&matched), [data(0, 1, 0, 100, 1), copy, missed]);
}

#[test]
fn timestamps_that_are_rewritten_on_the_way_are_no_evidence() {
    let matched = run(&[
        client_send(10, 1, 100).ts(5),
        client_send(11, 101, 100).ts(5),
        server_receive(20, 1, 100).ts(77_005),
        server_receive(21, 101, 100).ts(77_005),
    ]);
    assert_eq!(rows(&matched), [data(0, 2, 0, 100, 1), data(1, 3, 100, 200, 1)]);
}

#[test]
fn a_retransmission_is_recognised_by_its_ip_id_where_the_flow_keeps_it() {
    let matched = run(&[
        client_send(1, 1, 100).id(7),
        client_send(2, 101, 100).id(8),
        client_send(3, 101, 100).id(9),
        server_receive(4, 1, 100).id(7),
        server_receive(5, 101, 100).id(9),
    ]);
    let lost = (Kind::Data, Some(1), None, 100, 200, 1, State::Lost);
    assert_eq!(rows(&matched), [data(0, 3, 0, 100, 1), lost, data(2, 4, 100, 200, 2)]);
}

#[test]
fn what_arrived_before_the_second_copy_left_is_the_first() {
    // The server's packet took -990 by the two clocks, so the server's clock is ahead by at least 990 ... by causality
    // a packet of the client takes at least 990: received at 1500, it was sent at 510 at the latest.
    let answer = |host, at| packet(host, false, at, 9000, 0).ack(1);
    let matched = run(&[
        answer(SERVER, 1000),
        answer(CLIENT, 10),
        client_send(100, 1, 100),
        client_send(600, 1, 100),
        server_receive(1500, 1, 100),
    ]);
    let lost = (Kind::Data, Some(3), None, 0, 100, 2, State::Lost);
    assert_eq!(rows(&matched)[1..], [data(2, 4, 0, 100, 1), lost]);
}

#[test]
fn copies_that_nothing_distinguishes_are_ambiguous() {
    let matched = run(&[
        client_send(10, 1, 100),
        client_send(11, 1, 100),
        server_receive(30, 1, 100),
    ]);
    let states: Vec<State> = rows(&matched).iter().map(|row| row.6).collect();
    assert_eq!(states, [State::Ambiguous; 3]);
}

#[test]
fn loss_behind_the_tap_leaves_both_copies_in_order() {
    let matched = run(&[
        client_send(10, 1, 100),
        client_send(300, 1, 100),
        server_receive(20, 1, 100),
        server_receive(310, 1, 100),
    ]);
    assert_eq!(rows(&matched), [data(0, 2, 0, 100, 1), data(1, 3, 0, 100, 2)]);
}

#[test]
fn one_packet_of_a_super_segment_lost() {
    let matched = run(&[
        client_send(10, 1, 3000).ts(1),
        client_send(20, 1001, 1000).ts(2),
        server_receive(15, 1, 1000).ts(1),
        server_receive(16, 2001, 1000).ts(1),
        server_receive(25, 1001, 1000).ts(2),
    ]);
    let lost = (Kind::Data, Some(0), None, 1000, 2000, 1, State::Lost);
    assert_eq!(
        rows(&matched),
        [
            lost,
            data(0, 2, 0, 1000, 1),
            data(0, 3, 2000, 3000, 1),
            data(1, 4, 1000, 2000, 2)
        ]
    );
}

#[test]
fn acknowledged_but_unseen_is_the_captures_fault() {
    let ack = |host, at| packet(host, false, at, 9000, 0).ack(101);
    let matched = run(&[
        client_send(10, 1, 100),
        ack(SERVER, 20),
        ack(CLIENT, 30),
        server_receive(99, 501, 1),
    ]);
    let dropped = (Kind::Data, Some(0), None, 0, 100, 1, State::CaptureDropped);
    assert!(rows(&matched).contains(&dropped));
    let late = rows(&matched)
        .into_iter()
        .find(|row| row.2 == Some(3))
        .expect("the lone receive");
    assert_eq!(late.6, State::CaptureDropped);
}

#[test]
fn the_handshake_begins_the_stream_at_minus_one() {
    let syn = |host, at| packet(host, true, at, 999, 0).flags(SYN);
    let matched = run(&[
        syn(CLIENT, 1),
        syn(SERVER, 2),
        client_send(3, 1000, 5),
        server_receive(4, 1000, 5),
    ]);
    assert_eq!(
        rows(&matched),
        [
            (Kind::Syn, Some(0), Some(1), -1, -1, 1, State::Matched),
            data(2, 3, 0, 5, 1)
        ]
    );
    assert_eq!(matched.connections.client_isn, [999]);
}

#[test]
fn sequence_numbers_wrap() {
    let start = u32::MAX - 99;
    let matched = run(&[
        client_send(1, start, 100),
        client_send(2, 0, 100),
        server_receive(3, start, 200),
    ]);
    assert_eq!(rows(&matched), [data(0, 2, 0, 100, 1), data(1, 2, 100, 200, 1)]);
}

#[test]
fn a_stream_longer_than_the_sequence_space_goes_on_counting() {
    let step = 1_u32 << 29;
    let both: Vec<Packet> = (0..20_u32)
        .flat_map(|n| {
            let seq = n.wrapping_mul(step).wrapping_add(1);
            [
                client_send(i64::from(n) * 10, seq, 10),
                server_receive(i64::from(n) * 10 + 5, seq, 10),
            ]
        })
        .collect();
    let last = rows(&run(&both)).last().copied().expect("twenty hops");
    assert_eq!(last, data(38, 39, 19 << 29, (19 << 29) + 10, 1));
}

#[test]
fn timestamps_show_how_often_numbers_wrapped_before_a_capture_joined() {
    let step = 1_u32 << 29;
    let syn = packet(CLIENT, true, 0, 0, 0).flags(SYN).ts(1);
    let both = (0..20_u32).flat_map(|n| {
        let (at, seq) = (i64::from(n) * 10 + 1, n.wrapping_mul(step).wrapping_add(1));
        let late = (n >= 13).then(|| server_receive(at + 5, seq, 10).ts(n + 2));
        [Some(client_send(at, seq, 10).ts(n + 2)), late]
    });
    let script: Vec<Packet> = [syn].into_iter().chain(both.flatten()).collect();
    let matched = rows(&run(&script));
    let pairs: Vec<Row> = matched.into_iter().filter(|row| row.6 == State::Matched).collect();
    assert_eq!(pairs.len(), 7);
    assert_eq!(pairs[0], data(14, 15, 13 << 29, (13 << 29) + 10, 1));
}

#[test]
fn a_reused_four_tuple_is_a_new_connection() {
    let syn = |host, at, isn| packet(host, true, at, isn, 0).flags(SYN);
    let fin = |host, at, seq| packet(host, true, at, seq, 0).flags(FIN | ACK);
    let mut script = Vec::new();
    for (host, delay) in [(CLIENT, 0), (SERVER, 5)] {
        for (begin, isn) in [(0, 100), (1000, 50_000)] {
            script.push(syn(host, begin + delay, isn));
            script.push(packet(host, true, begin + 10 + delay, isn + 1, 10));
            script.push(fin(host, begin + 20 + delay, isn + 11));
        }
    }
    let matched = run(&script);
    assert_eq!(matched.connections.client_isn, [100, 50_000]);
    assert!(rows(&matched).iter().all(|row| row.6 == State::Matched));
    assert_eq!(matched.event_connection, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn a_capture_without_the_handshake_joins_by_its_sequence_numbers() {
    let syn = packet(CLIENT, true, 0, 100, 0).flags(SYN);
    let matched = run(&[syn, client_send(10, 101, 10), server_receive(15, 101, 10)]);
    assert_eq!(matched.connections.client_isn, [100]);
    assert!(rows(&matched).contains(&data(1, 2, 0, 10, 1)));
}

#[test]
fn equal_acks_reordered_are_distinguished_by_ip_id() {
    let ack = |host, at, id| packet(host, true, at, 500, 0).id(id);
    let matched = run(&[
        client_send(0, 499, 1).id(3),
        server_receive(1, 499, 1).id(3),
        ack(CLIENT, 10, 7),
        ack(CLIENT, 11, 8),
        packet(CLIENT, true, 12, 500, 0).ack(9).id(20),
        ack(SERVER, 20, 8),
        ack(SERVER, 21, 7),
        packet(SERVER, true, 22, 500, 0).ack(9).id(20),
    ]);
    let pairs: BTreeMap<_, _> = rows(&matched).iter().map(|row| (row.1, row.2)).collect();
    assert_eq!((pairs[&Some(2)], pairs[&Some(3)]), (Some(6), Some(5)));
}

#[test]
fn probes_have_their_own_kind() {
    let probe = |host, at| packet(host, true, at, 100, 0);
    let keepalive = run(&[
        client_send(1, 1, 100),
        server_receive(2, 1, 100),
        probe(CLIENT, 50),
        probe(SERVER, 60),
    ]);
    assert_eq!(rows(&keepalive)[1].0, Kind::Keepalive);
    let shut = |host, at| Packet {
        window: 0,
        ..packet(host, false, at, 7, 0).ack(101)
    };
    let window_probe = run(&[
        client_send(1, 1, 100),
        server_receive(2, 1, 100),
        shut(SERVER, 3),
        shut(CLIENT, 4),
        probe(CLIENT, 50),
        probe(SERVER, 60),
    ]);
    assert!(
        rows(&window_probe)
            .iter()
            .any(|row| row.0 == Kind::WindowProbe && row.6 == State::Matched)
    );
}

/// The server's packet as the client's capture has it: an acknowledgement with a window.
fn ack_at_client(at: i64, ack: u32, window: u16) -> Packet {
    packet(CLIENT, false, at, 901, 0).ack(ack).window(window)
}

/// (offset, stopped, released, resumed, window left, closed) of each pause.
fn pauses(packets: &[Packet]) -> Vec<(i64, i64, i64, i64, Option<i64>, bool)> {
    let handshake = [
        client_send(0, 99, 0).flags(SYN).scale(1),
        packet(CLIENT, false, 50_000, 900, 0)
            .ack(100)
            .flags(SYN | ACK)
            .scale(1)
            .window(500),
        client_send(60_000, 100, 0).ack(901),
    ];
    let matched = run(&[&handshake, packets].concat());
    let of = |p: &twintap_matching::Pause| {
        let times = (p.stopped_ns, p.released_ns, p.resumed_ns);
        (
            p.stream_offset,
            times.0,
            times.1,
            times.2,
            p.room_bytes,
            p.window_closed,
        )
    };
    matched.pauses.pauses.iter().map(of).collect()
}

const MS: i64 = 1_000_000;

#[test]
fn a_sender_that_goes_on_as_soon_as_it_may_had_paused() {
    let waits = [
        client_send(MS, 100, 100),
        ack_at_client(41 * MS, 200, 500),
        client_send(41 * MS + 10_000, 200, 50),
    ];
    let (stopped, released) = (MS, 41 * MS);
    assert_eq!(
        pauses(&waits),
        [(100, stopped, released, released + 10_000, Some(400), false)]
    );
}

#[test]
fn the_handshake_gives_the_round_trip_time() {
    let matched = run(&[
        client_send(0, 99, 0).flags(SYN),
        packet(CLIENT, false, 50_000, 900, 0).ack(100).flags(SYN | ACK),
        client_send(MS, 100, 100),
        ack_at_client(41 * MS, 200, 500),
        client_send(41 * MS, 200, 50),
    ]);
    assert_eq!(matched.pauses.pauses[0].rtt_ns, Some(50_000));
}

#[test]
fn a_window_that_closes_and_opens() {
    let waits = [
        client_send(MS, 100, 500),
        ack_at_client(2 * MS, 600, 0),
        ack_at_client(90 * MS, 600, 400),
        client_send(90 * MS + 10_000, 600, 500),
    ];
    assert_eq!(pauses(&waits), [(500, MS, 90 * MS, 90 * MS + 10_000, Some(0), true)]);
}

#[test]
fn a_window_that_is_probed_and_never_opens() {
    let waits = [
        client_send(MS, 100, 500),
        ack_at_client(2 * MS, 600, 0),
        client_send(202 * MS, 599, 0),
        ack_at_client(202 * MS + 50_000, 600, 0),
    ];
    assert_eq!(
        pauses(&waits),
        [(500, MS, 202 * MS + 50_000, 202 * MS + 50_000, Some(0), true)]
    );
}

#[test]
fn a_copy_of_what_was_sent_does_not_hide_a_pause() {
    let copied = 20 * MS;
    let waits = [
        client_send(MS, 100, 1_000),     // all of the window
        client_send(copied, 1_000, 100), // a tail loss probe
        ack_at_client(copied + 500_000, 1_100, 500),
        client_send(copied + 510_000, 1_100, 500),
    ];
    let released = copied + 500_000;
    assert_eq!(
        pauses(&waits),
        [(1_000, copied, released, released + 10_000, Some(0), false)]
    );
}

/// Since when the window had no room, for each pause.
fn full_since(packets: &[Packet]) -> Vec<Option<i64>> {
    let with_handshake = [
        &[
            client_send(0, 99, 0).flags(SYN).scale(0),
            packet(CLIENT, false, 50_000, 900, 0)
                .ack(100)
                .flags(SYN | ACK)
                .scale(0)
                .window(1_000),
            client_send(60_000, 100, 0).ack(901),
        ],
        packets,
    ];
    let matched = run(&with_handshake.concat());
    matched.pauses.pauses.iter().map(|pause| pause.full_ns).collect()
}

#[test]
fn a_window_is_full_from_the_last_new_byte_whatever_is_sent_again() {
    let (filled, copied, opened) = (MS, 20 * MS, 90 * MS);
    let all = client_send(filled, 100, 1_000);
    let on_resume = client_send(opened + 10_000, 1_100, 500);
    let probed = [
        all,
        client_send(copied, 1_000, 100),
        ack_at_client(opened, 1_100, 500),
        on_resume,
    ];
    let closed = [
        all,
        ack_at_client(2 * MS, 1_100, 0),
        client_send(copied, 1_099, 1),
        ack_at_client(opened, 1_100, 500),
        on_resume,
    ];
    // Half of the window is left, until the peer takes it back.
    let taken_back = [
        client_send(filled, 100, 500),
        ack_at_client(5 * MS, 600, 0),
        ack_at_client(opened, 600, 500),
        client_send(opened + 10_000, 600, 500),
    ];
    let room = [
        client_send(filled, 100, 500),
        ack_at_client(opened, 600, 1_000),
        client_send(opened + 10_000, 600, 500),
    ];
    assert_eq!(full_since(&probed), [Some(filled)]);
    assert_eq!(full_since(&closed), [Some(filled)]);
    assert_eq!(full_since(&taken_back), [Some(5 * MS)]);
    assert_eq!(full_since(&room), [None]);
}

#[test]
fn what_is_no_pause() {
    let late_application = [
        client_send(MS, 100, 100),
        ack_at_client(41 * MS, 200, 500),
        client_send(43 * MS, 200, 50),
    ];
    let a_turn = [
        client_send(MS, 100, 100),
        packet(CLIENT, false, 41 * MS, 901, 20).ack(200),
        client_send(41 * MS + 10_000, 200, 50),
    ];
    let short = [
        client_send(MS, 100, 100),
        ack_at_client(MS + 900_000, 200, 500),
        client_send(MS + 910_000, 200, 50),
    ];
    let nothing_new_acknowledged = [
        client_send(MS, 100, 100),
        ack_at_client(2 * MS, 200, 500),
        ack_at_client(41 * MS, 200, 500),
        client_send(41 * MS + 10_000, 200, 50),
    ];
    let sent_again = [
        client_send(MS, 100, 100),
        ack_at_client(41 * MS, 150, 500),
        client_send(41 * MS + 10_000, 150, 50),
    ];
    for packets in [
        &late_application[..],
        &a_turn,
        &short,
        &nothing_new_acknowledged,
        &sent_again,
    ] {
        assert_eq!(pauses(packets), []);
    }
}

#[test]
fn a_reset_is_of_its_connection_whatever_its_number() {
    let rst = |host, at| packet(host, false, at, 0, 0).flags(RST);
    let matched = run(&[
        client_send(1, 1, 10),
        rst(CLIENT, 20),
        server_receive(2, 1, 10),
        rst(SERVER, 10),
    ]);
    assert_eq!(matched.connections.client_addr.len(), 1);
    assert!(rows(&matched).contains(&(Kind::Rst, Some(3), Some(1), 0, 0, 1, State::Matched)));
}

#[test]
fn a_host_without_a_capture() {
    let matched = run_with(&[client_send(1, 1, 10)], &[CLIENT]);
    assert_eq!(
        rows(&matched),
        [(Kind::Data, Some(0), None, 0, 10, 1, State::OutsideWindow)]
    );
}

#[test]
fn a_host_that_sees_a_packet_twice_sends_it_once() {
    let at_bridge = |packet: Packet, point| Packet { point, ..packet };
    let matched = run(&[
        at_bridge(client_send(10, 1, 3000), 1),
        at_bridge(client_send(11, 1, 1000), 2),
        at_bridge(client_send(12, 1001, 2000), 2),
        at_bridge(server_receive(20, 1, 3000), 1),
        at_bridge(server_receive(22, 1, 3000), 2),
    ]);
    assert_eq!(rows(&matched), [data(1, 3, 0, 1000, 1), data(2, 3, 1000, 3000, 1)]);
    assert_eq!(matched.duplicates, [0, 4]);
}

#[test]
fn a_host_on_the_way_makes_no_hop_of_its_own() {
    const ROUTER: u16 = 2;
    let on_the_way = |at| Packet {
        host: ROUTER,
        ..client_send(at, 1, 100)
    };
    let matched = run(&[
        client_send(10, 1, 100),
        server_receive(20, 1, 100),
        on_the_way(14),
        on_the_way(15),
    ]);
    assert_eq!(rows(&matched), [data(0, 1, 0, 100, 1)]);
    assert_eq!(matched.duplicates, [2, 3]);
}

/// A connection through a balancer: the server knows another 4-tuple, and sequence numbers less `shift`.
fn match_through_balancer(shift: u32, tsval: Option<u32>) -> MatchResult {
    let stamp = |p: Packet| Packet { tsval, ..p };
    let (client_isn, server_isn) = (5_000_u32, 9_000_u32);
    let mut script = Vec::new();
    for (host, delay, off, tuple) in [
        (CLIENT, 0, 0, (0, 40000, 7, 443)),
        (SERVER, 5, shift, (8, 1024, 1, 8080)),
    ] {
        let here = |p: Packet| stamp(Packet { tuple, ..p });
        let (c, s) = (client_isn.wrapping_sub(off), server_isn.wrapping_sub(off));
        script.push(here(packet(host, true, delay, c, 0).flags(SYN)));
        script.push(here(
            packet(host, false, 20 - delay, s, 0)
                .ack(c.wrapping_add(1))
                .flags(SYN | ACK),
        ));
        script.push(here(
            packet(host, true, 30 + delay, c.wrapping_add(1), 700).ack(s.wrapping_add(1)),
        ));
    }
    run_with(&script, &[CLIENT, SERVER])
}

#[test]
fn a_connection_through_a_balancer_is_one() {
    for matched in [
        match_through_balancer(0, None),
        match_through_balancer(0, Some(4)),
        match_through_balancer(123_456, Some(4)),
    ] {
        assert_eq!(matched.connections.client_addr, [0]);
        assert_eq!(matched.connections.server_addr, [7], "as the client knows it");
        let (row, inner) = matched.connections.translated[0];
        assert_eq!(
            (row, inner.client_addr, inner.server_addr, inner.server_port),
            (0, 8, 1, 8080)
        );
        let states: Vec<(Kind, State)> = rows(&matched).iter().map(|row| (row.0, row.6)).collect();
        let all = [Kind::Syn, Kind::Data, Kind::SynAck].map(|kind| (kind, State::Matched));
        assert_eq!(states, all);
    }
}

#[test]
fn shifted_numbers_without_timestamps_are_two_connections() {
    assert_eq!(match_through_balancer(123_456, None).connections.client_addr.len(), 2);
}

#[test]
fn what_only_a_second_point_saw_stays() {
    let elsewhere = Packet {
        point: 2,
        ..client_send(12, 101, 100)
    };
    let matched = run(&[
        client_send(10, 1, 100),
        client_send(11, 201, 100),
        elsewhere,
        server_receive(20, 1, 300),
    ]);
    assert!(rows(&matched).iter().all(|row| row.6 == State::Matched));
    assert_eq!(matched.duplicates, []);
}

/// Cut `total` bytes at `cuts` into (start, len) ranges.
fn cut(total: u32, cuts: &[u32]) -> Vec<(u32, u32)> {
    let mut at: Vec<u32> = cuts.iter().map(|c| c % total).chain([0, total]).collect();
    at.sort_unstable();
    at.dedup();
    at.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
}

proptest! {
    /// However the two ends cut the stream, every byte is in one hop, from the event that sent it to the one that
    /// received it.
    #[test]
    fn every_byte_has_its_hop(
        isn in any::<u32>(),
        total in 1_u32..2000,
        send_cuts in prop::collection::vec(any::<u32>(), 0..12),
        receive_cuts in prop::collection::vec(any::<u32>(), 0..12),
    ) {
        let (sends, receives) = (cut(total, &send_cuts), cut(total, &receive_cuts));
        let script: Vec<Packet> = (0_i64..)
            .zip(&sends)
            .map(|(at, &(start, len))| client_send(at, isn.wrapping_add(start), len))
            .chain((1000_i64..).zip(&receives).map(|(at, &(start, len))| server_receive(at, isn.wrapping_add(start), len)))
            .collect();
        let owner = |ranges: &[(u32, u32)], byte: u32| ranges.iter().position(|r| (r.0..r.0 + r.1).contains(&byte));
        let mut covered = 0;
        for row in rows(&run(&script)) {
            prop_assert_eq!(row.6, State::Matched);
            for byte in row.3..row.4 {
                let byte = u32::try_from(byte).expect("in the stream");
                prop_assert_eq!(row.1, owner(&sends, byte));
                prop_assert_eq!(row.2, owner(&receives, byte).map(|index| index + sends.len()));
                covered += 1;
            }
        }
        prop_assert_eq!(covered, total);
    }

    /// Any packets at all: no panic, every event is in some row or a duplicate, and a byte that was received is in one
    /// row only.
    #[test]
    fn anything_goes_in(
        packets in prop::collection::vec(
            (any::<bool>(), any::<bool>(), 0_i64..50, 0_u32..60, 0_u32..30, 0_u32..60, 0_u16..32, -1_i32..4, 0_u32..3),
            0..40,
        )
    ) {
        let script: Vec<Packet> = packets
            .iter()
            .map(|&(server, to_server, at, seq, len, ack, flags, id, ts)| {
                packet(u16::from(server), to_server, at, seq, len).flags(flags).ack(ack).id(id).ts(ts)
            })
            .collect();
        let matched = run(&script);
        let hops = &matched.hops;
        let mut bytes: BTreeMap<(u32, i64), u32> = BTreeMap::new();
        let mut seen = vec![false; script.len()];
        matched.duplicates.iter().for_each(|&event| seen[event as usize] = true);
        for i in 0..hops.kind.len() {
            for event in [hops.send_event[i], hops.receive_event[i]] {
                if event != NO_EVENT {
                    seen[event as usize] = true;
                }
            }
            if hops.receive_event[i] != NO_EVENT {
                for byte in hops.stream_start[i]..hops.stream_end[i] {
                    *bytes.entry((hops.receive_event[i], byte)).or_default() += 1;
                }
            }
        }
        prop_assert!(seen.iter().all(|&event| event), "an event is in no row and no duplicate");
        prop_assert!(bytes.values().all(|&count| count == 1), "a received byte is in two rows");
    }
}

/// Sender, offset and the other side's bytes on the way, of each crossing.
fn crossings(packets: &[Packet]) -> Vec<(bool, i64, i64, i64)> {
    let found = run(packets).crossings;
    let rows = found.from_client.iter().zip(&found.stream_offset);
    let crossed = found.crossed_start.iter().zip(&found.crossed_end);
    rows.zip(crossed)
        .map(|((&by, &at), (&start, &end))| (by, at, start, end))
        .collect()
}

/// A handshake at the client: its bytes begin at 100, the server's at 901.
fn after_handshake(packets: &[Packet]) -> Vec<Packet> {
    let handshake = [
        client_send(0, 99, 0).flags(SYN),
        packet(CLIENT, false, 50_000, 900, 0).ack(100).flags(SYN | ACK),
    ];
    [&handshake, packets].concat()
}

#[test]
fn what_acknowledges_all_that_was_sent_before_crosses_nothing() {
    let turns = [
        client_send(MS, 100, 50).ack(901),
        packet(CLIENT, false, 2 * MS, 901, 30).ack(150),
        client_send(3 * MS, 150, 50).ack(931),
        packet(CLIENT, false, 4 * MS, 931, 30).ack(200),
    ];
    assert_eq!(crossings(&after_handshake(&turns)), []);
}

#[test]
fn an_answer_that_left_before_the_next_request_came_crossed_it() {
    let pipelined = [
        client_send(MS, 100, 50).ack(901),
        client_send(MS + 1, 150, 50).ack(901),
        packet(CLIENT, false, 2 * MS, 901, 30).ack(150),
        packet(CLIENT, false, 3 * MS, 901, 30).ack(150), // again: nothing new
        packet(CLIENT, false, 4 * MS, 931, 30).ack(200),
    ];
    assert_eq!(crossings(&after_handshake(&pipelined)), [(false, 0, 50, 100)]);
}

#[test]
fn without_a_handshake_the_known_server_is_the_server() {
    // The gRPC server has a higher port than its client.
    let packets = [client_send(0, 100, 10), server_receive(5, 100, 10)].map(|one| Packet {
        tuple: (0, 40_000, 1, 50_051),
        ..one
    });
    let client = |servers: &[(u32, u16)]| {
        run_knowing(&packets, &[CLIENT, SERVER], servers)
            .connections
            .client_port[0]
    };
    assert_eq!(client(&[]), 50_051, "by the ports alone");
    assert_eq!(client(&[(1, 50_051)]), 40_000);
    assert_eq!(client(&[(0, 40_000)]), 50_051);
    assert_eq!(
        client(&[(0, 40_000), (1, 50_051)]),
        50_051,
        "both are known: by the ports"
    );
    assert_eq!(client(&[(1, 50_052), (2, 50_051)]), 50_051);
}
