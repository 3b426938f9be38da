//! How much a compressed capture may expand to: a few MiB of gzip can hold GiBs of the same packet.

use std::io::{self, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

/// Limits of expansion. A source may expand to `free_bytes` unconditionally, beyond that to `ratio` times the
/// compressed bytes read, and never to more than `most_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expansion {
    pub free_bytes: u64,
    pub ratio: u64,
    pub most_bytes: u64,
}

impl Expansion {
    pub const UNLIMITED: Self = Self {
        free_bytes: u64::MAX,
        ratio: u64::MAX,
        most_bytes: u64::MAX,
    };

    fn is_exceeded(self, read: u64, expanded: u64) -> bool {
        expanded > self.most_bytes || (expanded > self.free_bytes && expanded > self.ratio.saturating_mul(read))
    }
}

/// A gzip stream that fails with [`ErrorKind::FileTooLarge`] where it expands to more than it may.
pub struct BoundedGzip<R> {
    decoder: MultiGzDecoder<CountingReader<R>>,
    expanded: u64,
    limit: Expansion,
}

impl<R: Read> BoundedGzip<R> {
    pub fn new(source: R, limit: Expansion) -> Self {
        Self {
            decoder: MultiGzDecoder::new(CountingReader { source, read: 0 }),
            expanded: 0,
            limit,
        }
    }
}

impl<R: Read> Read for BoundedGzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.limit.is_exceeded(self.decoder.get_ref().read, self.expanded) {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let count = self.decoder.read(buffer)?;
        self.expanded += count as u64;
        Ok(count)
    }
}

/// A source that counts the bytes read from it.
struct CountingReader<R> {
    source: R,
    read: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compress(len: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&vec![7; len]).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn what_expands_too_far_ends_with_an_error() {
        let limit = |free_bytes, ratio, most_bytes| Expansion {
            free_bytes,
            ratio,
            most_bytes,
        };
        for (name, limit, fits) in [
            ("unlimited", Expansion::UNLIMITED, true),
            ("within what is free", limit(2_000_000, 1, u64::MAX), true),
            ("ratio", limit(100_000, 2, u64::MAX), false),
            ("ratio that it has", limit(100_000, 10_000, u64::MAX), true),
            ("size", limit(u64::MAX, u64::MAX, 500_000), false),
        ] {
            let mut out = Vec::new();
            let result = BoundedGzip::new(compress(1_000_000).as_slice(), limit).read_to_end(&mut out);
            assert_eq!(result.is_ok(), fits, "{name}");
            assert_eq!(out.len() == 1_000_000, fits, "{name}");
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            }
        }
    }
}
