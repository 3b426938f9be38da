//! Links recorded columns of exchanges, for `python -m benchmarks.linking.sensitivity`.
//!
//! `link_columns FILE`: FILE holds cases one after another, each the number of its exchanges and then the columns of
//! `Exchanges` in their order, all little-endian. Writes, for each case, the columns `parent` (i64) and `confidence`
//! (f64) to standard output. `link_columns --list` prints the tuned numbers: name, value, whether it is whole.

use std::io::{self, BufWriter, Write};

use twintap_links::tuning::TUNING;
use twintap_links::{Exchanges, Links, MAX_WORDS, link};

const I64_COLUMNS: usize = 15;

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match std::env::args().nth(1).as_deref() {
        Some("--list") => {
            for (name, value, is_whole) in TUNING.values() {
                writeln!(out, "{name} {value} {is_whole}")?;
            }
        }
        Some(file) => {
            let bytes = std::fs::read(file)?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let links = link_case(&mut rest);
                links
                    .parent
                    .iter()
                    .try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
                links
                    .confidence
                    .iter()
                    .try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
            }
        }
        None => return Err(io::Error::other("link_columns FILE, or link_columns --list")),
    }
    out.flush()
}

fn link_case(rest: &mut &[u8]) -> Links {
    let count = take(rest, 1, i64::from_le_bytes)[0] as usize;
    let columns: Vec<Vec<i64>> = (0..I64_COLUMNS)
        .map(|_| take(rest, count, i64::from_le_bytes))
        .collect();
    let words = take(rest, count * MAX_WORDS, u32::from_le_bytes);
    link(&Exchanges {
        client_host: &columns[0],
        server_host: &columns[1],
        service: &columns[2],
        connection_id: &columns[3],
        connect_start_ns: &columns[4],
        request_first_sent_ns: &columns[5],
        request_first_received_ns: &columns[6],
        response_first_sent_ns: &columns[7],
        response_first_received_ns: &columns[8],
        response_last_sent_ns: &columns[9],
        response_last_received_ns: &columns[10],
        given_up_ns: &columns[11],
        request_bytes: &columns[12],
        response_bytes: &columns[13],
        method: &columns[14],
        words: words.as_chunks().0,
    })
}

/// So many values from the front of the bytes.
fn take<T, const SIZE: usize>(rest: &mut &[u8], count: usize, value: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
    let (taken, left) = rest.split_at(count * SIZE);
    *rest = left;
    taken.as_chunks().0.iter().map(|bytes| value(*bytes)).collect()
}
