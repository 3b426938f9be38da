//! `packed_len FILE…`: bytes a packet of each pcapng file, whole, compressed by zstd alone, and packed.

use std::time::Instant;

fn main() {
    for name in std::env::args().skip(1) {
        let bytes = std::fs::read(&name).expect("a file");
        let count = count_packets(&bytes).max(1);
        let begun = Instant::now();
        let packed = twintap_packing::pack(&bytes);
        let elapsed = begun.elapsed();
        let begun = Instant::now();
        let plain = zstd::bulk::compress(&bytes, 3).expect("memory");
        let plain_elapsed = begun.elapsed();
        assert!(twintap_packing::unpack(&packed, bytes.len()).expect("whole") == bytes);
        let each = |len: usize| len as f64 / count as f64;
        println!(
            "{name}: {count} packets, {:.1} bytes each; zstd {:.1} ({} ns); packed {:.2} ({} ns)",
            each(bytes.len()),
            each(plain.len()),
            plain_elapsed.as_nanos() / count as u128,
            each(packed.len()),
            elapsed.as_nanos() / count as u128,
        );
    }
}

fn count_packets(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some(field) = bytes.get(..8) {
        let len = u32::from_le_bytes([field[4], field[5], field[6], field[7]]) as usize;
        count += usize::from(field[0] == 6);
        bytes = bytes.get(len.max(12)..).unwrap_or_default();
    }
    count
}
