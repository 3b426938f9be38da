//! How fast a capture is decoded to columns: `cargo run --release --example decode_speed -- FILE [ROUNDS]`.
//!
//! The file should be in the page cache; the fastest round is reported, since the others include other processes' work.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use twintap_wire::reader::open;

const BATCH_PACKETS: usize = 131_072;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: decode_speed FILE [ROUNDS]");
        return ExitCode::from(2);
    };
    let rounds = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut best = f64::INFINITY;
    let mut counts = (0, 0, 0);
    for _ in 0..rounds {
        let start = Instant::now();
        match decode(Path::new(path)) {
            Ok(found) => counts = found,
            Err(text) => {
                eprintln!("{path}: {text}");
                return ExitCode::from(2);
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    let (packets, events, excerpts) = counts;
    println!(
        "{packets} packets, {events} events, {excerpts} excerpts: {best:.3} s, {:.1} M packets/s",
        packets as f64 / best / 1e6
    );
    ExitCode::SUCCESS
}

fn decode(path: &Path) -> Result<(u32, usize, usize), String> {
    let mut reader = open(path).map_err(|error| format!("{error:?}"))?;
    let (mut events, mut excerpts) = (0, 0);
    while let Some(batch) = reader.next_batch(BATCH_PACKETS) {
        events += batch.events.len();
        excerpts += batch.excerpts.len();
    }
    Ok((reader.packets_count(), events, excerpts))
}
