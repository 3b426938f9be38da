//! Exchanges of a connection by turn-taking alone: the client's bytes, then the server's, then the client's again.
//!
//! Used for TLS (of which [`crate::tls_handshake`] leaves only the application's bytes), for unknown protocols, and for
//! captures whose packets were cut too short for a message head. Turns are judged by the server host's clock alone,
//! because only there is the order of a request and its answer free of clock error. If the server did not see a
//! transfer, the client's stamp is used instead, which keeps causal order.
//!
//! A turn is a maximal run of client bytes followed by a maximal run of server bytes. Retransmitted bytes begin no
//! turn. Turn 0 is what a server sends before its client sends anything.
//!
//! Whether turns are requests is judged afterwards ([`crate::clean_turns`]).
//!
//! Limits: what a pipelining client sends at once looks like one turn.

use crate::parts::{Part, Role};
use crate::ranges::{ByDirection, Range};

/// The bytes that one side sends in one turn, as far as captured.
#[derive(Clone, Copy, Debug)]
struct Run {
    from_client: bool,
    turn: usize,
    end: i64,
}

/// The turns of a connection without visible heads.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// Of each range: time, first byte, whether the client sent it, end.
    said: Vec<(i64, i64, bool, i64)>,
    runs: Vec<Run>,
}

impl Turns {
    /// Append the parts of the exchanges; an exchange's ordinal is its turn, from 0.
    pub fn mark_parts(&mut self, ranges: &ByDirection<Vec<Range>>, parts: &mut ByDirection<Vec<Part>>) {
        self.take(ranges);
        for from_client in [false, true] {
            let role = if from_client { Role::Request } else { Role::Response };
            // A run begins where the previous one ended, so that bytes which arrived out of order are not left out.
            let mut start = ranges.of(from_client).first().map_or(0, |range| range.start);
            for run in self.runs.iter().filter(|run| run.from_client == from_client) {
                parts.of_mut(from_client).push(Part::new(start, run.turn, role));
                start = run.end;
            }
        }
    }

    fn take(&mut self, ranges: &ByDirection<Vec<Range>>) {
        let Self { said, runs } = self;
        said.clear();
        runs.clear();
        for from_client in [false, true] {
            let of = ranges.of(from_client).iter();
            said.extend(of.map(|range| (range.server_ns(from_client), range.start, from_client, range.end)));
        }
        said.sort(); // two runs about in order, which a stable sort only merges
        let mut reach = ByDirection { server: -1, client: -1 };
        let (mut turn, mut asking) = (0, false);
        for &(_, _, from_client, end) in said.iter() {
            if end <= *reach.of(from_client) {
                continue;
            }
            *reach.of_mut(from_client) = end;
            turn += usize::from(from_client && !asking);
            asking = from_client;
            match runs.last_mut() {
                Some(run) if run.from_client == from_client && run.turn == turn => run.end = end,
                _ => runs.push(Run { from_client, turn, end }),
            }
        }
    }
}
