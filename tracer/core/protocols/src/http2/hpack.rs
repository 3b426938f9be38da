//! Decodes header blocks of a direction that is only listened to (HPACK, RFC 7541).
//!
//! A block names most fields by their places in a table that both ends build up from the connection's first block on.
//! Who begins to listen later, or misses a block, lacks the older part of that table: its newer part is known all the
//! same, since places count from the newest entry. Fields of the part that is not known are given without name and value.
//!
//! ```text
//! block 1   :path /a (new, 62)  user-agent x (new)     table  [user-agent x] [:path /a]
//! block 2   62  63                                     fields user-agent x, :path /a
//! missed    …                                          table  ?
//! block 4   grpc-status 0 (new)  64                    fields grpc-status 0, ?
//! ```
//!
//! # Invariants
//! - A name or value that is given is the one that was sent: after a block that cannot be decoded all older entries are
//!   forgotten.
//! - Memory: [`TABLE_MOST`] bytes of entries, [`STRING_MOST`] of a string.
//!
//! Source: RFC 7541 §2.3 (tables), §4 (sizes), §5 (integers, strings), §6 (representations), appendix A.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use httlib_huffman::{DecoderSpeed, decode};

/// Bytes of entries that are remembered, by the count of RFC 7541 §4.1. A peer may allow more; then the oldest are
/// forgotten earlier than the sender forgets them.
const TABLE_MOST: usize = 1 << 16;
/// The size of the table until its sender changes it (RFC 9113 §6.5.2).
const TABLE_INITIAL: usize = 4096;
/// What an entry counts for, beside its name and value (RFC 7541 §4.1).
const ENTRY_OVERHEAD: usize = 32;
/// Longest string that is decoded, decoded or not.
const STRING_MOST: usize = 1 << 14;
/// Fields of one block, at most.
const FIELDS_MOST: usize = 1024;

/// A field; what is not known of it is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: Option<Cow<'a, [u8]>>,
    pub value: Option<Cow<'a, [u8]>>,
}

/// The block, or the rest of it, is not valid; fields before were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBlockError;

/// The decoder of one direction.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The newest first.
    entries: VecDeque<Field<'static>>,
    /// Size of all entries.
    size: usize,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            limit: TABLE_INITIAL,
        }
    }
}

impl Decoder {
    /// Forget the table: a block was missed.
    pub fn forget(&mut self) {
        self.entries.clear();
        self.size = 0;
    }

    /// Decode a whole block, and call `emit` for each of its fields.
    pub fn decode(&mut self, block: &[u8], mut emit: impl FnMut(&Field<'_>)) -> Result<(), InvalidBlockError> {
        let mut rest = Input::of(block);
        for _ in 0..FIELDS_MOST {
            if rest.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.take_field(&mut rest, &mut emit) {
                self.forget();
                return Err(error);
            }
        }
        self.forget();
        Err(InvalidBlockError)
    }

    /// Take the next field, or the next change of the table's size.
    fn take_field(&mut self, rest: &mut Input<'_>, emit: &mut impl FnMut(&Field<'_>)) -> Result<(), InvalidBlockError> {
        let (is_new, place) = match rest.representation()? {
            Representation::Indexed { place } => {
                emit(&self.at(place)?);
                return Ok(());
            }
            Representation::TableSize { size } => {
                self.resize(size);
                return Ok(());
            }
            Representation::Literal { is_new, place } => (is_new, place),
        };
        let name = if place == 0 {
            Some(rest.string()?)
        } else {
            self.at(place)?.name
        };
        let value = Some(rest.string()?);
        let field = Field { name, value };
        emit(&field);
        if is_new {
            let entry = field.into_owned();
            self.insert(entry);
        }
        Ok(())
    }

    /// The field at a place of both tables, from 1.
    fn at(&self, place: usize) -> Result<Field<'_>, InvalidBlockError> {
        let before = place.checked_sub(1).ok_or(InvalidBlockError)?;
        if let Some((name, value)) = STATIC_TABLE.get(before) {
            return Ok(Field::of(name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(before - STATIC_TABLE.len());
        Ok(entry.map(Field::by_reference).unwrap_or_default())
    }

    fn insert(&mut self, entry: Field<'static>) {
        self.size += size_of(&entry);
        self.entries.push_front(entry);
        self.evict();
    }

    fn resize(&mut self, size: usize) {
        self.limit = size.min(TABLE_MOST);
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.limit
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= size_of(&oldest);
        }
    }
}

impl<'a> Field<'a> {
    fn of(name: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            name: Some(name.into()),
            value: Some(value.into()),
        }
    }

    /// The same, which borrows its texts from this one.
    fn by_reference(&'a self) -> Self {
        Self {
            name: self.name.as_deref().map(Cow::Borrowed),
            value: self.value.as_deref().map(Cow::Borrowed),
        }
    }

    fn into_owned(self) -> Field<'static> {
        let owned = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        Field {
            name: self.name.map(owned),
            value: self.value.map(owned),
        }
    }
}

/// A field of which the name is not known counts for less than its sender counts it, so it is kept longer, which does no
/// harm.
fn size_of(field: &Field<'_>) -> usize {
    let len = |text: &Option<Cow<'_, [u8]>>| text.as_ref().map_or(0, |text| text.len());
    ENTRY_OVERHEAD + len(&field.name) + len(&field.value)
}

/// How a field begins (RFC 7541 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// The field at a place of both tables.
    Indexed { place: usize },
    /// A field that is spelled out: its name follows if `place` is 0, and its value. `is_new` if it enters the table.
    Literal { is_new: bool, place: usize },
    /// No field: the table's new size.
    TableSize { size: usize },
}

/// The name at a place of the static table; `None` if the place is beyond it.
pub fn static_name(place: usize) -> Option<&'static [u8]> {
    let entry = STATIC_TABLE.get(place.checked_sub(1)?);
    entry.map(|(name, _)| name.as_bytes())
}

/// The text of a compressed string.
pub fn decompress(bytes: &[u8]) -> Result<Vec<u8>, InvalidBlockError> {
    let mut text = Vec::with_capacity(2 * bytes.len());
    decode(bytes, &mut text, DecoderSpeed::FourBits).map_err(|_| InvalidBlockError)?;
    Ok(text)
}

/// A block that is read from its beginning.
pub struct Input<'a> {
    block: &'a [u8],
    /// What is not read yet.
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn of(block: &'a [u8]) -> Self {
        Self { block, bytes: block }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The beginning of the next field.
    pub fn representation(&mut self) -> Result<Representation, InvalidBlockError> {
        let first = *self.bytes.first().ok_or(InvalidBlockError)?;
        Ok(match first {
            0x80.. => Representation::Indexed {
                place: self.integer(7)?,
            },
            0x40.. => Representation::Literal {
                is_new: true,
                place: self.integer(6)?,
            },
            0x20.. => Representation::TableSize { size: self.integer(5)? },
            _ => Representation::Literal {
                is_new: false,
                place: self.integer(4)?,
            },
        })
    }

    /// An integer in the last `bits` of the first byte, and perhaps the bytes after it (RFC 7541 §5.1).
    fn integer(&mut self, bits: u32) -> Result<usize, InvalidBlockError> {
        let mask = (1_usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(self.byte()?);
            value += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(InvalidBlockError)
    }

    /// A string; borrowed unless it is compressed.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, InvalidBlockError> {
        let (range, is_compressed) = self.string_range()?;
        let bytes = &self.block[range];
        if is_compressed {
            decompress(bytes).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(bytes))
        }
    }

    /// Where the bytes of a string are in the block, and whether they are compressed (RFC 7541 §5.2).
    pub fn string_range(&mut self) -> Result<(Range<usize>, bool), InvalidBlockError> {
        let is_compressed = self.bytes.first().ok_or(InvalidBlockError)? & 0x80 != 0;
        let len = self.integer(7)?;
        let rest = self.bytes.get(len..).filter(|_| len <= STRING_MOST);
        self.bytes = rest.ok_or(InvalidBlockError)?;
        let end = self.block.len() - self.bytes.len();
        Ok((end - len..end, is_compressed))
    }

    fn byte(&mut self) -> Result<u8, InvalidBlockError> {
        let (first, rest) = self.bytes.split_first().ok_or(InvalidBlockError)?;
        self.bytes = rest;
        Ok(*first)
    }
}

/// RFC 7541, appendix A.
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| byte.is_ascii_hexdigit()).collect();
        let value = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
        digits
            .chunks(2)
            .map(|pair| value(pair[0]) << 4 | value(pair[1]))
            .collect()
    }

    /// The fields of a block as `name: value`, `?` for what is not known.
    fn fields(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let text = |part: &Option<Cow<'_, [u8]>>| {
            part.as_ref()
                .map_or("?".into(), |part| String::from_utf8_lossy(part).into_owned())
        };
        let result = decoder.decode(block, |field| {
            found.push(format!("{}: {}", text(&field.name), text(&field.value)))
        });
        if result.is_err() {
            found.push("invalid".into());
        }
        found
    }

    /// RFC 7541 appendix C.3 and C.4: the same three requests, plain and compressed.
    const PLAIN: [&str; 3] = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    const COMPRESSED: [&str; 3] = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    const REQUESTS: [&[&str]; 3] = [
        &[
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
        ],
        &[
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
            "cache-control: no-cache",
        ],
        &[
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ],
    ];

    #[test]
    fn requests_of_the_standard_are_read() {
        for blocks in [PLAIN, COMPRESSED] {
            let mut decoder = Decoder::default();
            for (block, expected) in blocks.iter().zip(REQUESTS) {
                assert_eq!(fields(&mut decoder, &hex(block)), expected);
            }
            assert_eq!(decoder.size, 164, "as appendix C has it");
        }
    }

    #[test]
    fn responses_of_the_standard_push_entries_out() {
        let blocks = [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
        ];
        let mut decoder = Decoder::default();
        decoder.resize(256);
        assert_eq!(fields(&mut decoder, &hex(blocks[0]))[0], ":status: 302");
        assert_eq!(decoder.size, 222);
        let second = fields(&mut decoder, &hex(blocks[1]));
        assert_eq!(second[..2], [":status: 307", "cache-control: private"]);
        assert_eq!((decoder.size, decoder.entries.len()), (222, 4));
    }

    #[test]
    fn what_was_sent_before_is_not_known_and_what_comes_after_is() {
        let mut late = Decoder::default();
        let second = fields(&mut late, &hex(PLAIN[1]));
        assert_eq!(
            second,
            [
                ":method: GET",
                ":scheme: http",
                ":path: /",
                "?: ?",
                "cache-control: no-cache"
            ]
        );
        let third = fields(&mut late, &hex(PLAIN[2]));
        assert_eq!(third[3..], ["?: ?", "custom-key: custom-value"]);
        assert_eq!(
            fields(&mut late, &[0xbe, 0xbf, 0xc0]),
            ["custom-key: custom-value", "cache-control: no-cache", "?: ?"]
        );
        late.forget();
        assert_eq!(fields(&mut late, &[0xbe]), ["?: ?"]);
        assert_eq!(
            fields(&mut late, b"\x7e\x01v\xbe"),
            ["?: v", "?: v"],
            "a name of the part that is not known"
        );
    }

    #[test]
    fn a_block_that_is_not_valid_makes_all_older_entries_unknown() {
        let cases: &[&[u8]] = &[
            b"\x80",
            b"\x40\x05abc",
            b"\x40\x01a",
            b"\x40\x81\xff\x01b",
            b"\xff\xff\xff\xff\xff\xff",
            b"\x00\x7f\xff\xff\xff\x7f",
        ];
        for block in cases {
            let mut decoder = Decoder::default();
            fields(&mut decoder, &hex(PLAIN[0]));
            assert_eq!(
                fields(&mut decoder, block).last().map(String::as_str),
                Some("invalid"),
                "{block:?}"
            );
            assert_eq!(fields(&mut decoder, &[0xbe]), ["?: ?"], "{block:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_no_prefix_panics() {
        let mut decoder = Decoder::default();
        fields(&mut decoder, b"\x3f\xff\xff\xff\x7f");
        assert_eq!(decoder.limit, TABLE_MOST);
        let entry = [&b"\x40\x01n\x7f\x81\x01"[..], &[b'v'; 256]].concat();
        for _ in 0..10_000 {
            fields(&mut decoder, &entry);
        }
        assert!(decoder.size <= TABLE_MOST);
        for block in PLAIN.iter().chain(&COMPRESSED) {
            let block = hex(block);
            (0..block.len()).for_each(|len| _ = fields(&mut Decoder::default(), &block[..len]));
        }
    }
}
