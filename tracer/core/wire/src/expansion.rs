//! How much a compressed capture may expand to: a few MiB of gzip or zstd can hold GiBs of the same packet.

use std::io::{self, BufReader, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

/// Longest window of zstd, 128 MiB, which bounds its memory; `zstd --long=28` and above make longer ones.
const LONGEST_WINDOW_LOG: u32 = 27;

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

/// A decompressed stream that fails with [`ErrorKind::FileTooLarge`] where it expands to more than it may.
pub struct BoundedSource<R: Read> {
    decoder: Decoder<CountingReader<R>>,
    expanded: u64,
    limit: Expansion,
}

enum Decoder<R: Read> {
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<R>>),
}

impl<R: Read> BoundedSource<R> {
    pub fn gzip(source: R, limit: Expansion) -> Self {
        let decoder = MultiGzDecoder::new(CountingReader { source, read: 0 });
        Self::new(Decoder::Gzip(Box::new(decoder)), limit)
    }

    /// # Errors
    /// What the library says if there is no memory.
    pub fn zstd(source: R, limit: Expansion) -> io::Result<Self> {
        let mut decoder = zstd::stream::read::Decoder::new(CountingReader { source, read: 0 })?;
        decoder.window_log_max(LONGEST_WINDOW_LOG)?;
        Ok(Self::new(Decoder::Zstd(decoder), limit))
    }

    fn new(decoder: Decoder<CountingReader<R>>, limit: Expansion) -> Self {
        Self {
            decoder,
            expanded: 0,
            limit,
        }
    }

    fn read_len(&self) -> u64 {
        match &self.decoder {
            Decoder::Gzip(decoder) => decoder.get_ref().read,
            Decoder::Zstd(decoder) => decoder.get_ref().get_ref().read,
        }
    }
}

impl<R: Read> Read for BoundedSource<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.limit.is_exceeded(self.read_len(), self.expanded) {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let count = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.read(buffer)?,
            Decoder::Zstd(decoder) => decoder.read(buffer).map_err(as_damage)?,
        };
        self.expanded += count as u64;
        Ok(count)
    }
}

/// The library's own errors, which are of no kind, as those of a damaged stream.
fn as_damage(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Other => io::Error::new(ErrorKind::InvalidData, error),
        _ => error,
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

    fn compress_zstd(len: usize) -> Vec<u8> {
        zstd::bulk::compress(&vec![7; len], 1).expect("memory")
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
            ("ratio that it has", limit(100_000, 100_000, u64::MAX), true),
            ("size", limit(u64::MAX, u64::MAX, 500_000), false),
        ] {
            let (gzip, zstd) = (compress(1_000_000), compress_zstd(1_000_000));
            for bounded in [
                BoundedSource::gzip(gzip.as_slice(), limit),
                BoundedSource::zstd(zstd.as_slice(), limit).expect("memory"),
            ] {
                check_expansion(name, bounded, fits);
            }
        }
    }

    fn check_expansion(name: &str, mut bounded: BoundedSource<&[u8]>, fits: bool) {
        let mut out = Vec::new();
        let result = bounded.read_to_end(&mut out);
        assert_eq!(result.is_ok(), fits, "{name}");
        assert_eq!(out.len() == 1_000_000, fits, "{name}");
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        }
    }

    #[test]
    fn damaged_and_truncated_zstd_differ() {
        let whole = compress_zstd(1_000_000);
        let mut damaged = whole.clone();
        damaged[10] ^= 0xff;
        for (bytes, kind) in [
            (&whole[..whole.len() - 3], ErrorKind::UnexpectedEof),
            (&damaged[..], ErrorKind::InvalidData),
            (
                &[whole.as_slice(), b"what is no frame"].concat()[..],
                ErrorKind::InvalidData,
            ),
        ] {
            let mut bounded = BoundedSource::zstd(bytes, Expansion::UNLIMITED).expect("memory");
            let error = bounded.read_to_end(&mut Vec::new()).expect_err("not whole");
            assert_eq!(error.kind(), kind, "{error}");
        }
        let twice = [whole.as_slice(), whole.as_slice()].concat();
        let mut out = Vec::new();
        let mut bounded = BoundedSource::zstd(twice.as_slice(), Expansion::UNLIMITED).expect("memory");
        assert_eq!(bounded.read_to_end(&mut out).expect("whole"), 2_000_000);
    }
}
