//! Overwrites the secrets in a header block so that it stays a block: every literal keeps its length in bytes and, if it
//! is compressed, its number of symbols, so the table that a reader builds up from it keeps the sizes that its sender
//! counts.
//!
//! ```text
//! authorization: Bearer s3cr3t   19 symbols in 14 bytes   ─▶   authorization: ---ooooooooooooooo…   in 14 bytes
//! ```
//! 1. The literals of a block are found by its syntax alone, without the table. A name that no field may have shows that
//!    the bytes are no block.
//! 2. A value is redacted as the line of its header would be (`twintap_secrets`), `:path` as a request's target. A value
//!    whose name stands in the table that the connection built up is overwritten whole: nothing shows what it is, unless
//!    it has the form of a `traceparent` or a `grpc-trace-bin`.
//! 3. In a compressed value, the overwritten symbols are replaced by as many others with as many bits.
//!
//! What an overwritten value still shows: its lengths, and the symbols of more than 8 bits in it, if it consists mostly of
//! such.
//!
//! Source: RFC 7541 §5.2 (strings), §6 (representations), appendix B (codes); W3C Trace Context §3.2.

use std::ops::Range;

use httlib_huffman::encode;
use httlib_huffman::encoder::table::ENCODE_TABLE;
use twintap_secrets::SecretRules;

use super::grpc_trace;
use super::hpack::{Input, Representation, decompress, static_name};

/// Symbols of 5, 6, 7 and 8 bits, which replace others.
const SYMBOLS: [u8; 4] = *b"o-xX";
const SHORTEST_BITS: usize = 5;
const OVERWRITTEN: u8 = b'x';
/// Digits of the parts of a `traceparent`.
const TRACEPARENT_LENS: [usize; 4] = [2, 32, 16, 2];

/// Overwrite the secrets of a whole header block. Returns whether it could be read; otherwise none of it may be kept.
#[must_use]
pub fn overwrite_secrets(block: &mut [u8], rules: &SecretRules) -> bool {
    let Some(literals) = literals(block) else {
        return false;
    };
    literals.iter().all(|literal| overwrite_value(block, literal, rules))
}

/// A field that a block spells out.
struct Literal {
    /// `None` if it stands in the table that the connection built up.
    name: Option<Vec<u8>>,
    value: Range<usize>,
    is_compressed: bool,
}

/// The literals of a block; `None` if it is not valid.
fn literals(block: &[u8]) -> Option<Vec<Literal>> {
    let (mut input, mut found) = (Input::of(block), Vec::new());
    while !input.is_empty() {
        let Representation::Literal { place, .. } = input.representation().ok()? else {
            continue;
        };
        let name = if place == 0 {
            Some(input.string().ok().filter(|name| is_field_name(name))?.into_owned())
        } else {
            static_name(place).map(<[u8]>::to_vec)
        };
        let (value, is_compressed) = input.string_range().ok()?;
        found.push(Literal {
            name,
            value,
            is_compressed,
        });
    }
    Some(found)
}

/// Whether a field may have such a name (RFC 9113 §8.2.1).
fn is_field_name(name: &[u8]) -> bool {
    name.iter()
        .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
}

/// Overwrite the secrets of one value. Returns whether it could be read.
fn overwrite_value(block: &mut [u8], literal: &Literal, rules: &SecretRules) -> bool {
    let bytes = &mut block[literal.value.clone()];
    if !literal.is_compressed {
        let redacted = redact(literal.name.as_deref(), bytes, rules);
        bytes.copy_from_slice(&redacted);
        return true;
    }
    let Ok(text) = decompress(bytes) else { return false };
    let redacted = redact(literal.name.as_deref(), &text, rules);
    if redacted == text {
        return true;
    }
    let replaced = replace_symbols(&text, &redacted);
    let mut compressed = Vec::with_capacity(bytes.len());
    let has_len = encode(&replaced, &mut compressed).is_ok() && compressed.len() == bytes.len();
    if has_len {
        bytes.copy_from_slice(&compressed);
    }
    has_len
}

/// A value with its secrets overwritten, of the same length.
fn redact(name: Option<&[u8]>, value: &[u8], rules: &SecretRules) -> Vec<u8> {
    if rules.keeps_all() {
        return value.to_vec();
    }
    let name = name.or(trace_context_name(value));
    let is_text = value.iter().all(|byte| !byte.is_ascii_control());
    let is_trace = || name == Some(grpc_trace::HEADER) && grpc_trace::traceparent(value).is_some();
    let Some(name) = name.filter(|_| is_text || is_trace()) else {
        return vec![OVERWRITTEN; value.len()];
    };
    if name == b":path" {
        let mut target = value.to_vec();
        rules.redact_target(&mut target);
        return target;
    }
    let mut line = [name.strip_prefix(b":").unwrap_or(name), b": ", value, b"\r\n"].concat();
    rules.redact(&mut line);
    let end = line.len() - 2;
    line[end - value.len()..end].to_vec()
}

/// The name of the only header whose values have the form of this one: version, trace id, parent id and flags, in
/// hexadecimal or, in `grpc-trace-bin`, in base64 or bytes.
fn trace_context_name(value: &[u8]) -> Option<&'static [u8]> {
    let lens = value.split(|&byte| byte == b'-').map(<[u8]>::len);
    let is_hex = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f' | b'-');
    let is_traceparent = lens.eq(TRACEPARENT_LENS) && value.iter().all(is_hex);
    let in_binary = || grpc_trace::traceparent(value).map(|_| grpc_trace::HEADER);
    is_traceparent.then_some(&b"traceparent"[..]).or_else(in_binary)
}

/// `text` with the symbols that differ in `redacted` replaced by others, which have as many bits together.
fn replace_symbols(text: &[u8], redacted: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..text.len()).filter(|&at| text[at] != redacted[at]).collect();
    let bits = places.iter().map(|&at| bits_of(text[at])).sum();
    let mut replaced = text.to_vec();
    let mut fill = symbols(places.len(), bits).unwrap_or_else(|| {
        let mut own: Vec<u8> = places.iter().map(|&at| text[at]).collect();
        own.sort_by_key(|&symbol| bits_of(symbol));
        own.iter().map(|&symbol| same_length(symbol)).collect()
    });
    for at in places {
        replaced[at] = fill.pop().unwrap_or(OVERWRITTEN);
    }
    replaced
}

/// So many symbols with so many bits together; `None` if they would need more than 8 bits each.
fn symbols(count: usize, bits: usize) -> Option<Vec<u8>> {
    let (each, longer) = (bits.checked_div(count)?, bits % count);
    let symbol = |bits: usize| SYMBOLS.get(bits.checked_sub(SHORTEST_BITS)?).copied();
    let short = symbol(each)?;
    let long = if longer > 0 { symbol(each + 1)? } else { short };
    Some([vec![short; count - longer], vec![long; longer]].concat())
}

/// A symbol of the same number of bits that is the same for all such symbols.
fn same_length(symbol: u8) -> u8 {
    let first = (0..=u8::MAX).find(|&other| bits_of(other) == bits_of(symbol));
    first.unwrap_or(symbol)
}

fn bits_of(symbol: u8) -> usize {
    usize::from(ENCODE_TABLE[usize::from(symbol)].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::Decoder;

    const SECRET: &str = "Bearer s3cr3t.TOKEN~of~all+tokens==";

    fn string(text: &str, is_compressed: bool) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        if is_compressed {
            bytes.clear();
            encode(text.as_bytes(), &mut bytes).expect("a text");
        }
        assert!(bytes.len() < 127);
        [&[bytes.len() as u8 | if is_compressed { 0x80 } else { 0 }], &bytes[..]].concat()
    }

    /// A literal field that enters the table.
    fn field(name: &str, value: &str, is_compressed: bool) -> Vec<u8> {
        [vec![0x40], string(name, is_compressed), string(value, is_compressed)].concat()
    }

    /// The values of a block's fields; `None` if the block is not valid.
    fn values(block: &[u8]) -> Option<Vec<String>> {
        let mut found = Vec::new();
        let result = Decoder::default().decode(block, |field| {
            let value = field.value.as_deref().unwrap_or_default();
            found.push(String::from_utf8_lossy(value).into_owned());
        });
        result.is_ok().then_some(found)
    }

    fn redact_block(block: &[u8]) -> Vec<u8> {
        let mut bytes = block.to_vec();
        assert!(overwrite_secrets(&mut bytes, SecretRules::built_in()));
        assert_eq!(bytes.len(), block.len());
        bytes
    }

    #[test]
    fn a_secret_is_overwritten_and_the_block_keeps_its_lengths() {
        for is_compressed in [false, true] {
            let block = [
                vec![0x83], // POST
                field("authorization", SECRET, is_compressed),
                field(":path", "/shop.Cart/Get?token=s3cr3t&page=7", is_compressed),
                field(":authority", "shop:443", is_compressed),
                field("x-request-id", "4bf92f35", is_compressed),
            ]
            .concat();
            let (before, after) = (
                values(&block).expect("valid"),
                values(&redact_block(&block)).expect("valid"),
            );
            let lengths = |values: &[String]| values.iter().map(String::len).collect::<Vec<_>>();
            assert_eq!(lengths(&before), lengths(&after));
            assert_eq!([&after[0], &after[3], &after[4]], ["POST", "shop:443", "4bf92f35"]);
            let of = |text: &str, from: &str| text.strip_prefix(from).map(|rest| rest.contains(['s', '3', 't', 'T']));
            assert_eq!(of(&after[1], ""), Some(false), "{}", after[1]);
            assert_eq!(of(&after[2], "/shop.Cart/Get?token="), Some(false), "{}", after[2]);
            assert!(after[2].ends_with("&page=7"), "{}", after[2]);
        }
    }

    #[test]
    fn what_replaces_a_secret_shows_its_lengths_alone() {
        let bits = |text: &str| text.bytes().map(bits_of).sum::<usize>();
        let (one, other) = ("aaaaXXXX", "XXXXaaaa");
        assert_eq!((one.len(), bits(one)), (other.len(), bits(other)));
        let [one, other] = [one, other].map(|value| redact_block(&field("cookie", value, true)));
        assert_eq!(one, other);
    }

    #[test]
    fn secrets_of_any_bytes_are_overwritten() {
        for value in ["", "s", "ss", "\u{1}\u{2}s\u{fe}", "{}{}{}{}s{}{}", "!!!!", "\\\\s<<>>"] {
            let block = field("cookie", value, true);
            let after = values(&redact_block(&block)).expect("valid");
            assert!(!after[0].contains('s'), "{value:?} {after:?}");
        }
    }

    #[test]
    fn a_value_whose_name_the_block_does_not_spell_out_is_overwritten() {
        let block = [vec![0x7e], string("4bf92f35", false)].concat(); // place 62
        assert_eq!(redact_block(&block), [vec![0x7e], string("xxxxxxxx", false)].concat());
        let traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (value, is_kept) in [
            (traced, true),
            (&traced[..54], false),
            (&traced.replace('f', "F"), false),
            ("AABL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE", true), // a grpc-trace-bin
            ("AQBL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE", false),
        ] {
            let block = [vec![0x7e], string(value, true)].concat();
            assert_eq!(redact_block(&block) == block, is_kept, "{value}");
        }
        let mut context = [b'\x07'; 30]; // in bytes, as grpcio sends it
        context[..3].fill(0);
        [context[19], context[28]] = [1, 2];
        let context = std::str::from_utf8(&context).expect("ASCII");
        let spelled_out = |name| field(name, context, false);
        let block = spelled_out("grpc-trace-bin");
        assert_eq!(redact_block(&block), block);
        assert_ne!(
            redact_block(&spelled_out("grpc-tags-bin")),
            spelled_out("grpc-tags-bin")
        );
        let status = [vec![0x48], string("302", false)].concat(); // place 8, of the static table
        assert_eq!(redact_block(&status), status);
    }

    #[test]
    fn nothing_is_overwritten_by_rules_that_call_nothing_secret() {
        let block = field("authorization", SECRET, true);
        let mut bytes = block.clone();
        assert!(overwrite_secrets(&mut bytes, &SecretRules::nothing()));
        assert_eq!(bytes, block);
    }

    #[test]
    fn a_cut_block_is_not_valid_and_never_panics() {
        let block = [field("cookie", SECRET, true), field("a", "b", false)].concat();
        let first = field("cookie", SECRET, true).len();
        for len in 0..block.len() {
            let is_valid = overwrite_secrets(&mut block[..len].to_vec(), SecretRules::built_in());
            assert_eq!(is_valid, len == 0 || len == first, "{len}");
        }
    }
}
