//! All connections of a capture that are being opened.
//!
//! Bounds: [`MAX_CONNECTIONS`], each as [`crate::direction`] says; [`HELD_BYTES`] of packets held back, of all of them.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use twintap_protocols::tls::may_be_record;
use twintap_wire::counters::{CounterKind, Counters};
use twintap_wire::events::Event;
use twintap_wire::frames::Direction as Ends;
use twintap_wire::opening::{Opener, RecordFound};

use crate::direction::{Direction, Negotiation, Piece, Sink};
use crate::hellos::client_random;
use crate::key_log::KeyLog;

const FIN: u16 = 0x01;
const SYN: u16 = 0x02;
const RST: u16 = 0x04;
const ACK: u16 = 0x10;
const MAX_CONNECTIONS: usize = 1 << 15;
const HELD_BYTES: usize = 64 << 20;
/// Connections that cannot be opened and were counted, at most.
const MAX_COUNTED: usize = 1 << 17;
const HANDSHAKE: u8 = 22;

#[derive(Clone)]
struct Connection {
    shared: Negotiation,
    /// The client's and the server's.
    directions: [Direction; 2],
    is_ended: [bool; 2],
    /// It cannot be opened; others may read its packets.
    is_closed: bool,
}

/// Opens the connections whose secrets a key log holds.
#[derive(Clone)]
pub struct TlsOpener {
    keys: Arc<KeyLog>,
    /// By their client's direction.
    connections: HashMap<Ends, Connection, RandomState>,
    /// Connections that were counted since they cannot be opened.
    counted: HashSet<Ends, RandomState>,
    held_bytes: usize,
}

impl TlsOpener {
    pub fn new(keys: Arc<KeyLog>) -> Self {
        Self {
            keys,
            connections: HashMap::default(),
            counted: HashSet::default(),
            held_bytes: 0,
        }
    }

    fn forget(&mut self, client: &Ends) {
        if let Some(connection) = self.connections.remove(client) {
            let held: usize = connection.directions.iter().map(|one| one.held_bytes).sum();
            self.held_bytes = self.held_bytes.saturating_sub(held);
        }
    }

    /// Begin with a client's hello; false if its connection cannot be opened.
    fn begin(&mut self, ends: Ends, event: &Event, payload: &[u8], counters: &mut Counters) -> bool {
        let Some(random) = client_random(payload) else {
            return false;
        };
        let is_same = |connection: &Connection| connection.shared.client_random == random;
        if self.connections.get(&ends).is_some_and(is_same) {
            return true;
        }
        self.forget(&ends);
        self.forget(&ends.other_way());
        let Some(secrets) = self
            .keys
            .of(&random)
            .filter(|_| self.connections.len() < MAX_CONNECTIONS)
        else {
            self.count(ends, counters);
            return false;
        };
        self.counted.remove(&ends);
        let connection = Connection {
            shared: Negotiation {
                client_random: random,
                secrets: secrets.clone(),
                choice: None,
            },
            directions: [Direction::new(0, event.seq), Direction::new(1, event.ack)],
            is_ended: [false; 2],
            is_closed: false,
        };
        self.connections.insert(ends, connection);
        true
    }

    /// Count a connection that cannot be opened, once.
    fn count(&mut self, ends: Ends, counters: &mut Counters) {
        let is_known = self.counted.contains(&ends) || self.counted.contains(&ends.other_way());
        if !is_known && self.counted.len() < MAX_COUNTED {
            self.counted.insert(ends);
            counters.bump(CounterKind::TlsNotOpened);
        }
    }
}

impl Opener for TlsOpener {
    fn concerns(&self, payload: &[u8]) -> bool {
        let is_record = payload.first().is_some_and(|first| (20..=23).contains(first));
        is_record || !self.connections.is_empty()
    }

    fn take(
        &mut self,
        ends: Ends,
        event: &Event,
        payload: &[u8],
        counters: &mut Counters,
        found: &mut dyn FnMut(RecordFound<'_>, &mut Counters),
    ) -> bool {
        if event.flags & SYN != 0 {
            self.forget(&ends);
            self.forget(&ends.other_way());
            self.counted.remove(&ends);
            self.counted.remove(&ends.other_way());
            return false;
        }
        let is_hello = payload.first() == Some(&HANDSHAKE) && self.begin(ends, event, payload, counters);
        let (client, side) = if is_hello || self.connections.contains_key(&ends) {
            (ends, 0)
        } else {
            (ends.other_way(), 1)
        };
        let Some(connection) = self.connections.get_mut(&client) else {
            if may_be_record(payload) {
                self.count(ends, counters);
            }
            return false;
        };
        if event.flags & ACK != 0 {
            connection.directions[1 - side].acknowledge(event.ack);
        }
        if !connection.is_closed {
            let room = HELD_BYTES.saturating_sub(self.held_bytes);
            let held_before = connection.directions[side].held_bytes;
            connection.take(side, event, payload, room, counters, found);
            self.held_bytes = (self.held_bytes + connection.directions[side].held_bytes).saturating_sub(held_before);
        }
        let is_closed = connection.is_closed;
        connection.is_ended[side] |= event.flags & FIN != 0;
        if event.flags & RST != 0 || connection.is_ended == [true; 2] {
            self.forget(&client);
        }
        !is_closed
    }

    fn boxed_clone(&self) -> Box<dyn Opener> {
        Box::new(self.clone())
    }

    fn take_keys(&mut self, newer: &dyn Opener) {
        if let Some(newer) = newer.as_any().downcast_ref::<Self>() {
            self.keys = Arc::clone(&newer.keys);
            self.counted.clear();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Connection {
    fn take(
        &mut self,
        side: usize,
        event: &Event,
        payload: &[u8],
        room: usize,
        counters: &mut Counters,
        found: &mut dyn FnMut(RecordFound<'_>, &mut Counters),
    ) {
        let piece = Piece {
            seq: event.seq,
            wire_len: event.payload_len,
            bytes: payload,
        };
        let failed_count = {
            let mut sink = Sink {
                first: event.seq,
                found: &mut |one| found(one, counters),
                failed_count: 0,
            };
            self.directions[side].take(&mut self.shared, &piece, room, &mut sink);
            sink.failed_count
        };
        counters.add(CounterKind::TlsRecordsNotOpened, failed_count);
        if self.shared.is_unknown_suite() {
            counters.bump(CounterKind::TlsSuiteNotOpened);
            self.is_closed = true;
        }
        self.is_closed |= self.directions[side].is_given_up();
    }
}
