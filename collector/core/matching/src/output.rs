//! The output of matching: one table of hops and one of connections, each as columns.

use rustc_hash::FxHashMap;
use twintap_columns::{output_table, row_table};

use crate::NO_EVENT;
use crate::connections::Incarnation;
use crate::event_subset::EventSubset;
use crate::packets::Packets;
use crate::translation::{FourTuple, Translation};

/// What a transfer carried. Python's `collector.trace.schema.HopKind` has the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Syn,
    SynAck,
    Data,
    Ack,
    Fin,
    Rst,
    Keepalive,
    WindowProbe,
}

/// What became of a transfer, judged by the packets of its connection alone. `outside_window` needs aligned clocks, so
/// it is set after clock alignment. Python's `collector.trace.schema.HopState` has the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Matched,
    Lost,
    CaptureDropped,
    OutsideWindow,
    Ambiguous,
    Unmatched,
}

output_table! {
    /// One row a transfer; a lone event has `NO_EVENT` on its missing side, whose host is given where it is known.
    pub struct Hops {
        connection("connection_id"): i64,
        kind: u8,
        from_client: bool,
        stream_start: i64,
        stream_end: i64,
        attempt: u16,
        state: u8,
    } beside {
        send_event: Vec<u32>,
        receive_event: Vec<u32>,
        /// As codes of a table's column, so wider than hosts are; `NO_HOST` where it is not known.
        send_host: Vec<i32>,
        receive_host: Vec<i32>,
    }
}

output_table! {
    /// One row a connection incarnation; ISNs are -1 where the handshake was not captured.
    pub struct Connections {
        client_addr: u32,
        client_port: u16,
        server_addr: u32,
        server_port: u16,
        client_host: u16,
        server_host: u16,
        client_isn: i64,
        server_isn: i64,
        first_host_ns: i64,
        last_host_ns: i64,
        events_count: u32,
    } beside {
        /// For connections that were rewritten on the way: (row, how the server's host knows it).
        translated: Vec<(u32, FourTuple)>,
    }
}

row_table! {
    /// TCP held a sender with more to send until an acknowledgement allowed it to continue; see [`crate::pauses`].
    /// Stamps are its host's own.
    pub struct Pause {
        /// Offset of the first byte sent after it.
        stream_offset: i64,
        stopped_ns: i64,
        /// The time from which on the window had no room for a segment, new or retransmitted; `None` if it had room.
        full_ns: Option<i64>,
        released_ns: i64,
        resumed_ns: i64,
        /// Length of the first packet sent after it; 0 if none was.
        resumed_bytes: i64,
        /// Bytes sent and not acknowledged when it stopped, and just before it was released.
        in_flight_bytes: i64,
        waiting_bytes: i64,
        /// Bytes that the window still allowed just before it was released; `None` where its scale is not known.
        room_bytes: Option<i64>,
        window_closed: bool,
        /// 0 if no handshake was captured.
        mss_bytes: i64,
        /// The shortest round trip seen until then.
        rtt_ns: Option<i64>,
        /// Length of the last idle time before it, in which all was acknowledged (0 for none), and the most bytes in
        /// flight before that.
        idle_ns: i64,
        in_flight_before_idle_bytes: i64,
        /// It retransmitted since then.
        resent: bool,
    }
}

output_table! {
    /// Pauses, each with its connection, whether the client was the sender, and the sender's host.
    pub struct Pauses {
        connection("connection_id"): i64,
        from_client: bool,
        host: u16,
    } beside {
        pauses: Vec<Pause>,
    }
}

output_table! {
    /// Packets with new data that left before data from the other side had arrived ([`crate::crossings`]).
    pub struct Crossings {
        connection("connection_id"): i64,
        from_client: bool,
        /// Offset of its first payload byte.
        stream_offset: i64,
        /// The other side's bytes that were on the way: the first, and the one after the last.
        crossed_start: i64,
        crossed_end: i64,
    }
}

output_table! {
    /// Places in connections' streams, of some events.
    pub struct Places {
        connection("connection_id"): i64,
        /// Whether the connection's client sent it.
        from_client: bool,
        /// Offset of the first payload byte.
        stream_offset: i64,
    }
}

/// The output of matching: hops, connections, pauses, and what was determined about single events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchResult {
    pub hops: Hops,
    pub connections: Connections,
    pub pauses: Pauses,
    pub crossings: Crossings,
    /// The connection of each event.
    pub event_connection: Vec<i64>,
    /// Events that another point of their host saw too; they are in no hop.
    pub duplicates: Vec<u32>,
    /// Places of the requested events.
    pub places: Places,
}

/// A row of [`Hops`] before it is stored as columns; its ends are rows of packets, or `NO_EVENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub kind: Kind,
    pub send: u32,
    pub receive: u32,
    pub stream_start: i64,
    pub stream_end: i64,
    pub attempt: u16,
    pub state: State,
}

impl Hop {
    pub fn both(kind: Kind, send: u32, receive: u32, range: (i64, i64), attempt: u16) -> Self {
        Self {
            kind,
            send,
            receive,
            stream_start: range.0,
            stream_end: range.1,
            attempt,
            state: State::Matched,
        }
    }

    pub fn lone_send(kind: Kind, row: u32, range: (i64, i64), attempt: u16, state: State) -> Self {
        Self {
            state,
            ..Self::both(kind, row, NO_EVENT, range, attempt)
        }
    }

    pub fn lone_receive(kind: Kind, row: u32, range: (i64, i64), attempt: u16, state: State) -> Self {
        Self {
            state,
            ..Self::both(kind, NO_EVENT, row, range, attempt)
        }
    }
}

impl Hops {
    /// Reserve one hop for each event: more than needed, since a transfer seen at both ends has two events. Unused
    /// memory is never mapped.
    fn with_capacity(n: usize) -> Self {
        Self {
            connection: Vec::with_capacity(n),
            kind: Vec::with_capacity(n),
            from_client: Vec::with_capacity(n),
            send_event: Vec::with_capacity(n),
            receive_event: Vec::with_capacity(n),
            send_host: Vec::with_capacity(n),
            receive_host: Vec::with_capacity(n),
            stream_start: Vec::with_capacity(n),
            stream_end: Vec::with_capacity(n),
            attempt: Vec::with_capacity(n),
            state: Vec::with_capacity(n),
        }
    }
}

impl Places {
    fn with_len(n: usize) -> Self {
        Self {
            connection: vec![0; n],
            from_client: vec![false; n],
            stream_offset: vec![0; n],
        }
    }

    /// The given rows, at most `most`, in this order.
    pub(crate) fn of(&self, rows: impl Iterator<Item = usize> + Clone, most: usize) -> Self {
        fn column<T: Copy>(values: &[T], rows: impl Iterator<Item = usize>, most: usize) -> Vec<T> {
            let mut column = Vec::with_capacity(most);
            column.extend(rows.map(|row| values[row]));
            column
        }
        Self {
            connection: column(&self.connection, rows.clone(), most),
            from_client: column(&self.from_client, rows.clone(), most),
            stream_offset: column(&self.stream_offset, rows, most),
        }
    }
}

impl MatchResult {
    /// An empty result for `n` events, with a place for each event of the subset.
    pub(crate) fn with_events(n: usize, event_subset: &EventSubset) -> Self {
        Self {
            event_connection: vec![0; n],
            hops: Hops::with_capacity(n),
            places: Places::with_len(event_subset.len()),
            ..Self::default()
        }
    }

    /// Store the row of connection `number`, and the places of its events that are in the subset.
    pub(crate) fn begin_connection(
        &mut self,
        packets: Packets,
        incarnation: &Incarnation,
        number: i64,
        event_subset: &EventSubset,
    ) {
        let rows = &mut self.connections;
        let (client, server) = (
            &incarnation.sides[incarnation.client],
            &incarnation.sides[1 - incarnation.client],
        );
        rows.client_addr.push(client.addr);
        rows.client_port.push(client.port);
        rows.server_addr.push(server.addr);
        rows.server_port.push(server.port);
        rows.client_host.push(client.host());
        rows.server_host.push(server.host());
        rows.client_isn.push(client.isn.map_or(-1, i64::from));
        rows.server_isn.push(server.isn.map_or(-1, i64::from));
        rows.events_count.push(incarnation.events_count());
        rows.first_host_ns.push(incarnation.span_ns.0);
        rows.last_host_ns.push(incarnation.span_ns.1);
        for packet in incarnation.packets(packets.0) {
            self.event_connection[packet.event as usize] = number;
            if let Some(place) = event_subset.place(packet.event) {
                self.places.connection[place] = number;
                self.places.from_client[place] = packet.is_of(incarnation.client);
                self.places.stream_offset[place] = packet.offset;
            }
        }
    }

    /// Store each translation with its connection's row.
    pub(crate) fn note_translations(&mut self, translations: Vec<Translation>) {
        let rows = &mut self.connections;
        let known: FxHashMap<(FourTuple, i64), FourTuple> = translations
            .iter()
            .map(|t| ((t.outer, t.outer_client_isn), t.inner))
            .collect();
        for row in 0..rows.client_addr.len() {
            let tuple = FourTuple {
                client_addr: rows.client_addr[row],
                client_port: rows.client_port[row],
                server_addr: rows.server_addr[row],
                server_port: rows.server_port[row],
            };
            if let Some(&inner) = known.get(&(tuple, rows.client_isn[row])) {
                rows.translated.push((row as u32, inner));
            }
        }
    }

    pub(crate) fn push_pauses(&mut self, connection: i64, from_client: bool, host: u16, pauses: &[Pause]) {
        let rows = &mut self.pauses;
        rows.pauses.extend_from_slice(pauses);
        rows.connection.resize(rows.pauses.len(), connection);
        rows.from_client.resize(rows.pauses.len(), from_client);
        rows.host.resize(rows.pauses.len(), host);
    }

    pub(crate) fn push_crossing(
        &mut self,
        connection: i64,
        from_client: bool,
        stream_offset: i64,
        crossed: (i64, i64),
    ) {
        let rows = &mut self.crossings;
        rows.connection.push(connection);
        rows.from_client.push(from_client);
        rows.stream_offset.push(stream_offset);
        rows.crossed_start.push(crossed.0);
        rows.crossed_end.push(crossed.1);
    }

    /// Store hops of one flow, a column at a time: one capacity check for each, not one for each value.
    pub(crate) fn push_hops(
        &mut self,
        packets: Packets,
        connection: i64,
        from_client: bool,
        hosts: (u16, u16),
        hops: &[Hop],
    ) {
        let event = |row: u32| {
            if row == NO_EVENT {
                NO_EVENT
            } else {
                packets.at(row).event
            }
        };
        let rows = &mut self.hops;
        let n = rows.connection.len() + hops.len();
        rows.connection.resize(n, connection);
        rows.from_client.resize(n, from_client);
        rows.send_host.resize(n, hosts.0.into());
        rows.receive_host.resize(n, hosts.1.into());
        rows.kind.extend(hops.iter().map(|hop| hop.kind as u8));
        rows.send_event.extend(hops.iter().map(|hop| event(hop.send)));
        rows.receive_event.extend(hops.iter().map(|hop| event(hop.receive)));
        rows.stream_start.extend(hops.iter().map(|hop| hop.stream_start));
        rows.stream_end.extend(hops.iter().map(|hop| hop.stream_end));
        rows.attempt.extend(hops.iter().map(|hop| hop.attempt));
        rows.state.extend(hops.iter().map(|hop| hop.state as u8));
    }
}
