//! What header blocks say: the head of a message, as HTTP/1 would say it.
//!
//! ```text
//! HEADERS :method POST  :path /shop.Cart/Get  :authority shop  te trailers   ─▶  method POST, target /shop.Cart/Get
//! HEADERS grpc-status 14  grpc-message …                                     ─▶  result code 14
//! ```
//! 1. The fragments of a block, which CONTINUATION frames may carry, are put together and decoded (`hpack`).
//! 2. Its fields become a head: a request's if method and path are known, a response's if the status is. Fields of which
//!    name or value is not known are left out.
//! 3. What is kept of it is what the table has of HTTP/1 heads (`kept_heads`), with secrets overwritten by the same rules.
//!
//! What a reader says of a block is four bytes of `grpc-status` and the fields, each behind the lengths of its name and
//! its value. An excerpt is a frame's header, and if its block was read the same four bytes and the head; of a stream's
//! reset the result code alone, of GOAWAY that and the last stream.
//!
//! Limits: a block that was not captured whole, and one that an agent overwrote whole (it consists of zeros), says
//! nothing; nor do later blocks of what it would have put into the table.
//!
//! Source: RFC 9113 §6.2, §6.6, §6.10 (fragments), §8.3 (pseudo-headers); gRPC over HTTP/2, "Responses".

use std::ops::Range;

use crate::excerpt::Keeper;
use crate::head::Head;
use crate::numbers::number;
use crate::protocol::{FrameReader, ReadFrame};
use crate::results::{DUE, SAYS_NOTHING};

use super::grpc_results::{of_goaway, of_reset};
use super::grpc_trace;
use super::hpack::{Decoder, Field};
use super::kept_heads::{self, push_field};
use super::{FrameHeader, GOAWAY_LEN, HEADER_LEN, flag, kind};

const CODE_LEN: usize = 4;
const GRPC_TYPE: &[u8] = b"application/grpc";
/// Bytes of a block that came in several frames, at most.
const BLOCK_MOST: usize = 1 << 16;
const PRIORITY_LEN: usize = 5;
const PROMISED_LEN: usize = 4;

/// The header blocks of one direction.
#[derive(Clone, Debug, Default)]
pub struct HeaderBlocks {
    decoder: Decoder,
    block: Vec<u8>,
    /// A fragment of the block is missing.
    is_broken: bool,
}

impl FrameReader for HeaderBlocks {
    fn read(&mut self, frame: &[u8], said: &mut Vec<u8>) {
        let Some((header, body)) = frame.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        let header = FrameHeader::parse(header);
        if header.kind == kind::RST_STREAM
            && let Some(code) = body.first_chunk()
        {
            said.extend_from_slice(&of_reset(u32::from_be_bytes(*code)).to_be_bytes());
        }
        if header.kind == kind::GOAWAY
            && let Some(&[s0, s1, s2, s3, code @ ..]) = body.first_chunk::<GOAWAY_LEN>()
        {
            said.extend_from_slice(&of_goaway(u32::from_be_bytes(code)).to_be_bytes());
            said.extend_from_slice(&[s0 & 0x7f, s1, s2, s3]);
        }
        if !matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION) {
            return;
        }
        if header.kind != kind::CONTINUATION {
            self.block.clear();
            self.is_broken = false;
        }
        if let Some(block) = header.whole_block(body) {
            return self.read_block(&body[block], said);
        }
        match header.fragment(body) {
            Some(part) if self.block.len() + part.len() <= BLOCK_MOST => self.block.extend_from_slice(&body[part]),
            _ => self.is_broken = true,
        }
        if header.flags & flag::END_HEADERS == 0 {
            return;
        }
        if self.is_broken {
            self.decoder.forget();
        } else {
            let block = std::mem::take(&mut self.block);
            self.read_block(&block, said);
        }
        self.block.clear();
    }

    fn lose(&mut self) {
        self.decoder.forget();
        self.block.clear();
        self.is_broken = true;
    }

    fn boxed_clone(&self) -> Box<dyn FrameReader> {
        Box::new(self.clone())
    }
}

impl HeaderBlocks {
    /// Say what a whole block says; nothing if it was overwritten.
    fn read_block(&mut self, block: &[u8], said: &mut Vec<u8>) {
        let is_overwritten = block.len() > 1 && block.iter().all(|&byte| byte == 0);
        if is_overwritten {
            return self.decoder.forget();
        }
        let begun = said.len();
        said.extend_from_slice(&[0; CODE_LEN]);
        let mut code = SAYS_NOTHING;
        _ = self.decoder.decode(block, |field| take_field(field, &mut code, said));
        said[begun..begun + CODE_LEN].copy_from_slice(&code.to_be_bytes());
    }
}

impl FrameHeader {
    /// Where in its body a frame carries a fragment of a block; `None` if the body was not captured whole, or lengths are
    /// not valid.
    pub fn fragment(&self, body: &[u8]) -> Option<Range<usize>> {
        if body.len() < self.payload_len as usize {
            return None;
        }
        let (mut start, mut end) = (0, body.len());
        if self.kind != kind::CONTINUATION && self.flags & flag::PADDED != 0 {
            end = end.checked_sub(usize::from(*body.first()?))?;
            start = 1;
        }
        start += match self.kind {
            kind::HEADERS if self.flags & flag::PRIORITY != 0 => PRIORITY_LEN,
            kind::PUSH_PROMISE => PROMISED_LEN,
            _ => 0,
        };
        (start <= end).then_some(start..end)
    }

    /// Where in its body a frame carries a whole block; `None` if it carries none, or a part of one.
    pub fn whole_block(&self, body: &[u8]) -> Option<Range<usize>> {
        let is_whole = self.flags & flag::END_HEADERS != 0 && matches!(self.kind, kind::HEADERS | kind::PUSH_PROMISE);
        self.fragment(body).filter(|_| is_whole)
    }
}

/// Take a field as far as it is known: into the result code ([`SAYS_NOTHING`]; [`DUE`] if it comes later), or into what
/// is said.
fn take_field(field: &Field<'_>, code: &mut i32, said: &mut Vec<u8>) {
    let (Some(name), Some(value)) = (field.name.as_deref(), field.value.as_deref()) else {
        return;
    };
    match name {
        b"grpc-status" => *code = i32::try_from(number(value)).unwrap_or(SAYS_NOTHING),
        b"content-type" if value.starts_with(GRPC_TYPE) && *code == SAYS_NOTHING => *code = DUE,
        grpc_trace::HEADER => {
            if let Some(traceparent) = grpc_trace::traceparent(value) {
                push_field(said, b"traceparent", traceparent.as_bytes());
            }
        }
        _ => push_field(said, name, value),
    }
}

/// Keep a frame: its header, and what its block says with secrets overwritten.
pub fn keep(frame: &ReadFrame<'_>, keeper: &mut Keeper<'_>) {
    if !keeper.has_room() {
        keeper.notes.left_out();
        return;
    }
    let kept = &mut keeper.excerpts.bytes.bytes;
    kept.extend_from_slice(frame.header);
    if is_goaway(frame.header) {
        kept.extend_from_slice(frame.said);
    } else if let Some((code, fields)) = frame.said.split_at_checked(CODE_LEN) {
        kept.extend_from_slice(code);
        kept_heads::keep(fields, keeper);
    }
    let (number, protocol) = (keeper.frame, keeper.protocol);
    keeper
        .excerpts
        .push_frame(number, frame.at, protocol, b"", frame.header.len());
}

fn is_goaway(header: &[u8]) -> bool {
    header
        .first_chunk()
        .is_some_and(|header| FrameHeader::parse(header).kind == kind::GOAWAY)
}

/// A frame's head with what its excerpt says behind the header.
pub fn with_block<'a>(frame: Head<'a>, said: &'a [u8]) -> Head<'a> {
    let Some((code, rest)) = said.split_first_chunk::<CODE_LEN>() else {
        return frame;
    };
    let frame = Head {
        result_code: i32::from_be_bytes(*code),
        ..frame
    };
    if frame.frame.kind == u16::from(kind::GOAWAY) {
        let last = rest.first_chunk().map_or(-1, |last| u32::from_be_bytes(*last).into());
        return Head {
            content_length: last,
            ..frame
        };
    }
    kept_heads::read(frame, rest).unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use twintap_secrets::SecretRules;

    use super::*;
    use crate::excerpt::{ExcerptColumns, Notes};
    use crate::http1::{HeaderMarks, IdHeaders, KeptLines};
    use crate::http2::PROTOCOL;

    struct NoNotes;

    impl Notes for NoNotes {
        fn head(&mut self, _: &Head<'_>, _: u64, _: bool) {}
        fn head_cut(&mut self) {}
        fn left_out(&mut self) {}
    }

    fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, stream][..], body].concat()
    }

    /// A literal field that goes into the table.
    fn field(name: &str, value: &str) -> Vec<u8> {
        let string = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
        [&[0x40][..], &string(name), &string(value)].concat()
    }

    /// What the trace shows of the frames of one direction: method, target, status, result code, id, stream; and all
    /// bytes that were kept.
    fn rows_of(frames: &[Vec<u8>]) -> (Vec<String>, Vec<u8>) {
        let (mut reader, mut excerpts) = (HeaderBlocks::default(), ExcerptColumns::default());
        for bytes in frames {
            let mut said = Vec::new();
            reader.read(bytes, &mut said);
            let mut keeper = Keeper {
                excerpts: &mut excerpts,
                frame: 1,
                protocol: 2,
                ids: &IdHeaders::default(),
                marks: &HeaderMarks::default(),
                secrets: SecretRules::built_in(),
                notes: &mut NoNotes,
                lines: &mut KeptLines::default(),
            };
            let read = ReadFrame {
                header: &bytes[..HEADER_LEN],
                at: 0,
                said: &said,
            };
            keep(&read, &mut keeper);
        }
        let mut found = Vec::new();
        for row in 0..excerpts.len() {
            (PROTOCOL.read)(&excerpts.row(row), &mut |at, head| {
                assert_eq!((at, head.kind), (HEADER_LEN as u32, super::super::FRAME));
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (method, target, id) = (text(head.method), text(head.target), text(head.transaction_id));
                let (status, code, stream) = (head.status, head.result_code, head.frame.stream);
                found.push(format!("{method} {target} {status} {code} {id} {stream}"));
            });
        }
        (found, excerpts.bytes.bytes)
    }

    fn request(more: &[(&str, &str)]) -> Vec<u8> {
        let fields = more.iter().flat_map(|(name, value)| field(name, value));
        [b"\x83\x86".to_vec(), field(":path", "/shop.Cart/Get"), fields.collect()].concat()
    }

    #[test]
    fn a_call_and_its_answer_are_read() {
        let asked = frame(1, 5, 1, &request(&[("x-request-id", "r1"), (":authority", "shop")]));
        assert_eq!(rows_of(&[asked]).0, ["POST /shop.Cart/Get 0 -1 r1 1"]);
        let context = ("grpc-trace-bin", "AABL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE");
        let other = ("grpc-trace-bin", "AAAA");
        for (context, id) in [(context, "4bf92f3577b34da6a3ce929d0e0e4736"), (other, "r1")] {
            let asked = frame(1, 5, 1, &request(&[context, ("x-request-id", "r1")]));
            assert_eq!(rows_of(&[asked]).0, [format!("POST /shop.Cart/Get 0 -1 {id} 1")]);
        }
        let head = [b"\x88".to_vec(), field("content-type", "application/grpc+proto")].concat();
        let answer = [
            frame(1, 4, 1, &head),
            frame(0, 0, 1, b"data"),
            frame(1, 5, 1, &field("grpc-status", "14")),
        ];
        assert_eq!(rows_of(&answer).0, ["  200 -2  1", "  0 -1  1", "  0 14  1"]);
        let at_once = [head, field("grpc-status", "5")].concat();
        assert_eq!(rows_of(&[frame(1, 5, 1, &at_once)]).0, ["  200 5  1"]);
    }

    #[test]
    fn fields_of_the_first_line_are_found_wherever_they_stand() {
        let asked = [field("x-request-id", "r1"), request(&[("range", "bytes=0-9")])].concat();
        let answered = [field("x-request-id", "r1"), b"\x88".to_vec()].concat();
        for (block, row) in [(asked, "POST /shop.Cart/Get 0 -1 r1 1"), (answered, "  200 -1 r1 1")] {
            assert_eq!(rows_of(&[frame(1, 5, 1, &block)]).0, [row]);
        }
    }

    #[test]
    fn a_block_in_several_frames_is_read_with_the_last() {
        let block = request(&[("x-request-id", "r1")]);
        let padded = [&[3][..], &[0, 0, 0, 0, 200], &block[..9], &[0; 3]].concat();
        let frames = [
            frame(1, 0x29, 7, &padded),
            frame(9, 0, 7, &block[9..20]),
            frame(9, 4, 7, &block[20..]),
        ];
        let rows = ["  0 -1  7", "  0 -1  7", "POST /shop.Cart/Get 0 -1 r1 7"];
        assert_eq!(rows_of(&frames).0, rows);
    }

    #[test]
    fn what_is_missing_makes_only_what_depends_on_it_unknown() {
        let whole = frame(1, 5, 1, &request(&[]));
        let again = b"\x83\x86\xbe"; // the path by its place
        let cases: &[(&str, Vec<Vec<u8>>, &str)] = &[
            (
                "all seen",
                vec![whole.clone(), frame(1, 5, 3, again)],
                "POST /shop.Cart/Get 0 -1  3",
            ),
            ("cut", vec![whole[..20].to_vec(), frame(1, 5, 3, again)], "  0 -1  3"),
            (
                "overwritten",
                vec![frame(1, 5, 1, &[0; 30]), frame(1, 5, 3, again)],
                "  0 -1  3",
            ),
            (
                "literal after a cut",
                vec![whole[..20].to_vec(), frame(1, 5, 3, &request(&[]))],
                "POST /shop.Cart/Get 0 -1  3",
            ),
        ];
        for (name, frames, last) in cases {
            assert_eq!(rows_of(frames).0.last().map(String::as_str), Some(*last), "{name}");
        }
        let mut reader = HeaderBlocks::default();
        let said_again = |reader: &mut HeaderBlocks| {
            let mut said = Vec::new();
            reader.read(&frame(1, 5, 3, again), &mut said);
            String::from_utf8_lossy(&said).into_owned()
        };
        reader.read(&whole, &mut Vec::new());
        assert!(said_again(&mut reader).contains("/shop.Cart/Get"));
        reader.lose();
        let said = said_again(&mut reader);
        assert!(said.contains("POST") && !said.contains("path"), "{said}");
    }

    #[test]
    fn no_secret_is_kept() {
        let secrets = [
            ("authorization", "Bearer planted-1"),
            ("cookie", "planted-2"),
            ("x-api-key", "planted-3"),
            ("grpc-metadata", "planted-4"),
            ("referer", "http://u:planted-5@h/"),
        ];
        let block = [request(&secrets), field(":path", "/a?token=planted-6")].concat();
        let (rows, kept) = rows_of(&[
            frame(1, 5, 1, &block),
            frame(1, 5, 1, &field("grpc-message", "planted-7")),
        ]);
        assert_eq!(rows[0], "POST /a?token=xxxxxxxxx 0 -1  1");
        assert!(
            !String::from_utf8_lossy(&kept).contains("planted"),
            "{}",
            String::from_utf8_lossy(&kept)
        );
    }

    #[test]
    fn a_value_holds_no_line_break_and_a_target_no_space() {
        let block = [
            request(&[("x-request-id", "r\r\nx-trans-id: forged")]),
            field(":path", "/a b\r\nc"),
        ]
        .concat();
        assert_eq!(
            rows_of(&[frame(1, 5, 1, &block)]).0,
            ["POST /a?b??c 0 -1 r??x-trans-id: forged 1"]
        );
    }
}
