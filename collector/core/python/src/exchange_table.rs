//! Builds the columns of the table `exchanges`, in order of time.

use numpy::{Element, IntoPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_columns::input_table;
use twintap_exchanges::{
    BuiltExchanges, ClientMessage, Connections, Exchange, Heads, LateMessage, NO_PLACE, NO_ROW, RareTimes, Silence,
    Stream, StreamReason, Texts, UNSEEN,
};
use twintap_partitions::columns::Validity;

input_table! {
    /// For each connection the hosts of its client and its server, as places in a list (-1: not known), and the place
    /// of the service at its server's end.
    pub struct Ends { client_host: i32, server_host: i32, service: i32 }
}

/// A column of `count` numbers, of which some may be missing. It takes no memory until one is known.
pub struct Nullable<T> {
    count: usize,
    missing: T,
    /// Missing values before the first known one that were left out so far.
    ahead_count: usize,
    values: Vec<T>,
    known_count: usize,
}

impl<T: Copy + PartialEq + Element> Nullable<T> {
    fn new(count: usize, missing: T) -> Self {
        Self {
            count,
            missing,
            ahead_count: 0,
            values: Vec::new(),
            known_count: 0,
        }
    }

    /// Append values: few at a time, so that they are still in the first-level cache when they are counted.
    fn extend(&mut self, values: impl Iterator<Item = T>) {
        let from = self.values.len();
        self.values.extend(values);
        let known = self.values[from..].iter().filter(|value| **value != self.missing);
        let known_count = known.count();
        if self.known_count + known_count == 0 {
            self.ahead_count += self.values.len();
            self.values.clear();
        } else if self.known_count == 0 {
            let mut all = Vec::with_capacity(self.count);
            all.resize(self.ahead_count, self.missing);
            all.append(&mut self.values);
            self.values = all;
        }
        self.known_count += known_count;
    }

    /// Store the values and which of them are known under `name`; `None` if none is.
    pub fn put(self, columns: &Bound<'_, PyDict>, name: &str) -> PyResult<()> {
        let py = columns.py();
        let validity = match self.known_count {
            0 => Validity {
                bits: vec![0; self.count.div_ceil(8)],
            },
            known_count if known_count == self.count => Validity::default(),
            _ => Validity::but(&self.values, self.missing),
        };
        columns.set_item(format!("{name}_validity"), validity.bits.into_pyarray(py))?;
        let is_known = self.known_count > 0;
        columns.set_item(name, is_known.then(|| self.values.into_pyarray(py)))
    }
}

/// The texts of some rows, end to end; an empty one where there is no row.
struct TextsOfRows {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl TextsOfRows {
    fn of(texts: &Texts, rows: &[i64]) -> Self {
        let taken = || {
            rows.iter()
                .map(|&row| usize::try_from(row).map_or(&[][..], |row| texts.text(row)))
        };
        let mut bytes = Vec::with_capacity(taken().map(<[u8]>::len).sum());
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        offsets.push(0);
        for text in taken() {
            bytes.extend_from_slice(text);
            offsets.push(bytes.len() as i32); // fits: only rows of prepared statements, which are short, are taken twice
        }
        Self { offsets, bytes }
    }
}

/// Declares columns: the name of each, and its value for an exchange or what belongs to it.
macro_rules! columns {
    ($names:ident, $extend:ident($Of:ty): $($name:ident = |$one:ident| $value:expr),+ $(,)?) => {
        const $names: [&str; [$(stringify!($name)),+].len()] = [$(stringify!($name)),+];

        fn $extend(columns: &mut [Nullable<i64>; $names.len()], block: &[&$Of]) {
            let [$($name),+] = columns;
            $($name.extend(block.iter().map(|$one| $value));)+
        }
    };
}

columns! { LONGS, extend_longs(Exchange):
    request_first_sent_trace_ns = |one| one.request.first_sent_ns,
    request_first_received_trace_ns = |one| one.request.first_received_ns,
    request_last_sent_trace_ns = |one| one.request.last_sent_ns,
    request_last_received_trace_ns = |one| one.request.last_received_ns,
    request_head_received_trace_ns = |one| one.request.head_received_ns,
    response_first_sent_trace_ns = |one| one.response.first_sent_ns,
    response_first_received_trace_ns = |one| one.response.first_received_ns,
    response_last_sent_trace_ns = |one| one.response.last_sent_ns,
    response_last_received_trace_ns = |one| one.response.last_received_ns,
    response_head_received_trace_ns = |one| one.response.head_received_ns,
    given_up_trace_ns = |one| one.given_up_ns,
    round_trip_ns = |one| one.round_trip_ns,
    uncertainty_ns = |one| one.uncertainty_ns,
    likely_error_ns = |one| one.likely_error_ns,
    request_bytes = |one| one.request.bytes,
    response_bytes = |one| one.response.bytes,
}

columns! { RARE, extend_rare(RareTimes):
    connect_start_trace_ns = |one| one.connect_start_ns,
    connected_trace_ns = |one| one.connected_ns,
    connected_received_trace_ns = |one| one.connected_received_ns,
    greeting_sent_trace_ns = |one| one.greeting_sent_ns,
    greeting_received_trace_ns = |one| one.greeting_received_ns,
    tls_start_trace_ns = |one| one.tls_start_ns,
    tls_end_trace_ns = |one| one.tls_end_ns,
    continue_sent_trace_ns = |one| one.continue_sent_ns,
    continue_received_trace_ns = |one| one.continue_received_ns,
    body_sent_trace_ns = |one| one.body_sent_ns,
    request_silent_idle_ns = |one| unless_zero(one.request_silent.source_ns),
    request_silent_held_ns = |one| unless_zero(one.request_silent.held_ns),
    request_silent_unread_ns = |one| unless_zero(one.request_silent.reader_ns),
    response_silent_idle_ns = |one| unless_zero(one.response_silent.source_ns),
    response_silent_held_ns = |one| unless_zero(one.response_silent.held_ns),
    response_silent_unread_ns = |one| unless_zero(one.response_silent.reader_ns),
}

/// `took_ns`, or `UNSEEN` in place of 0: the table has a null where there was no wait.
fn unless_zero(took_ns: i64) -> i64 {
    if took_ns == 0 { UNSEEN } else { took_ns }
}

columns! { ROWS, extend_rows(Exchange):
    request_row = |one| one.request_row,
    response_row = |one| one.response_row,
    id_row = |one| one.id_row,
    other_id_row = |one| one.other_id_row,
    result_row = |one| one.result_row,
}

/// Names of the texts that the heads at `request_row`, `id_row` and `other_id_row` give.
const TEXTS: [&str; 3] = ["target", "transaction_id", "response_transaction_id"];

/// Exchanges whose fields are copied to columns at a time: they stay in the first-level cache.
const BLOCK: usize = 64;

/// Columns of exchanges in order of time.
pub struct Table {
    longs: [Nullable<i64>; LONGS.len()],
    rare: [Nullable<i64>; RARE.len()],
    rows: [Nullable<i64>; ROWS.len()],
    /// `None` where all are null.
    texts: [Option<TextsOfRows>; TEXTS.len()],
    /// Status of the response; 0 where there is none.
    status: Vec<u16>,
    connection_id: Vec<i64>,
    /// Hosts of the client and of the server; -1: not known.
    hosts: [Vec<i32>; 2],
    /// Service that was called. If it is at the end that the connection takes for its client: -2 minus the connection's
    /// row.
    service: Vec<i32>,
    /// Places in the registry.
    protocol: Vec<i32>,
    complete: Vec<bool>,
    is_stream: Vec<bool>,
    until_close: Vec<bool>,
    /// Which side reset the exchange: 0 neither, 1 its client, 2 its server.
    broken_by: Vec<i32>,
}

impl Table {
    pub fn of(built: &BuiltExchanges, heads: &Heads, connections: &Connections, ends: &Ends) -> Self {
        let count = built.exchanges.len();
        let mut longs = LONGS.map(|_| Nullable::new(count, UNSEEN));
        let mut rare = RARE.map(|_| Nullable::new(count, UNSEEN));
        let mut rows = ROWS.map(|_| Nullable::new(count, NO_ROW));
        let hosts_of = [ends.client_host, ends.server_host];
        let mut hosts = [(); 2].map(|()| Vec::with_capacity(count));
        let (mut status, mut connection_id) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut protocol, mut complete) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut service, mut is_stream) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut block: Vec<&Exchange> = Vec::with_capacity(BLOCK);
        let mut rare_block: Vec<&RareTimes> = Vec::with_capacity(BLOCK);
        let (mut broken_by, mut until_close) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for places in built.by_time.chunks(BLOCK) {
            block.clear();
            block.extend(places.iter().map(|place| &built.exchanges[*place as usize]));
            extend_longs(&mut longs, &block);
            extend_rows(&mut rows, &block);
            rare_block.clear();
            rare_block.extend(block.iter().map(|one| built.rare.of(one)));
            extend_rare(&mut rare, &rare_block);
            for (end, column) in hosts.iter_mut().enumerate() {
                let of_end = |one: &&Exchange| hosts_of[end ^ usize::from(one.swapped)][one.connection as usize];
                column.extend(block.iter().map(of_end));
            }
            let asked = |one: &&Exchange| match one.swapped {
                false => ends.service[one.connection as usize],
                true => -2 - one.connection as i32,
            };
            service.extend(block.iter().map(asked));
            let id = |one: &&Exchange| connections.connection_id[one.connection as usize];
            connection_id.extend(block.iter().map(id));
            let of_response = |one: &&Exchange| usize::try_from(one.response_row).map_or(0, |row| heads.status[row]);
            status.extend(block.iter().map(of_response));
            protocol.extend(block.iter().map(|one| i32::from(one.protocol)));
            complete.extend(block.iter().map(|one| one.complete));
            is_stream.extend(block.iter().map(|one| one.reason != StreamReason::Request));
            until_close.extend(block.iter().map(|one| one.until_close));
            broken_by.extend(block.iter().map(|one| one.broken_by as i32));
        }
        let [request, _, id, other_id, _] = &rows;
        let texts = [(heads.target, request), (heads.id, id), (heads.id, other_id)];
        let texts = texts.map(|(texts, rows)| (rows.known_count > 0).then(|| TextsOfRows::of(&texts, &rows.values)));
        Self {
            longs,
            rare,
            rows,
            texts,
            status,
            connection_id,
            hosts,
            service,
            protocol,
            complete,
            is_stream,
            until_close,
            broken_by,
        }
    }

    pub fn put(self, columns: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = columns.py();
        let times = LONGS.into_iter().zip(self.longs).chain(RARE.into_iter().zip(self.rare));
        for (name, values) in times.chain(ROWS.into_iter().zip(self.rows)) {
            values.put(columns, name)?;
        }
        for (name, texts) in TEXTS.into_iter().zip(self.texts) {
            let (offsets, bytes) = texts.map(|texts| (texts.offsets, texts.bytes)).unzip();
            columns.set_item(
                format!("{name}_offsets"),
                offsets.map(|offsets| offsets.into_pyarray(py)),
            )?;
            columns.set_item(format!("{name}_bytes"), bytes.map(|bytes| bytes.into_pyarray(py)))?;
        }
        for (name, values) in ["client_host", "server_host"].into_iter().zip(self.hosts) {
            columns.set_item(name, values.into_pyarray(py))?;
        }
        columns.set_item("status", self.status.into_pyarray(py))?;
        columns.set_item("connection_id", self.connection_id.into_pyarray(py))?;
        columns.set_item("service", self.service.into_pyarray(py))?;
        columns.set_item("protocol", self.protocol.into_pyarray(py))?;
        columns.set_item("is_stream", self.is_stream.into_pyarray(py))?;
        columns.set_item("until_close", self.until_close.into_pyarray(py))?;
        columns.set_item("broken_by", self.broken_by.into_pyarray(py))?;
        columns.set_item("complete", self.complete.into_pyarray(py))
    }
}

/// The exchange id of each hop. Ids count from `first_id` in order of time.
pub fn hop_exchange(built: &BuiltExchanges, first_id: i64) -> Nullable<i64> {
    let mut ids = Nullable::new(built.hop_exchange.len(), UNSEEN);
    for places in built.hop_exchange.chunks(BLOCK) {
        let id = |&place: &u32| {
            if place == NO_PLACE {
                UNSEEN
            } else {
                first_id + i64::from(place)
            }
        };
        ids.extend(places.iter().map(id));
    }
    ids
}

/// Store long silences of messages: the ids of their exchanges, which count from `first_id`, their times and causes.
pub fn put_silences(built: &BuiltExchanges, first_id: i64, columns: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = columns.py();
    let of = |get: fn(&Silence) -> i64| built.silences.iter().map(get).collect::<Vec<i64>>();
    let ids: Vec<i64> = of(|one| one.exchange.into())
        .into_iter()
        .map(|place| first_id + place)
        .collect();
    columns.set_item("silence_exchange", ids.into_pyarray(py))?;
    columns.set_item("silence_from_ns", of(|one| one.from_ns).into_pyarray(py))?;
    columns.set_item("silence_to_ns", of(|one| one.to_ns).into_pyarray(py))?;
    let in_response: Vec<bool> = built.silences.iter().map(|one| one.in_response).collect();
    columns.set_item("silence_in_response", in_response.into_pyarray(py))?;
    let cause: Vec<i32> = built.silences.iter().map(|one| one.cause as i32).collect();
    columns.set_item("silence_cause", cause.into_pyarray(py))
}

/// Store streams: the connection, reason and figures of each; then the evidence by which further connections are
/// recognised as streams, when servers sent after a silence and when messages of clients reached them.
pub fn put_streams(built: &BuiltExchanges, connections: &Connections, columns: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = columns.py();
    let id = |connection: u32| connections.connection_id[connection as usize];
    let put = |name: &str, get: &dyn Fn(&Stream) -> i64| {
        let values: Vec<i64> = built.streams.iter().map(get).collect();
        columns.set_item(format!("stream_{name}"), values.into_pyarray(py))
    };
    put("connection_id", &|one| id(one.connection))?;
    put("why", &|one| one.reason as i64)?;
    put("row", &|one| one.row)?;
    put("pieces", &|one| one.pieces.into())?;
    put("turns", &|one| one.turns.into())?;
    put("to_client_count", &|one| one.messages.server.count)?;
    put("to_server_count", &|one| one.messages.client.count)?;
    put("to_client_bytes", &|one| one.messages.server.bytes)?;
    put("to_server_bytes", &|one| one.messages.client.bytes)?;
    put("begin_trace_ns", &|one| one.begin_ns)?;
    put("end_trace_ns", &|one| one.end_ns)?;
    put("longest_idle_ns", &|one| one.longest_idle_ns)?;
    put("delay_median_ns", &|one| one.delay_median_ns)?;
    put("delay_p99_ns", &|one| one.delay_p99_ns)?;
    put("uncertainty_ns", &|one| one.uncertainty_ns)?;
    put("likely_error_ns", &|one| one.likely_error_ns)?;
    let late = |get: fn(&LateMessage) -> i64| built.late.iter().map(get).collect::<Vec<i64>>();
    let of_late: Vec<i64> = built.late.iter().map(|one| id(one.connection)).collect();
    columns.set_item("late_connection_id", of_late.into_pyarray(py))?;
    columns.set_item("late_ns", late(|one| one.at_ns).into_pyarray(py))?;
    columns.set_item("late_asked", late(|one| one.asked.into()).into_pyarray(py))?;
    let said = |get: fn(&ClientMessage) -> i64| built.said.iter().map(get).collect::<Vec<i64>>();
    columns.set_item("said_connection", said(|one| one.connection.into()).into_pyarray(py))?;
    columns.set_item("said_ns", said(|one| one.at_ns).into_pyarray(py))
}
