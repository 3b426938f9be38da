//! An excerpt as one run of bytes, so that it is written in one piece, whatever the number of its columns.
//!
//! Little-endian, in the order of the columns, without padding. Only processes of the same
//! version read it.

use twintap_protocols::excerpt::ExcerptColumns;
use twintap_protocols::with_excerpt_columns;

macro_rules! define_excerpt_rows {
    ($($name:ident: $kind:ty,)*) => {
        const NUMBERS_LEN: usize = 0 $(+ size_of::<$kind>())*;

        fn pack_numbers(excerpts: &ExcerptColumns, at: usize, bytes: &mut Vec<u8>) {
            $(bytes.extend_from_slice(&excerpts.$name[at].to_le_bytes());)*
        }

        /// Make room for excerpts that take so many bytes packed. Memory that is not used is never mapped.
        pub fn reserve(excerpts: &mut ExcerptColumns, packed_len: usize) {
            let most = packed_len / (NUMBERS_LEN + size_of::<u32>());
            $(excerpts.$name.reserve(most);)*
            excerpts.bytes.offsets.reserve(most);
            excerpts.bytes.bytes.reserve(packed_len);
        }

        fn unpack_numbers(excerpts: &mut ExcerptColumns, rest: &mut &[u8]) {
            $(excerpts.$name.push(<$kind>::from_le_bytes(next(rest)));)*
        }
    };
}

with_excerpt_columns!(define_excerpt_rows);

/// The first row from `from` on whose frame is not before `frame`; `frames` ascend. It costs the less the nearer it is.
pub fn row_of(frames: &[u32], from: usize, frame: u32) -> usize {
    let (mut begin, mut end, mut step) = (from, from, 1);
    while frames.get(end).is_some_and(|&known| known < frame) {
        begin = end + 1;
        end += step;
        step *= 2;
    }
    let end = end.min(frames.len());
    begin + frames[begin..end].partition_point(|&known| known < frame)
}

/// How many bytes row `at` takes.
pub fn packed_len(excerpts: &ExcerptColumns, at: usize) -> usize {
    NUMBERS_LEN + size_of::<u32>() + excerpts.bytes.row(at).len()
}

/// Append row `at` of `excerpts` to `bytes`, its frame as `frame`.
pub fn pack(excerpts: &ExcerptColumns, at: usize, frame: u32, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    pack_numbers(excerpts, at, bytes);
    bytes[start..start + size_of::<u32>()].copy_from_slice(&frame.to_le_bytes());
    let kept = excerpts.bytes.row(at);
    bytes.extend_from_slice(&(kept.len() as u32).to_le_bytes());
    bytes.extend_from_slice(kept);
}

/// Visit each excerpt that was packed in `bytes`: its frame, and its bytes.
pub fn each(mut bytes: &[u8], mut visit: impl FnMut(u32, &[u8])) {
    while !bytes.is_empty() {
        let frame = u32::from_le_bytes(next(&mut &*bytes));
        let mut len = &bytes[NUMBERS_LEN..];
        let end = NUMBERS_LEN + size_of::<u32>() + u32::from_le_bytes(next(&mut len)) as usize;
        visit(frame, &bytes[..end]);
        bytes = &bytes[end..];
    }
}

/// Append all excerpts that were packed in `bytes` to `excerpts`.
pub fn unpack(mut bytes: &[u8], excerpts: &mut ExcerptColumns) {
    while !bytes.is_empty() {
        unpack_numbers(excerpts, &mut bytes);
        let len = u32::from_le_bytes(next(&mut bytes)) as usize;
        let (kept, rest) = bytes.split_at(len);
        excerpts.bytes.push(kept);
        bytes = rest;
    }
}

/// Take the first `N` bytes, which exist because this module wrote them.
#[inline]
fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, others) = rest.split_first_chunk().expect("a packed excerpt is whole");
    *rest = others;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_from_every_row_before_it() {
        let frames: Vec<u32> = (0..40).map(|row| 10 + row * 3).collect();
        for from in 0..=frames.len() {
            for frame in 0..140 {
                let expected = from.max(frames.partition_point(|&known| known < frame));
                assert_eq!(row_of(&frames, from, frame), expected, "{frame} from row {from}");
            }
        }
    }

    #[test]
    fn excerpts_come_back_in_their_order() {
        let mut excerpts = ExcerptColumns::default();
        excerpts.push_frame(1, 0, 2, b"\0\0\x06\x01\x04\0\0\0\x01", 9);
        excerpts.push_frame(2, -5, 5, b"SSH-2.0-", 8);
        let mut bytes = Vec::new();
        (0..2).for_each(|at| pack(&excerpts, at, excerpts.frame[at], &mut bytes));
        let mut visited = Vec::new();
        each(&bytes, |frame, excerpt| visited.push((frame, excerpt.len())));
        assert_eq!(visited.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(visited.iter().map(|one| one.1).sum::<usize>(), bytes.len());
        let mut back = ExcerptColumns::default();
        unpack(&bytes, &mut back);
        assert_eq!(format!("{back:?}"), format!("{excerpts:?}"));
        assert_eq!(back.payload_offset, [0, -5]);
    }
}
