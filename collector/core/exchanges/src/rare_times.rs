//! Times that most exchanges lack: of the connection's opening, of `100 Continue`, and of silences. They are kept apart,
//! so that an exchange takes half the memory.

use crate::UNSEEN;
use crate::assembly::Exchange;
use crate::silences::Silent;

/// The place of the times of an exchange that has none.
pub(crate) const NO_RARE: u32 = 0;

/// The times of one exchange that are rare. Trace times in ns, `UNSEEN` where unknown.
#[derive(Clone, Copy, Debug)]
pub struct RareTimes {
    pub connect_start_ns: i64,
    pub connected_ns: i64,
    /// If the server spoke first on the connection: when it knew of the connection, its first byte left, and arrived.
    pub connected_received_ns: i64,
    pub greeting_sent_ns: i64,
    pub greeting_received_ns: i64,
    pub tls_start_ns: i64,
    pub tls_end_ns: i64,
    pub continue_sent_ns: i64,
    pub continue_received_ns: i64,
    pub body_sent_ns: i64,
    /// For how long no byte of the request, or of the response, was on the way.
    pub request_silent: Silent,
    pub response_silent: Silent,
}

impl Default for RareTimes {
    fn default() -> Self {
        Self {
            connect_start_ns: UNSEEN,
            connected_ns: UNSEEN,
            connected_received_ns: UNSEEN,
            greeting_sent_ns: UNSEEN,
            greeting_received_ns: UNSEEN,
            tls_start_ns: UNSEEN,
            tls_end_ns: UNSEEN,
            continue_sent_ns: UNSEEN,
            continue_received_ns: UNSEEN,
            body_sent_ns: UNSEEN,
            request_silent: Silent::default(),
            response_silent: Silent::default(),
        }
    }
}

impl RareTimes {
    /// Whether the server asked for the body.
    pub(crate) fn is_continued(&self) -> bool {
        self.continue_sent_ns != UNSEEN || self.continue_received_ns != UNSEEN
    }
}

/// The [`RareTimes`] of all exchanges; at [`NO_RARE`] those of every exchange that has none of its own.
#[derive(Clone, Debug)]
pub struct RareTimesOfAll(Vec<RareTimes>);

impl Default for RareTimesOfAll {
    fn default() -> Self {
        Self(vec![RareTimes::default()])
    }
}

impl RareTimesOfAll {
    /// The times of an exchange.
    pub fn of(&self, exchange: &Exchange) -> &RareTimes {
        &self.0[exchange.rare as usize]
    }

    /// The same, to set them.
    pub(crate) fn of_mut(&mut self, exchange: &mut Exchange) -> &mut RareTimes {
        if exchange.rare == NO_RARE {
            exchange.rare = self.0.len() as u32;
            self.0.push(RareTimes::default());
        }
        &mut self.0[exchange.rare as usize]
    }
}
