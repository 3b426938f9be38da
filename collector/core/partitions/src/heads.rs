//! A message head as one run of bytes, so that it is written in one piece, whatever the number of its columns.
//!
//! Little-endian, in the order of the columns, without padding. It never leaves the process that wrote it.

use twintap_wire::events::{HeadColumns, Strings};
use twintap_wire::with_head_columns;

macro_rules! define_head_rows {
    ($($name:ident: $kind:ty,)*) => {
        const HEAD_NUMBERS_LEN: usize = 0 $(+ size_of::<$kind>())*;

        fn pack_numbers(heads: &HeadColumns, at: usize, bytes: &mut Vec<u8>) {
            $(bytes.extend_from_slice(&heads.$name[at].to_le_bytes());)*
        }

        fn unpack_numbers(heads: &mut HeadColumns, rest: &mut &[u8]) {
            $(heads.$name.push(<$kind>::from_le_bytes(next(rest)));)*
        }
    };
}

with_head_columns!(define_head_rows);

/// Append row `at` of `heads` to `bytes`, its frame as `frame`.
pub fn pack(heads: &HeadColumns, at: usize, frame: u32, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    pack_numbers(heads, at, bytes);
    bytes[start..start + size_of::<u32>()].copy_from_slice(&frame.to_le_bytes());
    for strings in strings_of(heads) {
        let text = strings.row(at);
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text);
    }
}

/// Visit each head that was packed in `bytes`: its frame, and its bytes.
pub fn each(mut bytes: &[u8], mut visit: impl FnMut(u32, &[u8])) {
    while !bytes.is_empty() {
        let mut rest = bytes;
        let frame = u32::from_le_bytes(next(&mut rest));
        let mut at = HEAD_NUMBERS_LEN;
        for _ in 0..TEXTS_COUNT {
            let mut text = &bytes[at..];
            at += size_of::<u32>() + u32::from_le_bytes(next(&mut text)) as usize;
        }
        visit(frame, &bytes[..at]);
        bytes = &bytes[at..];
    }
}

/// Append all heads that were packed in `bytes` to `heads`.
pub fn unpack(mut bytes: &[u8], heads: &mut HeadColumns) {
    while !bytes.is_empty() {
        unpack_numbers(heads, &mut bytes);
        let HeadColumns {
            method,
            target,
            transaction_id,
            user_agent,
            host_header,
            ..
        } = heads;
        for strings in [method, target, transaction_id, user_agent, host_header] {
            let len = u32::from_le_bytes(next(&mut bytes)) as usize;
            let (text, rest) = bytes.split_at(len);
            strings.push(text);
            bytes = rest;
        }
    }
}

const TEXTS_COUNT: usize = 5;

fn strings_of(heads: &HeadColumns) -> [&Strings; TEXTS_COUNT] {
    [
        &heads.method,
        &heads.target,
        &heads.transaction_id,
        &heads.user_agent,
        &heads.host_header,
    ]
}

/// The first `N` bytes, which are ours and so are there.
#[inline]
fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, others) = rest.split_first_chunk().expect("a packed head is whole");
    *rest = others;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_protocols::http1;

    #[test]
    fn heads_come_back_in_their_order() {
        let mut heads = HeadColumns::default();
        for (frame, text) in [
            (1, "PUT /a HTTP/1.1\r\nHost: b\r\n\r\n"),
            (2, "HTTP/1.1 201 Created\r\n\r\n"),
        ] {
            let head = http1::parse(text.as_bytes(), &http1::IdHeaders::default()).expect("it is a head");
            heads.push(frame, 0, &head);
        }
        let mut bytes = Vec::new();
        (0..2).for_each(|at| pack(&heads, at, heads.frame[at], &mut bytes));
        let mut visited = Vec::new();
        each(&bytes, |frame, head| visited.push((frame, head.len())));
        assert_eq!(visited.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(visited.iter().map(|one| one.1).sum::<usize>(), bytes.len());
        let mut back = HeadColumns::default();
        unpack(&bytes, &mut back);
        assert_eq!(format!("{back:?}"), format!("{heads:?}"));
    }
}
