use super::*;

/// Type and content of an extension.
pub type Extension<'a> = (u16, &'a [u8]);

pub const VERSION_13: Extension<'_> = (43, &[3, 4]);
pub const ALPN_H2: Extension<'_> = (16, b"\0\x03\x02h2");
pub const KEY_SHARE: Extension<'_> = (51, b"\0\x1d\0\x04keys");
const SNI: Extension<'_> = (0, b"\0\x0e\0\0\x0bapi.example");
const ALPN: Extension<'_> = (16, b"\0\x0f\x02\x0a\x0a\x02h2\x08http/1.1");
const VERSIONS: Extension<'_> = (43, b"\x06\x1a\x1a\x03\x04\x03\x03");

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    [&[kind], &len[1..], body].concat()
}

fn extensions(all: &[Extension<'_>]) -> Vec<u8> {
    let each = all.iter().flat_map(|(kind, body)| {
        let header = [kind.to_be_bytes(), (body.len() as u16).to_be_bytes()].concat();
        [header, body.to_vec()].concat()
    });
    let each: Vec<u8> = each.collect();
    [&(each.len() as u16).to_be_bytes()[..], &each].concat()
}

/// A client's hello with a session id of 32 bytes and two cipher suites; random number of `random` bytes.
pub fn client_hello(random: u8, all: &[Extension<'_>]) -> Vec<u8> {
    let fields = [
        &[3, 3][..],
        &[random; 32],
        &[32],
        &[5; 32],
        &[0, 4, 0x13, 1, 0x13, 2, 1, 1],
    ]
    .concat();
    message(CLIENT_HELLO, &[fields, extensions(all)].concat())
}

/// A server's hello without a session id.
pub fn server_hello(random: u8, all: &[Extension<'_>]) -> Vec<u8> {
    let fields = [&[3, 3][..], &[random; 32], &[0, 0x13, 1, 0]].concat();
    message(SERVER_HELLO, &[fields, extensions(all)].concat())
}

pub fn in_record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 3][..], &(content.len() as u16).to_be_bytes(), content].concat()
}

fn in_records(content: &[u8], longest: usize) -> Vec<u8> {
    content.chunks(longest).flat_map(in_record).collect()
}

#[test]
fn a_clients_hello_shows_what_it_asks_for() {
    let hello = client_hello(7, &[SNI, ALPN, KEY_SHARE, VERSIONS, (42, b""), (41, b"ticket")]);
    let found = client_hello_of(&hello);
    assert_eq!(found.server_name, b"api.example");
    assert_eq!(found.alpn, [&b"h2"[..], b"http/1.1"]);
    assert_eq!(found.offered_versions(), [0x0304, 0x0303]);
    assert_eq!((found.random, found.session_id), ([7; 32], &[5; 32][..]));
    assert!(found.offers_psk && found.offers_early_data && !found.offers_ech && found.is_whole);
    let plain = client_hello_of(&hello[..hello.len() - 6]).is_whole;
    assert!(plain, "the content of a ticket is not read");
    let bare = client_hello(7, &[]);
    let bare = client_hello_of(&bare);
    assert_eq!((bare.offered_versions(), bare.server_name), (vec![0x0303], &b""[..]));
    let names: [(&[u8], &[u8]); 4] = [
        (b"\0\x04\0\0\x01a", b"a"),
        (b"\0\x04\x01\0\x01a", b""),
        (b"\0\x04\0\0\x01\n", b""),
        (b"\0\x04\0\0\x09a", b""),
    ];
    for (body, expected) in names {
        let hello = client_hello(7, &[(0, body)]);
        assert_eq!(client_hello_of(&hello).server_name, expected, "{body:?}");
    }
}

fn client_hello_of(message: &[u8]) -> ClientHello<'_> {
    super::client_hello(message).expect("a hello")
}

#[test]
fn a_servers_hello_shows_what_it_chooses() {
    let whole = server_hello(7, &[KEY_SHARE, VERSION_13, (41, b"\0\0")]);
    let found = super::server_hello(&whole).expect("a hello");
    assert_eq!((found.version, found.cipher_suite), (Some(0x0304), 0x1301));
    assert!(found.accepts_psk && found.is_whole && !found.is_retry);
    let old = server_hello(7, &[ALPN_H2]);
    let found = super::server_hello(&old).expect("a hello");
    assert_eq!((found.version, found.alpn), (Some(0x0303), &b"h2"[..]));
    let mut bare = server_hello(7, &[]);
    bare.truncate(bare.len() - 2);
    bare[3] -= 2;
    let found = super::server_hello(&bare).expect("a hello");
    assert_eq!((found.version, found.is_whole), (Some(0x0303), true));
    let mut retry = whole.clone();
    retry[6..38].copy_from_slice(&HELLO_RETRY_REQUEST_RANDOM);
    assert!(super::server_hello(&retry).expect("a hello").is_retry);
}

/// Cut anywhere, and with any byte changed, nothing is said that the whole hello does not say, and nothing panics.
#[test]
fn a_hello_that_is_cut_or_damaged_shows_what_is_left() {
    let client = client_hello(7, &[KEY_SHARE, SNI, ALPN, VERSIONS]);
    let server = server_hello(7, &[KEY_SHARE, VERSION_13]);
    for len in 0..client.len() {
        if let Some(found) = super::client_hello(&client[..len]) {
            assert!(!found.is_whole && (found.server_name.is_empty() || found.server_name == b"api.example"));
        }
    }
    for len in 0..server.len() {
        if let Some(found) = super::server_hello(&server[..len]) {
            assert!(!found.is_whole && found.version.is_none());
        }
    }
    for (hello, at) in [&client, &server]
        .iter()
        .flat_map(|hello| (0..hello.len()).map(move |at| (hello, at)))
    {
        for value in [0, 1, 2, 0x7f, 0xff] {
            let mut damaged = hello.to_vec();
            damaged[at] = value;
            let records = in_records(&damaged, 50);
            super::client_hello(&message_of(&records));
            super::server_hello(&message_of(&records));
            if let Some(parts) = parts_of_records(&records, Keeping::Agent) {
                assert!(parts.parts.is_sorted_by_key(|part| part.start) && parts.kept_len() <= records.len());
            }
        }
    }
}

#[test]
fn a_hello_is_read_across_records_and_what_is_kept_says_the_same() {
    let all = [KEY_SHARE, SNI, ALPN, VERSIONS, (35, b"ticket"), (41, b"identity")];
    let whole = client_hello(7, &all);
    let bare_of = |message: &[u8]| {
        let found = client_hello_of(message);
        (
            found.server_name.to_vec(),
            found.alpn.len(),
            found.versions,
            found.offers_psk,
            found.is_whole,
        )
    };
    for longest in [1, 3, 50, 16_384] {
        let records = in_records(&whole, longest);
        assert_eq!(message_of(&records), whole);
        for keeping in [Keeping::Agent, Keeping::Decoder] {
            let hello = parts_of_records(&records, keeping);
            if longest < 5 && hello.is_none() {
                continue; // its first record is shorter than a hello's header
            }
            let hello = hello.expect("a hello");
            assert_eq!((hello.records_len, hello.is_cut), (records.len(), false));
            let kept = message_of(&hello.redact(&records));
            assert_eq!(bare_of(&kept), bare_of(&whole), "{longest} {keeping:?}");
            for secret in [&b"keys"[..], b"ticket", b"identity"] {
                assert!(!kept.windows(secret.len()).any(|part| part == secret));
            }
            assert_eq!(kept.contains(&5), keeping == Keeping::Decoder, "ids of sessions");
        }
    }
    let cut = parts_of_records(&in_record(&whole)[..90], Keeping::Decoder).expect("a hello");
    assert!(cut.is_cut);
}

#[test]
fn of_the_message_behind_a_hello_in_its_record_the_type_is_kept() {
    let flight = [server_hello(7, &[VERSION_13]), message(11, b"certificate")].concat();
    let records = in_record(&flight);
    let kept = parts_of_records(&records, Keeping::Agent)
        .expect("a hello")
        .redact(&records);
    assert_eq!(kept, records[..records.len() - 14]);
    assert_eq!(message_of(&kept).last(), Some(&11));
}
