//! How fast the bytes of one direction are read, in MB/s on one core, for the protocols that are scanned.
//! `cargo run --release -p twintap-protocols --example scan_speed`

use std::time::Instant;

use twintap_protocols::protocol::{Scan, Scanning};
use twintap_protocols::registry::REGISTRY;

/// Bytes of a packet.
const PACKET_LEN: usize = 1448;
const BYTES: usize = 1 << 17; // short rounds, which other processes rarely interrupt; the fastest counts
const ROUNDS: usize = 400;

fn main() {
    let set = |len: usize| {
        format!(
            "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000004711\r\n${len}\r\n{}\r\n",
            "x".repeat(len)
        )
    };
    let value = |len: usize| format!("${len}\r\n{}\r\n", "x".repeat(len));
    let cases = [
        ("redis", true, "SET, 3 bytes", set(3)),
        ("redis", true, "SET, 1,000 bytes", set(1_000)),
        (
            "redis",
            true,
            "GET",
            "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000004711\r\n".to_owned(),
        ),
        ("redis", false, "OK", "+OK\r\n".to_owned()),
        ("redis", false, "100 bytes", value(100)),
        (
            "redis",
            false,
            "an array of 100 elements",
            format!("*100\r\n{}", value(20).repeat(100)),
        ),
        ("memcached", true, "get", "get key:000000004711\r\n".to_owned()),
        (
            "memcached",
            true,
            "set, 100 bytes",
            format!("set key:000000004711 0 0 100\r\n{}\r\n", "x".repeat(100)),
        ),
        (
            "memcached",
            false,
            "100 bytes",
            format!("VALUE key:000000004711 0 100\r\n{}\r\nEND\r\n", "x".repeat(100)),
        ),
    ];
    for (name, from_client, words, message) in cases {
        let protocol = REGISTRY.iter().find(|one| one.name == name).expect("it is registered");
        let scanning = protocol.scanning.expect("it is scanned");
        let bytes = message.repeat(BYTES / message.len()).into_bytes();
        let (took_s, count) = measure(scanning, from_client, &bytes);
        let speed = bytes.len() as f64 / took_s / 1e6;
        println!(
            "{name:<10} {words:<26} {speed:>7.0} MB/s {:>6.1} ns a message",
            took_s / count as f64 * 1e9
        );
    }
}

/// Seconds for all bytes, and messages found.
fn measure(scanning: &Scanning, from_client: bool, bytes: &[u8]) -> (f64, usize) {
    let (mut best_s, mut count) = (f64::INFINITY, 0);
    for _ in 0..ROUNDS {
        count = 0;
        let begun = Instant::now();
        scan(scanning, from_client, bytes, &mut count);
        best_s = best_s.min(begun.elapsed().as_secs_f64());
    }
    (best_s, count)
}

fn scan(scanning: &Scanning, from_client: bool, bytes: &[u8], count: &mut usize) {
    let (mut scanner, mut skip) = ((scanning.scanner)(from_client), 0);
    for packet in bytes.chunks(PACKET_LEN) {
        let skipped = packet.len().min(skip);
        skip -= skipped;
        if skipped == packet.len() {
            continue;
        }
        match scanner.scan(&packet[skipped..], &mut |_| *count += 1) {
            Scan::Skip(len) => skip = len as usize,
            Scan::End => panic!("no message"),
        }
    }
}
