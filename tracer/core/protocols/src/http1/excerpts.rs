//! Keeps the parts of a head that the tables need: its first line, some headers, and the empty line at its end.
//! Reading these gives the same head as reading all of it.

use std::ops::{ControlFlow, Range};

use twintap_secrets::SecretRules;

use super::{HeaderMarks, IdChoice, Meaning, REQUEST, end_of_message, flag, may_be_head, may_hold_secret, parse_lines};
use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::head::Head;

/// Heads read of one packet, at most.
const PIPELINE_LIMIT: usize = 64;
/// `HTTP/1.1 200`: the reason phrase after it is not needed.
const STATUS_LINE_LEN: usize = 12;

/// Keep the heads that a payload begins with; false if there is none.
pub fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    let mut at = 0;
    for number in 0..PIPELINE_LIMIT {
        if !payload.bytes.get(at..).is_some_and(may_be_head) {
            return number > 0;
        }
        match keep_head(payload.bytes, at, keeper) {
            ControlFlow::Continue(len) => at = at.saturating_add(len),
            ControlFlow::Break(is_head) => return number > 0 || is_head,
        }
    }
    true
}

/// Read the messages of an excerpt.
pub fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if let Some(mut head) = read_text(excerpt.bytes) {
        if head.flags & flag::CUT == 0 {
            head.len = excerpt.stream_len;
        }
        emit(0, &head);
    }
}

/// The head in a text that was kept.
fn read_text(text: &[u8]) -> Option<Head<'_>> {
    parse_lines(text, IdChoice::LastOther, &HeaderMarks::default(), None).map(|(head, _)| head)
}

/// Notify of a head whose kept bytes are those of the excerpts from `begun` on.
fn note_head(head: &Head<'_>, marks: u64, begun: usize, is_target_whole: bool, keeper: &mut Keeper<'_>) {
    let target = begun + if head.kind == REQUEST { head.method.len() + 1 } else { 0 };
    let shown = Head {
        target: &keeper.excerpts.bytes.bytes[target..target + head.target.len()],
        ..*head
    };
    keeper.notes.head(&shown, marks, is_target_whole);
}

/// Keep the head at `at`. Continues with the length of its message if another one may follow; otherwise breaks with
/// whether there was a head.
fn keep_head(payload: &[u8], at: usize, keeper: &mut Keeper<'_>) -> ControlFlow<bool, usize> {
    let rest = &payload[at..];
    keeper.lines.clear();
    let Some((head, marks)) = parse_lines(rest, IdChoice::Of(keeper.ids), keeper.marks, Some(keeper.lines)) else {
        return ControlFlow::Break(false);
    };
    if !keeper.has_room() {
        keeper.notes.left_out();
        return ControlFlow::Break(true);
    }
    let is_cut = head.flags & flag::CUT != 0;
    if is_cut {
        keeper.notes.head_cut();
    }
    let stream_len = if is_cut { rest.len() as u32 } else { head.len };
    let kept = &mut keeper.excerpts.bytes.bytes;
    let begun = kept.len();
    keeper.lines.append_to(kept, rest, keeper.secrets);
    keeper.push_kept(at, keeper.lines.solid_len(), stream_len);
    let is_target_whole = !is_cut || keeper.lines.is_first_line_whole;
    note_head(&head, marks, begun, is_target_whole, keeper);
    end_of_message(&head).map_or(ControlFlow::Break(true), ControlFlow::Continue)
}

/// Lines of a head that are kept, as parts of it.
#[derive(Debug, Default)]
pub struct KeptLines {
    /// Ascending, with a gap between any two.
    parts: Vec<Range<usize>>,
    /// Values in which secrets are overwritten.
    values: Vec<Range<usize>>,
    is_first_line_whole: bool,
}

impl KeptLines {
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.values.clear();
    }

    /// Arguments: `behind`, the offset of the next line; `None` if the first line is cut.
    pub(super) fn note_start_line(&mut self, head: &Head<'_>, payload: &[u8], behind: Option<usize>) {
        self.is_first_line_whole = behind.is_some();
        let line_end = behind.unwrap_or(payload.len());
        if head.kind != REQUEST {
            let line_break = line_end - behind.map_or(0, |_| line_break_len(&payload[..line_end]));
            self.add(0..STATUS_LINE_LEN.min(line_break));
            self.add(line_break..line_end);
            return;
        }
        let target = head.method.len() + 1;
        let kept_end = target + head.target.len();
        let left_out = payload[kept_end..line_end].iter().position(|&byte| byte == b' ');
        let version = left_out.map_or(line_end, |len| kept_end + len);
        self.values.push(target..kept_end);
        self.add(0..kept_end);
        self.add(version..line_end);
    }

    pub(super) fn note_header(&mut self, meaning: Meaning, payload: &[u8], line: Range<usize>, value: &[u8]) {
        if meaning == Meaning::Nothing {
            return;
        }
        let start = value.as_ptr().addr() - payload.as_ptr().addr();
        let (line_break, end) = (line.end - line_break_len(&payload[..line.end]), start + value.len());
        self.add(line.start..end);
        self.add(line_break..line.end);
        if meaning == Meaning::Field && may_hold_secret(value) {
            self.values.push(start..end);
        }
    }

    /// Keep a header's name, and `shown` parts of its value.
    pub(super) fn note_parts(&mut self, payload: &[u8], line: Range<usize>, value: &[u8], shown: [Range<usize>; 2]) {
        let value_start = value.as_ptr().addr() - payload.as_ptr().addr();
        let colon = payload[line.clone()].iter().position(|&byte| byte == b':');
        let name_end = line.start + colon.map_or(0, |at| at + 1);
        let shown = shown.map(|part| value_start + part.start..value_start + part.end);
        self.add(line.start..name_end);
        shown.into_iter().for_each(|part| self.add(part));
        self.add(line.end - line_break_len(&payload[..line.end])..line.end);
    }

    pub(super) fn note_end(&mut self, line: Range<usize>) {
        self.add(line);
    }

    /// Add a part, to the last one if it continues that.
    fn add(&mut self, part: Range<usize>) {
        match self.parts.last_mut() {
            _ if part.is_empty() => {}
            Some(last) if last.end == part.start => last.end = part.end,
            _ => self.parts.push(part),
        }
    }

    /// Bytes before the first that is left out.
    fn solid_len(&self) -> usize {
        self.parts.first().map_or(0, Range::len)
    }

    /// Append all parts of `head` to `kept`, their secrets overwritten.
    fn append_to(&self, kept: &mut Vec<u8>, head: &[u8], rules: &SecretRules) {
        let mut values = self.values.iter().peekable();
        for part in &self.parts {
            let begun = kept.len();
            kept.extend_from_slice(&head[part.clone()]);
            while let Some(value) = values.next_if(|value| value.start < part.end) {
                let start = begun + (value.start - part.start);
                rules.redact_target(&mut kept[start..start + value.len()]);
            }
        }
    }
}

/// Length of the line break that `bytes` end with.
fn line_break_len(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r\n") { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::excerpt::{ExcerptColumns, Notes, read_kept};
    use crate::http1::{IdHeaders, PROTOCOL, parse};

    fn payload(bytes: &[u8]) -> Payload<'_> {
        let wire_len = bytes.len();
        Payload { bytes, wire_len }
    }

    #[test]
    fn what_is_kept_of_a_head_reads_as_all_of_it() {
        let long = format!(
            "GET /{} HTTP/1.1\r\nUser-Agent: {}\r\n\r\n",
            "t".repeat(5_000),
            "u".repeat(900)
        );
        let heads = [
            "PUT /v1/a/c/o HTTP/1.1\r\nHost: h\r\nX-Trans-Id: tx1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
            "GET /a HTTP/1.0\nX-Request-Id: r\nX-Other: o\nX-Trans-Id: t\nRange: bytes=1-9\n\n",
            "HTTP/1.1 206 Partial Content\r\nServer: s\r\nContent-Range: bytes 1-9/70\r\nConnection: close\r\n\r\n",
            "GET /k HTTP/1.1\r\nHost: b.s3.example.com:80\r\nAuthorization: AWS4-HMAC-SHA256 Credential=A/1/e/s3/aws4_request, \
             S=1\r\nx-amz-date: 1\r\nx-amz-copy-source: /b/k\r\nX-Amz-Meta-A: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-Amz-Request-Id: a\r\nX-Openstack-Request-Id: tx\r\nx-amz-id-2: b\r\n\r\n",
            "HTTP/1.1 200\r\nContent-Type: text/event-stream; a=b\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntraceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01\r\n\r\n",
            &long,
        ];
        for head in heads {
            for len in 0..=head.len() {
                let bytes = &head.as_bytes()[..len];
                let (ids, mut found) = (IdHeaders::default(), None);
                read_kept(&payload(bytes), &ids, &mut |at, head| {
                    assert_eq!((at, found), (0, None));
                    assert_eq!(Some(*head), parse(bytes, &ids), "{len} bytes of {bytes:?}");
                    found = Some(head.status);
                });
                assert_eq!(found.is_some(), parse(bytes, &ids).is_some());
            }
        }
    }

    struct Targets(Vec<String>);

    impl Notes for Targets {
        fn head(&mut self, head: &Head<'_>, _: u64, _: bool) {
            self.0.push(String::from_utf8_lossy(head.target).into());
        }
        fn head_cut(&mut self) {}
        fn left_out(&mut self) {}
    }

    #[test]
    fn secrets_are_overwritten_before_anything_is_kept() {
        let head = b"GET /o?token=secret&a=b HTTP/1.1\r\nX-Auth-Token: secret\r\nUser-Agent: http://u:secret@h/\r\n\
            Range: bytes=1-9,?token=secret,2-3\r\nX-Trans-Id: tx\r\n\r\n";
        let (mut excerpts, mut targets) = (ExcerptColumns::default(), Targets(Vec::new()));
        let mut keeper = Keeper {
            excerpts: &mut excerpts,
            frame: 1,
            protocol: 0,
            ids: &IdHeaders::default(),
            marks: &HeaderMarks::default(),
            secrets: SecretRules::built_in(),
            notes: &mut targets,
            lines: &mut KeptLines::default(),
        };
        assert!((PROTOCOL.keep)(&payload(head), &mut keeper));
        let kept = String::from_utf8_lossy(excerpts.row(0).bytes).into_owned();
        assert_eq!(
            kept,
            "GET /o?token=xxxxxx&a=b HTTP/1.1\r\nUser-Agent: http://xxxxxxxx@h/\r\nRange: bytes=1-9,?token=xxxxxxxxxx\r\n\
             X-Trans-Id: tx\r\n\r\n"
        );
        assert_eq!(targets.0, ["/o?token=xxxxxx&a=b"]);
        assert_eq!((excerpts.stream_len[0], excerpts.solid_len[0]), (head.len() as u32, 34));
    }
}
