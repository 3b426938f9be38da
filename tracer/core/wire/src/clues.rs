//! Counts the clues that show which software runs at an endpoint, and keeps a sample of the requests it receives.
//!
//! An endpoint is a server's address and port. A clue is a condition on one message, in either direction: the shape of
//! a request's target, a header, or the first bytes of a payload that is no HTTP message. The caller defines the clues
//! and knows which software they show. They are counted here, while heads are decoded, so that no header needs to be
//! kept for them. The first bytes of a payload are compared wherever in the stream it stands, so a pattern must be too
//! long to match by chance.
//!
//! Cost: one table look-up for a packet without a head; about 100 ns for a head. Memory: a few KiB an endpoint.

use foldhash::fast::RandomState;
use memchr::memchr;
use std::collections::HashMap;

use twintap_protocols::head::{Head, HeadKind};
use twintap_protocols::http1::{self, HeaderMarks};
use twintap_protocols::registry;

/// Marks of headers, and patterns of first bytes, at most: each is a bit of a 64-bit word.
pub const MAX_OF_A_KIND: usize = 64;
/// Places in a payload, ascending from the first, whose bytes show together that it begins with none of the patterns,
/// which mostly fix one of them.
const PROBES: [usize; 3] = [0, 4, 8];
/// Endpoints of one capture that are distinguished, at most; forged traffic may show any number.
const MAX_ENDPOINTS: usize = 1 << 14;
/// Requests of an endpoint that are kept, spread evenly over all of them.
const SAMPLE_LEN: usize = 64;
/// Words of a target's shape, at most.
const WORDS_MOST: usize = 16;
/// Length up to which a sampled method and target are kept; requests rarely differ only after it.
const SAMPLE_TEXT_LIMIT: usize = 160;

/// A condition on one message of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clue {
    /// The message is sent by the endpoint's client; otherwise by the endpoint.
    pub from_client: bool,
    /// The method is one of these; empty for any.
    pub methods: Vec<String>,
    /// The target, without its query, has one of these shapes; empty for all. `/*/#/AUTH_*/**`: any word, a word of
    /// digits, a word that begins so, any number of further words.
    pub targets: Vec<String>,
    /// A header of this name has a value that begins with this text; in any case.
    pub header: Option<(String, String)>,
    /// Instead of all these conditions: a payload that is no HTTP message begins with one of these; `None` is any byte.
    pub begins: Vec<Vec<Option<u8>>>,
    /// Instead of all these conditions: a request of this protocol, as the registry names it.
    pub protocol: Option<String>,
}

/// The clues to count, compiled.
#[derive(Debug)]
pub struct ClueRules {
    pub marks: HeaderMarks,
    /// Those for heads with any marks.
    of_heads: Vec<HeadRule>,
    /// Those that ask for a mark, by the place of its bit.
    of_marks: Vec<Vec<HeadRule>>,
    patterns: Vec<Pattern>,
    /// For each byte at each of [`PROBES`], a bit for each pattern that a payload with it may begin with.
    may_begin: Box<[[u64; 256]; PROBES.len()]>,
    clues_count: usize,
}

#[derive(Debug)]
struct HeadRule {
    clue: usize,
    heads: WantedHeads,
    methods: Vec<Vec<u8>>,
    targets: Vec<Shape>,
}

/// Which heads a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedHeads {
    Kind(HeadKind),
    /// Those of requests of a protocol, by its place in the registry.
    Protocol(u8),
}

#[derive(Debug)]
struct Pattern {
    clue: usize,
    from_client: bool,
    bytes: Vec<Option<u8>>,
    /// Offset and value of the pattern's last fixed byte, which is compared first because it decides for most payloads.
    last: (usize, u8),
}

/// A target's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    words: Vec<Word>,
    /// Any number of further words may follow.
    is_open: bool,
}

/// A word of a target's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Any,
    Digits,
    Text(Vec<u8>),
    Begins(Vec<u8>),
}

/// Addresses (as the capture numbers them) and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub src: (u32, u16),
    pub dst: (u32, u16),
}

/// Clues counted for an endpoint.
#[derive(Clone, Debug, Default)]
pub struct EndpointClues {
    /// Messages with each clue.
    pub counts: Vec<u32>,
    pub requests_count: u32,
    pub answers_count: u32,
    /// It was sent a request of another protocol than HTTP.
    pub is_asked: bool,
    sample: Vec<Box<[u8]>>,
    /// One in 2^`sample_shift` requests is kept.
    sample_shift: u32,
}

/// Clues by endpoint.
#[derive(Debug, Default)]
pub struct Clues {
    rules: ClueRules,
    endpoints: HashMap<(u32, u16), EndpointClues, RandomState>,
}

/// Where clues in heads are noted.
pub struct HeadClues<'a> {
    rules: &'a ClueRules,
    endpoints: &'a mut HashMap<(u32, u16), EndpointClues, RandomState>,
}

impl Default for ClueRules {
    fn default() -> Self {
        Self::new(&[]).expect("none are few")
    }
}

impl ClueRules {
    /// Compile `clues`; their places are their numbers.
    ///
    /// # Errors
    /// What there is too much of, an empty pattern, or a protocol that is not known.
    pub fn new(clues: &[Clue]) -> Result<Self, String> {
        let (mut marks, mut of_heads, mut patterns) = (HeaderMarks::default(), Vec::new(), Vec::new());
        let mut of_marks: Vec<Vec<HeadRule>> = Vec::new();
        for (number, clue) in clues.iter().enumerate() {
            for bytes in &clue.begins {
                let wanted = |place: usize| bytes[place].map(|byte| (place, byte));
                let Some(last) = (0..bytes.len()).rev().find_map(wanted) else {
                    return Err(format!("clue {number} looks for no bytes"));
                };
                patterns.push(Pattern {
                    clue: number,
                    from_client: clue.from_client,
                    bytes: bytes.clone(),
                    last,
                });
            }
            if !clue.begins.is_empty() {
                continue;
            }
            let rule = HeadRule::of(number, clue)?;
            let Some((name, value)) = &clue.header else {
                of_heads.push(rule);
                continue;
            };
            let mark = marks
                .add(name, value)
                .ok_or(format!("more than {MAX_OF_A_KIND} headers"))?;
            let bit = mark.trailing_zeros() as usize;
            of_marks.resize_with(of_marks.len().max(bit + 1), Vec::new);
            of_marks[bit].push(rule);
        }
        if patterns.len() > MAX_OF_A_KIND {
            return Err(format!("more than {MAX_OF_A_KIND} patterns of first bytes"));
        }
        let mut may_begin = Box::new([[0; 256]; PROBES.len()]);
        for (bit, pattern) in patterns.iter().enumerate() {
            for (at, of_bytes) in PROBES.into_iter().zip(&mut *may_begin) {
                let wanted = pattern.bytes.get(at).copied().flatten();
                let is_possible = |byte: usize| wanted.is_none_or(|wanted| usize::from(wanted) == byte);
                let of_possible = (0..).zip(of_bytes).filter(|(byte, _)| is_possible(*byte));
                of_possible.for_each(|(_, bits)| *bits |= 1 << bit);
            }
        }
        Ok(Self {
            marks,
            of_heads,
            of_marks,
            patterns,
            may_begin,
            clues_count: clues.len(),
        })
    }

    /// A bit for each pattern that a payload may begin with, as far as the bytes at [`PROBES`] show; for the hot path.
    #[inline(always)]
    fn possible(&self, payload: &[u8]) -> u64 {
        let of_byte = |(at, of_bytes): (usize, &[u64; 256])| payload.get(at).map(|&byte| of_bytes[usize::from(byte)]);
        let probes = PROBES.into_iter().zip(&*self.may_begin);
        probes.map_while(of_byte).reduce(|all, bits| all & bits).unwrap_or(0)
    }

    /// The rules that may hold for a head with these marks.
    fn of_head(&self, marks: u64) -> impl Iterator<Item = &HeadRule> {
        let of_marks = places(marks).filter_map(|place| self.of_marks.get(place));
        self.of_heads.iter().chain(of_marks.flatten())
    }
}

impl HeadRule {
    fn of(clue_number: usize, clue: &Clue) -> Result<Self, String> {
        let texts = |words: &[String]| words.iter().map(|word| word.clone().into_bytes()).collect();
        let heads = match &clue.protocol {
            Some(name) => WantedHeads::Protocol(registry::place(name).ok_or(format!("no protocol is called {name}"))?),
            None if clue.from_client => WantedHeads::Kind(http1::REQUEST),
            None => WantedHeads::Kind(http1::RESPONSE),
        };
        Ok(Self {
            clue: clue_number,
            heads,
            methods: texts(&clue.methods),
            targets: clue
                .targets
                .iter()
                .map(|text| Shape::of(text))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether it holds for a head that has its mark. Arguments: `words`, those of the head's path.
    fn holds(&self, head: &Head<'_>, words: &[&[u8]], is_target_whole: bool) -> bool {
        let is_wanted = match self.heads {
            WantedHeads::Kind(kind) => kind == head.kind,
            WantedHeads::Protocol(place) => {
                !head.method.is_empty() && registry::place_of_head_kind(head.kind.0) == place
            }
        };
        is_wanted
            && (self.targets.is_empty() || self.targets.iter().any(|shape| shape.fits(words, is_target_whole)))
            && (self.methods.is_empty() || self.methods.iter().any(|method| method == head.method))
    }
}

impl Clues {
    /// Count these clues from here on.
    pub fn set_rules(&mut self, rules: ClueRules) {
        self.rules = rules;
    }

    /// The marks to set on heads, and the counter of clues in heads.
    pub fn of_heads(&mut self) -> (&HeaderMarks, HeadClues<'_>) {
        let rules = &self.rules;
        let endpoints = &mut self.endpoints;
        (&rules.marks, HeadClues { rules, endpoints })
    }

    /// Whether a payload may begin with one of the patterns; for the hot path.
    #[inline(always)]
    pub fn may_begin(&self, payload: &[u8]) -> bool {
        self.rules.possible(payload) != 0
    }

    /// Note the payload of a packet between `ends` that is no head. The end with the lower port is taken for the
    /// server: where both ends send the same kind of messages, as peers of one protocol do, nothing else distinguishes
    /// them. So is one that was sent a request, where the protocol is read.
    #[cold]
    pub fn note_payload(&mut self, payload: &[u8], ends: Ends) {
        for place in places(self.rules.possible(payload)) {
            let pattern = &self.rules.patterns[place];
            if !pattern.begins(payload) {
                continue;
            }
            let (server, client) = if pattern.from_client {
                (ends.dst, ends.src)
            } else {
                (ends.src, ends.dst)
            };
            let clue = pattern.clue;
            let is_asked = || self.endpoints.get(&server).is_some_and(|endpoint| endpoint.is_asked);
            if (server.1 <= client.1 || is_asked())
                && let (_, Some(endpoint)) = of_endpoint(&self.rules, &mut self.endpoints, server)
            {
                endpoint.counts[clue] = endpoint.counts[clue].saturating_add(1);
            }
        }
    }

    /// All endpoints that showed any clue, by address and port.
    pub fn endpoints(&self) -> Vec<((u32, u16), &EndpointClues)> {
        let mut all: Vec<_> = self.endpoints.iter().map(|(&key, clues)| (key, clues)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }
}

impl HeadClues<'_> {
    /// Note a head of a packet between `ends`, with the marks of its headers.
    pub fn note_head(&mut self, head: &Head<'_>, marks: u64, ends: Ends, is_target_whole: bool) {
        if self.rules.clues_count == 0 {
            return;
        }
        let is_request = !head.method.is_empty();
        let is_http = [http1::REQUEST, http1::RESPONSE].contains(&head.kind);
        let (rules, Some(endpoint)) =
            of_endpoint(self.rules, self.endpoints, if is_request { ends.dst } else { ends.src })
        else {
            return;
        };
        let (path, mut room) = (path_of(head.target), [&b""[..]; WORDS_MOST + 1]);
        let words = words_of_path(path, &mut room);
        for rule in rules.of_head(marks) {
            if rule.holds(head, words, is_target_whole) {
                endpoint.counts[rule.clue] = endpoint.counts[rule.clue].saturating_add(1);
            }
        }
        if !is_http {
            endpoint.is_asked |= is_request;
        } else if is_request {
            endpoint.note_request(head.method, path);
        } else {
            endpoint.answers_count = endpoint.answers_count.saturating_add(u32::from(head.status >= 200));
        }
    }
}

/// The counts of an endpoint; none if there are too many endpoints.
fn of_endpoint<'a>(
    rules: &'a ClueRules,
    endpoints: &'a mut HashMap<(u32, u16), EndpointClues, RandomState>,
    key: (u32, u16),
) -> (&'a ClueRules, Option<&'a mut EndpointClues>) {
    if endpoints.len() >= MAX_ENDPOINTS && !endpoints.contains_key(&key) {
        return (rules, None);
    }
    let endpoint = endpoints.entry(key).or_insert_with(|| EndpointClues {
        counts: vec![0; rules.clues_count],
        ..EndpointClues::default()
    });
    (rules, Some(endpoint))
}

impl EndpointClues {
    /// Some of the requests: method, a space, and the target without its query.
    pub fn sample(&self) -> impl Iterator<Item = &[u8]> {
        self.sample.iter().map(AsRef::as_ref)
    }

    fn note_request(&mut self, method: &[u8], path: &[u8]) {
        if self.requests_count & ((1 << self.sample_shift) - 1) == 0 {
            if self.sample.len() == SAMPLE_LEN {
                let mut place = 0;
                self.sample.retain(|_| (place % 2 == 0, place += 1).0);
                self.sample_shift += 1;
            }
            let text = [method, b" ", path].concat();
            self.sample.push(text[..text.len().min(SAMPLE_TEXT_LIMIT)].into());
        }
        self.requests_count = self.requests_count.saturating_add(1);
    }
}

impl Pattern {
    fn begins(&self, payload: &[u8]) -> bool {
        payload.get(self.last.0) == Some(&self.last.1)
            && payload.len() >= self.bytes.len()
            && self
                .bytes
                .iter()
                .zip(payload)
                .all(|(wanted, byte)| wanted.is_none_or(|wanted| wanted == *byte))
    }
}

/// The places of the bits that are set, ascending.
fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < u64::BITS as usize).then_some(place)
    })
}

fn path_of(target: &[u8]) -> &[u8] {
    &target[..memchr(b'?', target).unwrap_or(target.len())]
}

impl Shape {
    fn of(text: &str) -> Result<Self, String> {
        let texts = text.trim_start_matches('/').split('/');
        let words: Vec<Word> = texts.map_while(Word::of).collect();
        if words.len() > WORDS_MOST {
            return Err(format!("a target of more than {WORDS_MOST} words"));
        }
        let is_open = text.split('/').any(|word| word == "**");
        Ok(Self { words, is_open })
    }

    /// Whether a path of these words, the first of them if they are more than [`WORDS_MOST`], has this shape, as far as
    /// the path was captured.
    fn fits(&self, words: &[&[u8]], is_whole: bool) -> bool {
        let has_length = if self.is_open {
            !words.is_empty() && words.len() >= self.words.len()
        } else {
            is_whole && words.len() == self.words.len()
        };
        has_length && self.words.iter().zip(words).all(|(wanted, word)| wanted.is(word))
    }
}

impl Word {
    /// `None` for `**`.
    fn of(text: &str) -> Option<Self> {
        match (text, text.strip_suffix('*')) {
            ("**", _) => None,
            ("*", _) => Some(Self::Any),
            ("#", _) => Some(Self::Digits),
            (_, Some(begin)) => Some(Self::Begins(begin.as_bytes().to_vec())),
            _ => Some(Self::Text(text.as_bytes().to_vec())),
        }
    }

    fn is(&self, word: &[u8]) -> bool {
        match self {
            Self::Any => !word.is_empty(),
            Self::Digits => !word.is_empty() && word.iter().all(u8::is_ascii_digit),
            Self::Text(text) => word == text,
            Self::Begins(begin) => word.starts_with(begin),
        }
    }
}

/// The words of a path that begins with a slash, as many as fill `room`; none of another path.
fn words_of_path<'a, 'b>(path: &'a [u8], room: &'b mut [&'a [u8]]) -> &'b [&'a [u8]] {
    let Some(path) = path.strip_prefix(b"/") else {
        return &[];
    };
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let mut count = 0;
    for (place, word) in room.iter_mut().zip(path.split(|&byte| byte == b'/')) {
        *place = word;
        count += 1;
    }
    &room[..count]
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_protocols::http1::{IdHeaders, flag};

    const WEB: (u32, u16) = (7, 80);
    const TO_WEB: Ends = Ends {
        src: (3, 50_000),
        dst: WEB,
    };
    const FROM_WEB: Ends = Ends {
        src: WEB,
        dst: (3, 50_000),
    };

    fn clues(rules: &[Clue]) -> Clues {
        Clues {
            rules: ClueRules::new(rules).expect("few"),
            ..Clues::default()
        }
    }

    fn note(clues: &mut Clues, text: &str, ends: Ends) {
        let (marks, mut noted) = clues.of_heads();
        let (head, marks) = http1::parse_marked(text.as_bytes(), &IdHeaders::default(), marks).expect("it is a head");
        noted.note_head(&head, marks, ends, head.flags & flag::CUT == 0);
    }

    fn counts(clues: &Clues, endpoint: (u32, u16)) -> Vec<u32> {
        clues.endpoints.get(&endpoint).map_or(vec![], |one| one.counts.clone())
    }

    fn fits(shape: &str, target: &str, is_whole: bool) -> bool {
        let mut room = [&b""[..]; WORDS_MOST + 1];
        let words = words_of_path(path_of(target.as_bytes()), &mut room);
        Shape::of(shape).expect("a shape").fits(words, is_whole)
    }

    #[test]
    fn shapes_of_targets() {
        let cases: &[(&str, &str, bool)] = &[
            ("/*/#/*", "/sdb1/17/AUTH_a", true),
            ("/*/#/*", "/sdb1/17/AUTH_a?format=json", true),
            ("/*/#/*", "/sdb1/17/AUTH_a/", true),
            ("/*/#/*", "/sdb1/17", false),
            ("/*/#/*", "/sdb1/17/AUTH_a/c", false),
            ("/*/#/*", "/sdb1/x7/AUTH_a", false),
            ("/*/#/*/**", "/sdb1/17/AUTH_a", true),
            ("/*/#/*/*/*/**", "/sdb1/17/a/c/o/with/slashes", true),
            ("/*/#/*/*/*/**", "/sdb1/17/a/c", false),
            ("/v1/AUTH_*/**", "/v1/AUTH_test", true),
            ("/v1/AUTH_*/**", "/v1/AUTH_test/c/o", true),
            ("/v1/AUTH_*/**", "/v1/test", false),
            ("/auth/v1.0", "/auth/v1.0", true),
            ("/auth/v1.0", "/auth/v1.0/x", false),
            ("/auth/v1.0", "*", false),
            ("/*", "/", false),
            ("/**", "/", true),
            ("/**", "*", false),
            ("/a/**", "/a/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18", true),
            (
                "/a/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16",
                "/a/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16",
                true,
            ),
            (
                "/a/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16",
                "/a/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18",
                false,
            ),
        ];
        for (shape, target, expected) in cases {
            assert_eq!(fits(shape, target, true), *expected, "{shape} {target}");
        }
    }

    #[test]
    fn of_a_cut_target_what_is_there_counts() {
        let fits = |shape, target| fits(shape, target, false);
        assert!(fits("/v1/AUTH_*/**", "/v1/AUTH_te"));
        assert!(fits("/*/#/*/*/*/**", "/d1/17/AUTH_a/c/o"));
        assert!(!fits("/*/#/*/*", "/d1/17/AUTH_a/c"));
        assert!(!fits("/minio/**", "/mini"));
    }

    #[test]
    fn heads_are_noted_at_the_server() {
        let asked = Clue {
            from_client: true,
            targets: vec!["/v1/**".into()],
            ..Clue::default()
        };
        let put = Clue {
            methods: vec!["PUT".into()],
            ..asked.clone()
        };
        let agent = Clue {
            header: Some(("User-Agent".into(), "proxy-".into())),
            ..asked.clone()
        };
        let server = Clue {
            header: Some(("server".into(), "minio".into())),
            ..Clue::default()
        };
        let mut clues = clues(&[asked, put, agent, server]);
        note(&mut clues, "PUT /v1/a HTTP/1.1\r\n\r\n", TO_WEB);
        note(
            &mut clues,
            "GET /v1/a HTTP/1.1\r\nuser-agent: proxy-server 1\r\n\r\n",
            TO_WEB,
        );
        note(
            &mut clues,
            "GET /x HTTP/1.1\r\nuser-agent: proxy-server 1\r\n\r\n",
            TO_WEB,
        );
        note(&mut clues, "GET /v1/cut", TO_WEB);
        note(&mut clues, "HTTP/1.1 200 OK\r\nServer: MinIO/3\r\n\r\n", FROM_WEB);
        note(&mut clues, "HTTP/1.1 200 OK\r\nServer: nginx\r\n\r\n", FROM_WEB);
        assert_eq!(counts(&clues, WEB), [3, 1, 1, 1]); // a cut target counts as far as it goes
        assert_eq!(
            (
                clues.endpoints[&WEB].requests_count,
                clues.endpoints[&WEB].answers_count
            ),
            (4, 2)
        );
        assert_eq!(clues.endpoints().len(), 1);
    }

    #[test]
    fn first_bytes_are_noted_at_the_end_with_the_lower_port() {
        let greeting = Clue {
            begins: vec![b"SSH-2.0-".iter().map(|&byte| Some(byte)).collect()],
            ..Clue::default()
        };
        let startup = Clue {
            from_client: true,
            begins: vec![vec![Some(0), Some(0), None, None, Some(0), Some(3)]],
            ..Clue::default()
        };
        let mut clues = clues(&[greeting, startup]);
        for (payload, ends, may_begin) in [
            (&b"SSH-2.0-OpenSSH"[..], FROM_WEB, true),
            (b"SSH-2.0-OpenSSH", TO_WEB, true),
            (b"SSH-", FROM_WEB, true),
            (b"SSH-1", FROM_WEB, false),
            (b"\x00\x00\x10\x20\x00\x03\x00\x00user", TO_WEB, true),
            (b"\x00\x00\x10\x20\x00", TO_WEB, true),
            (b"\x00\x00\x10\x20\x01\x03", TO_WEB, false),
            (b"nothing", TO_WEB, false),
            (b"", TO_WEB, false),
        ] {
            assert_eq!(clues.may_begin(payload), may_begin, "{payload:?}");
            clues.note_payload(payload, ends);
        }
        assert_eq!(counts(&clues, WEB), [1, 1]);
        assert_eq!(clues.endpoints().len(), 1, "none at the client");
    }

    #[test]
    fn a_sample_is_spread_over_all_requests() {
        let mut clues = clues(&[Clue {
            from_client: true,
            ..Clue::default()
        }]);
        for number in 0..1_000 {
            note(&mut clues, &format!("GET /{number}?q HTTP/1.1\r\n\r\n"), TO_WEB);
        }
        let kept: Vec<String> = clues.endpoints[&WEB]
            .sample()
            .map(|text| String::from_utf8_lossy(text).into())
            .collect();
        let expected: Vec<String> = (0..1_000).step_by(16).map(|number| format!("GET /{number}")).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn forged_endpoints_are_bounded() {
        let mut clues = clues(&[Clue {
            from_client: true,
            ..Clue::default()
        }]);
        for number in 0..MAX_ENDPOINTS as u32 + 9 {
            note(
                &mut clues,
                "GET / HTTP/1.1\r\n\r\n",
                Ends {
                    dst: (number, 80),
                    ..TO_WEB
                },
            );
        }
        assert_eq!(clues.endpoints.len(), MAX_ENDPOINTS);
    }

    #[test]
    fn too_many_rules_are_refused() {
        let clue = |number: usize| Clue {
            header: Some((format!("x-{number}"), String::new())),
            ..Clue::default()
        };
        assert!(ClueRules::new(&(0..MAX_OF_A_KIND).map(clue).collect::<Vec<_>>()).is_ok());
        assert!(ClueRules::new(&(0..=MAX_OF_A_KIND).map(clue).collect::<Vec<_>>()).is_err());
        assert!(
            ClueRules::new(&[Clue {
                begins: vec![vec![]],
                ..Clue::default()
            }])
            .is_err()
        );
    }
}
