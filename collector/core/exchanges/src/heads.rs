//! The message heads of a connection (RFC 9112), each once, however often it was captured.
//!
//! A head marks the first byte of a message, and the next head in the same direction marks its end, so bodies need not
//! be parsed. A head is captured at its sender, at its receiver, and again when it is retransmitted; the copy of which
//! most was captured is used. A "head" inside the body that an earlier head declared is payload, not a head.

use std::cmp::Reverse;

use twintap_protocols::exchanges::{MessageFields, Order};
use twintap_protocols::head::HeadKind;
use twintap_protocols::registry;

use crate::copies::Copies;
use crate::parts::Role;
use crate::ranges::{ByDirection, Range, last_near};
use crate::{Heads, UNSEEN};

/// A body can hold a false head that covers a true one; each pass clears the cover of those found false in the last.
const INSIDE_PASSES: usize = 3;
/// The result code of a message that says nothing of it.
const NO_RESULT: i32 = -1;

/// One message head of a connection. Rows are those of the column arrays.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Row of the copy that shows most of it.
    pub row: u32,
    /// Row of the copy that shows most of its transaction id.
    pub id_row: u32,
    pub from_client: bool,
    pub offset: i64,
    pub order: &'static Order,
    fields: MessageFields,
    /// Messages may be missing before it; no copy of it shows the message before.
    pub is_after_gap: bool,
    head_len: i64,
    content_length: i64,
    /// When its first byte was at the server.
    pub server_ns: i64,
}

impl Head {
    /// Where its head ends in the stream; `UNSEEN` if it was cut.
    pub fn end(&self) -> i64 {
        if self.head_len > 0 {
            self.offset.saturating_add(self.head_len)
        } else {
            UNSEEN
        }
    }

    /// Where its head ends and its body begins; `UNSEEN` if it was cut, or the message has no such parts.
    pub fn body_start(&self) -> i64 {
        if self.order.is_seamless { UNSEEN } else { self.end() }
    }

    /// Bytes of head and body as the head declares them; `UNSEEN` if it does not.
    pub fn due(&self) -> i64 {
        let known = self.head_len > 0 && self.content_length >= 0;
        if known {
            self.head_len.saturating_add(self.content_length)
        } else {
            UNSEEN
        }
    }

    pub fn flags(&self) -> u8 {
        self.fields.flags
    }

    pub fn status(&self) -> u16 {
        self.fields.status
    }

    /// Whether it says something of the result of its exchange.
    pub fn has_result(&self) -> bool {
        self.fields.has_result
    }

    /// Whether it is a response that never has a body, whatever length it declares.
    pub fn bodiless(&self) -> bool {
        (self.order.is_bodiless)(self.status())
    }

    /// Its message's role in an exchange; none for a message that only the other side may send.
    pub fn role(&self) -> Option<Role> {
        (self.order.role)(&self.fields, self.from_client)
    }

    /// Where the answer ends, if it does with this message.
    pub fn answer_end(&self) -> Option<i64> {
        let is_end = !self.from_client && (self.order.is_end)(&self.fields);
        (is_end && self.head_len > 0).then(|| self.end())
    }

    fn is_request(&self) -> bool {
        (self.order.role)(&self.fields, true) == Some(Role::Request)
    }

    fn place(&self) -> (bool, i64, u8) {
        (self.from_client, self.offset, self.fields.head_kind.0)
    }
}

/// Fill `seen` with the heads of a connection by direction (the server's first) and place, each once, without those
/// that are payload.
pub fn collect_heads(heads: &Heads, rows: impl Iterator<Item = usize> + Clone, seen: &mut Vec<Head>) {
    seen.clear();
    let mut is_ascending = true;
    for from_client in [false, true] {
        let mut copies = Copies::behind(seen);
        for row in rows.clone().filter(|&row| heads.from_client[row] == from_client) {
            if let Some(order) = registry::order_of_head_kind(heads.head_kind[row]) {
                let merge = |best: &mut Head, copy| take_copy(best, copy, heads);
                copies.add(seen, head(heads, row, order), Head::place, merge);
            }
        }
        is_ascending &= copies.is_ascending(seen);
    }
    if !is_ascending {
        seen.sort_by_key(Head::place);
        seen.dedup_by(|copy, best| {
            let same = copy.place() == best.place();
            if same {
                take_copy(best, *copy, heads);
            }
            same
        });
    }
    if is_any_inside(seen) {
        drop_inside_slow(seen);
    }
}

/// Take what another copy of a head shows: the one that was not cut, or shows more of its target, is used.
fn take_copy(best: &mut Head, mut copy: Head, heads: &Heads) {
    let lack = |head: &Head| {
        (
            heads.is_cut(head.row as usize),
            Reverse(heads.target.text_len(head.row)),
        )
    };
    if lack(&copy) < lack(best) {
        std::mem::swap(best, &mut copy);
    }
    best.head_len = best.head_len.max(copy.head_len);
    best.content_length = best.content_length.max(copy.content_length);
    best.is_after_gap &= copy.is_after_gap;
    // All are copies of the same bytes, so a longer one shows more.
    if heads.id.text_len(copy.id_row) > heads.id.text_len(best.id_row) {
        best.id_row = copy.id_row;
    }
}

/// Whether requests come from the end that was taken for the server: without a captured handshake that was a guess, and
/// heads show who is the client.
pub fn is_swapped(heads: &[Head]) -> bool {
    let requests = || heads.iter().filter(|head| head.is_request());
    2 * requests().filter(|head| head.from_client).count() < requests().count()
}

/// Set when each head was at the server: the time of the range that carries its first byte, or that of its neighbours.
pub fn time_heads(heads: &mut [Head], ranges: &ByDirection<Vec<Range>>) {
    for own in heads.chunk_by_mut(|one, next| one.from_client == next.from_client) {
        let from_client = own[0].from_client;
        let (carrying, mut near) = (ranges.of(from_client), 0);
        for head in own.iter_mut() {
            let place = last_near(carrying, &mut near, head.offset, |range| range.start);
            head.server_ns = place.map_or(UNSEEN, |place| carrying[place].server_ns(from_client));
        }
        let first = own.iter().map(|head| head.server_ns).find(|at| *at != UNSEEN);
        // An application reads a stream's bytes in order, whatever order they were captured in.
        let mut latest = first.unwrap_or(UNSEEN);
        for head in own {
            latest = latest.max(head.server_ns);
            head.server_ns = latest;
        }
    }
}

fn head(heads: &Heads, at: usize, order: &'static Order) -> Head {
    let fields = MessageFields {
        head_kind: HeadKind(heads.head_kind[at]),
        status: heads.status[at],
        flags: heads.flags[at],
        has_result: heads.result_code[at] != NO_RESULT,
    };
    Head {
        row: at as u32,
        id_row: at as u32,
        from_client: heads.from_client[at],
        offset: heads.stream_offset[at],
        order,
        fields,
        is_after_gap: (order.is_after_gap)(&fields),
        head_len: heads.head_len[at].into(),
        content_length: heads.content_length[at],
        server_ns: UNSEEN,
    }
}

/// Whether the declared body of a head reaches over the next one.
fn is_any_inside(heads: &[Head]) -> bool {
    let (mut reach, mut from_client) = (0, false);
    heads.iter().enumerate().any(|(place, head)| {
        if head.from_client != from_client {
            (reach, from_client) = (0, head.from_client);
        }
        let inside = head.offset < reach;
        reach = reach.max(cover(heads, place));
        inside
    })
}

/// Remove heads that lie in the declared body of another head.
fn drop_inside_slow(heads: &mut Vec<Head>) {
    let covers: Vec<i64> = (0..heads.len()).map(|place| cover(heads, place)).collect();
    let mut inside = vec![false; heads.len()];
    for _ in 0..INSIDE_PASSES {
        let found = inside_other_messages(heads, &covers, &inside);
        if found == inside {
            break;
        }
        inside = found;
    }
    let mut drop = inside.into_iter();
    heads.retain(|_| !drop.next().unwrap_or(false));
}

/// Offset at which the body that a head declares ends; 0 if it declares none.
fn cover(heads: &[Head], place: usize) -> i64 {
    let head = &heads[place];
    let head_end = head.offset.saturating_add(head.head_len);
    let next = heads.get(place + 1).filter(|next| next.from_client == head.from_client);
    // A response to HEAD declares a length too, but the next head follows it directly.
    let followed = next.is_some_and(|next| next.offset == head_end);
    let bodiless = !head.is_request() && (head.bodiless() || head.status() < 200 || followed);
    let known = head.head_len > 0 && head.content_length > 0 && !bodiless;
    if known {
        head_end.saturating_add(head.content_length)
    } else {
        0
    }
}

fn inside_other_messages(heads: &[Head], covers: &[i64], inside: &[bool]) -> Vec<bool> {
    let (mut reach, mut from_client) = (0, false);
    let mut found = Vec::with_capacity(heads.len());
    for (place, head) in heads.iter().enumerate() {
        if head.from_client != from_client {
            (reach, from_client) = (0, head.from_client);
        }
        found.push(head.offset < reach);
        reach = reach.max(if inside[place] { 0 } else { covers[place] });
    }
    found
}
