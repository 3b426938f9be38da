//! What matching produces: columns, one row a hop and one row a connection.

use rustc_hash::FxHashMap;

use crate::NO_EVENT;
use crate::connections::{Incarnation, Side};
use crate::translation::{FourTuple, Translation};

/// What a transfer carried. The codes are the order of `collector.schema.HopKind`.
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

/// What became of a transfer, as far as one connection's packets can tell. `outside_window` needs aligned clocks and is
/// decided after them. The codes are the order of `collector.schema.HopState`.
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

/// One row a transfer; a lone event has `NO_EVENT` on its missing side, whose host is given where it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hops {
    pub connection: Vec<u32>,
    pub kind: Vec<u8>,
    pub from_client: Vec<bool>,
    pub send_event: Vec<u32>,
    pub receive_event: Vec<u32>,
    pub send_host: Vec<u16>,
    pub receive_host: Vec<u16>,
    pub stream_start: Vec<i64>,
    pub stream_end: Vec<i64>,
    pub attempt: Vec<u16>,
    pub state: Vec<u8>,
}

/// One row a connection incarnation; ISNs are -1 where the handshake was not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    pub client_addr: Vec<u32>,
    pub client_port: Vec<u16>,
    pub server_addr: Vec<u32>,
    pub server_port: Vec<u16>,
    pub client_host: Vec<u16>,
    pub server_host: Vec<u16>,
    pub client_isn: Vec<i64>,
    pub server_isn: Vec<i64>,
    pub first_host_ns: Vec<i64>,
    pub last_host_ns: Vec<i64>,
    pub events_count: Vec<u32>,
    /// For connections that were rewritten on the way: (row, how the server's host knows it).
    pub translated: Vec<(u32, FourTuple)>,
}

/// A sender stood still with more to send, until an acknowledgement let it go on; see `pauses`. Stamps are its host's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Of the first byte sent after it.
    pub stream_offset: i64,
    pub stopped_ns: i64,
    pub released_ns: i64,
    pub resumed_ns: i64,
    /// Length of the first packet sent after it; 0 if none was.
    pub resumed_bytes: i64,
    /// Sent and not acknowledged when it stopped, and just before it was let go on.
    pub in_flight_bytes: i64,
    pub waiting_bytes: i64,
    /// What the window still allowed just before it was let go on; `None` where its scale is not known.
    pub room_bytes: Option<i64>,
    pub window_closed: bool,
    /// 0 if no handshake was captured.
    pub mss_bytes: i64,
    /// The least seen until then.
    pub rtt_ns: Option<i64>,
    /// The last time that it sent nothing with all acknowledged, 0 for never, and the most in flight before that.
    pub idle_ns: i64,
    pub in_flight_before_idle_bytes: i64,
    /// It sent bytes again since then.
    pub resent: bool,
}

/// Pauses, with the connection of each, whether its client sent, and the sender's host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    pub connection: Vec<u32>,
    pub from_client: Vec<bool>,
    pub host: Vec<u16>,
    pub pauses: Vec<Pause>,
}

/// Hops and connections, and for each event its connection and place in the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    pub hops: Hops,
    pub connections: Connections,
    pub pauses: Pauses,
    /// For each event: index into `connections`.
    pub event_connection: Vec<u32>,
    /// For each event: sent by the connection's client.
    pub event_from_client: Vec<bool>,
    /// For each event: stream offset of its first payload byte.
    pub event_stream_offset: Vec<i64>,
    /// For each event: another point of its host speaks for it; it is in no hop.
    pub event_duplicate: Vec<bool>,
}

/// A row of [`Hops`] before it is stored as columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub kind: Kind,
    pub send_event: u32,
    pub receive_event: u32,
    pub stream_start: i64,
    pub stream_end: i64,
    pub attempt: u16,
    pub state: State,
}

impl Hop {
    pub fn both(kind: Kind, send_event: u32, receive_event: u32, range: (i64, i64), attempt: u16) -> Self {
        Self {
            kind,
            send_event,
            receive_event,
            stream_start: range.0,
            stream_end: range.1,
            attempt,
            state: State::Matched,
        }
    }

    pub fn lone_send(kind: Kind, event: u32, range: (i64, i64), attempt: u16, state: State) -> Self {
        Self {
            receive_event: NO_EVENT,
            state,
            ..Self::both(kind, event, NO_EVENT, range, attempt)
        }
    }

    pub fn lone_receive(kind: Kind, event: u32, range: (i64, i64), attempt: u16, state: State) -> Self {
        Self {
            state,
            ..Self::both(kind, NO_EVENT, event, range, attempt)
        }
    }
}

impl Hops {
    /// Room for as many hops as there are events: more than a transfer seen at both ends takes. Untouched, it costs nothing.
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

impl Matched {
    pub(crate) fn with_events(n: usize) -> Self {
        Self {
            event_connection: vec![0; n],
            event_from_client: vec![false; n],
            event_stream_offset: vec![0; n],
            event_duplicate: vec![false; n],
            hops: Hops::with_capacity(n),
            ..Self::default()
        }
    }

    /// Store the connection's row and its events' places; return its index.
    pub(crate) fn begin_connection(&mut self, incarnation: &Incarnation) -> u32 {
        let rows = &mut self.connections;
        let index = u32::try_from(rows.client_addr.len()).expect("fewer connections than events");
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
        let spans = || incarnation.sides.iter().filter_map(|side| side.span_ns);
        rows.first_host_ns.push(spans().map(|span| span.0).min().unwrap_or(0));
        rows.last_host_ns.push(spans().map(|span| span.1).max().unwrap_or(0));
        for (number, side) in incarnation.sides.iter().enumerate() {
            self.place_events(side, number == incarnation.client, index);
        }
        index
    }

    fn place_events(&mut self, side: &Side, from_client: bool, connection: u32) {
        for placed in &side.events {
            let event = placed.event as usize;
            self.event_connection[event] = connection;
            self.event_from_client[event] = from_client;
            self.event_stream_offset[event] = placed.offset;
        }
    }

    /// Put each translation beside the connection that it is of.
    pub(crate) fn note_translations(&mut self, translations: Vec<Translation>) {
        let rows = &mut self.connections;
        let known: FxHashMap<(FourTuple, i64), FourTuple> = translations
            .iter()
            .map(|t| ((t.outer, i64::from(t.outer_client_isn)), t.inner))
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

    pub(crate) fn push_pauses(&mut self, connection: u32, from_client: bool, host: u16, pauses: &[Pause]) {
        let rows = &mut self.pauses;
        rows.pauses.extend_from_slice(pauses);
        rows.connection.resize(rows.pauses.len(), connection);
        rows.from_client.resize(rows.pauses.len(), from_client);
        rows.host.resize(rows.pauses.len(), host);
    }

    /// Store hops of one flow, a column at a time: one capacity check for each, not one for each value.
    pub(crate) fn push_hops(&mut self, connection: u32, from_client: bool, hosts: (u16, u16), hops: &[Hop]) {
        let rows = &mut self.hops;
        let n = rows.connection.len() + hops.len();
        rows.connection.resize(n, connection);
        rows.from_client.resize(n, from_client);
        rows.send_host.resize(n, hosts.0);
        rows.receive_host.resize(n, hosts.1);
        rows.kind.extend(hops.iter().map(|hop| hop.kind as u8));
        rows.send_event.extend(hops.iter().map(|hop| hop.send_event));
        rows.receive_event.extend(hops.iter().map(|hop| hop.receive_event));
        rows.stream_start.extend(hops.iter().map(|hop| hop.stream_start));
        rows.stream_end.extend(hops.iter().map(|hop| hop.stream_end));
        rows.attempt.extend(hops.iter().map(|hop| hop.attempt));
        rows.state.extend(hops.iter().map(|hop| hop.state as u8));
    }
}
