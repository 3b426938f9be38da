//! The trace context that gRPC carries in binary (`grpc-trace-bin`), as a `traceparent`.
//!
//! ```text
//! base64 of  00 | 00 trace id (16 bytes) | 01 parent id (8) | 02 flags (1)   ─▶   00-<trace id>-<parent id>-<flags>
//! ```
//! Between two ends that agreed on it, a zero and the context itself take the place of the base64. A value of another form
//! is none: of a later version only the first fields would be known.
//!
//! Source: OpenCensus, "BinaryEncoding" of trace contexts; gRPC over HTTP/2, "Custom-Metadata" (base64, with or without
//! padding); gRPC G1, "True Binary Metadata".

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

pub const HEADER: &[u8] = b"grpc-trace-bin";

/// Lengths of a context, and of its base64 with padding.
const LEN: usize = 29;
const PADDED_LEN: usize = 40;
/// Where a context has the numbers of its fields, and the version.
const NUMBERS: [(usize, u8); 4] = [(0, 0), (1, 0), (18, 1), (27, 2)];

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The `traceparent` of a value of `grpc-trace-bin`; `None` if it is no trace context.
#[must_use]
pub fn traceparent(value: &[u8]) -> Option<String> {
    let context = match value {
        [0, context @ ..] => context.to_vec(),
        base64 if base64.len() <= PADDED_LEN => BASE64.decode(base64).ok()?,
        _ => return None,
    };
    if context.len() != LEN {
        return None;
    }
    let is_context = NUMBERS.iter().all(|&(at, number)| context[at] == number);
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (trace, parent, flags) = (hex(&context[2..18]), hex(&context[19..27]), hex(&context[28..]));
    is_context.then(|| format!("00-{trace}-{parent}-{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "AABL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE";
    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_with_and_without_padding() {
        for value in [VALUE.to_owned(), format!("{VALUE}=")] {
            assert_eq!(traceparent(value.as_bytes()).as_deref(), Some(TRACEPARENT), "{value}");
        }
        let binary = [vec![0], BASE64.decode(VALUE).expect("base64")].concat();
        assert_eq!(traceparent(&binary).as_deref(), Some(TRACEPARENT));
        assert_eq!(traceparent(&binary[1..]), None);
        assert_eq!(traceparent(&binary[..29]), None);
    }

    #[test]
    fn what_is_no_context() {
        let (cut, long) = (&VALUE[..38], format!("{VALUE}AAAA"));
        let other_version = VALUE.replacen("AA", "AQ", 1);
        let other_field = VALUE.replacen("NgEA", "NgIA", 1).replacen("c2AQ", "c2Ag", 1);
        for value in ["", "=", "AAAA", TRACEPARENT, cut, &long, &other_version, &other_field] {
            assert_eq!(traceparent(value.as_bytes()), None, "{value}");
        }
    }
}
