//! A SYN flood: memory must stay in proportion to the events, however few of them a connection has.
//!
//! Alone in its file, so that the process' peak memory is its own.

#[path = "../../../../fuzz/bodies/matching.rs"]
#[allow(dead_code)] // the target itself
mod matching;

use matching::{Columns, Event};
use twintap_matching::match_events;

const CONNECTIONS: u32 = 1_000_000;
/// What matching may take for each, with its rows of hops and connections.
const LIMIT_BYTES: usize = 500;

/// Of the process, bytes (Linux): `VmRSS` what it holds, `VmHWM` the most that it ever held.
fn memory_bytes(name: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? * 1024)
}

#[test]
fn a_million_half_open_connections() {
    let mut columns = Columns::default();
    for number in 0..CONNECTIONS {
        columns.push(Event {
            host_ns: i64::from(number),
            direction: 1,
            src_addr: number >> 14,
            dst_addr: 1 << 20,
            src_port: (number & 0x3fff) as u16,
            dst_port: 80,
            seq: number.wrapping_mul(0x9e37_79b9),
            flags: 0x02,
            ..Event::default()
        });
    }
    let before = memory_bytes("VmRSS");
    let matched = match_events(&columns.events(), 0, &[]);
    assert_eq!(matched.connections.client_addr.len(), CONNECTIONS as usize);
    assert_eq!(matched.hops.kind.len(), CONNECTIONS as usize);
    if let Some((before, after)) = before.zip(memory_bytes("VmHWM")) {
        let each = (after - before) / CONNECTIONS as usize;
        println!("{each} bytes for each half-open connection");
        assert!(each < LIMIT_BYTES, "{each} bytes for each");
    }
}
