use twintap_protocols::excerpt::{ExcerptColumns, Keeper, Payload};
use twintap_protocols::http1::{HeaderMarks, IdHeaders, KeptLines};
use twintap_protocols::registry::REGISTRY;
use twintap_protocols::tls::payload_policy;
use twintap_secrets::SecretRules;

use super::*;

const CLIENT: bool = true;
const SERVER: bool = false;
const VERSION_13: &[u8] = &[0, 43, 0, 2, 3, 4];
const PSK: &[u8] = &[0, 41, 0, 2, 0, 0];
const H2: &[u8] = b"\0\x10\0\x05\0\x03\x02h2";
const ASKED: &[u8] =
    b"\0\0\0\x10\0\x0e\0\0\x0bApi.Example\0\x10\0\x05\0\x03\x02h2\0\x2b\0\x05\x04\x03\x04\x03\x03\0\x2a\0\0";

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(content.len() as u16).to_be_bytes(), content].concat()
}

fn hello(kind: u8, session: u8, fields: &[u8], extensions: &[u8]) -> Vec<u8> {
    let session = if session == 0 {
        vec![0]
    } else {
        [&[32][..], &[session; 32]].concat()
    };
    let len = (extensions.len() as u16).to_be_bytes();
    let body = [&[3, 3][..], &[7; 32], &session, fields, &len, extensions].concat();
    [&[kind, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

fn client_hello(session: u8, extensions: &[u8]) -> Vec<u8> {
    hello(1, session, &[0, 2, 0x13, 1, 1, 0], extensions)
}

fn server_hello(session: u8, extensions: &[u8]) -> Vec<u8> {
    hello(2, session, &[0xc0, 0x30, 0], extensions)
}

fn of_handshake(content: &[u8]) -> Vec<u8> {
    record(22, content)
}

/// The handshake that packets show, each as who sent it, its place, and its payload.
fn handshake(packets: &[(bool, i64, Vec<u8>)]) -> Option<TlsHandshake> {
    let protocol = place_of_head_kind(tls::RECORD.0);
    let (mut columns, mut packet_of) = (ExcerptColumns::default(), Vec::new());
    for (number, (_, _, payload)) in packets.iter().enumerate() {
        let mut keeper = Keeper {
            excerpts: &mut columns,
            frame: number as u32,
            protocol,
            ids: &IdHeaders::default(),
            marks: &HeaderMarks::default(),
            secrets: SecretRules::built_in(),
            notes: &mut Silent,
            lines: &mut KeptLines::default(),
        };
        let payload = Payload {
            bytes: payload,
            wire_len: payload.len(),
        };
        (REGISTRY[usize::from(protocol)].keep)(&payload, &mut keeper);
    }
    packet_of.extend(columns.frame.iter().map(|frame| &packets[*frame as usize]));
    let excerpts = Excerpts {
        payload_offset: &columns.payload_offset,
        protocol: &columns.protocol,
        stream_len: &columns.stream_len,
        solid_len: &columns.solid_len,
        offsets: &columns.bytes.offsets,
        bytes: &columns.bytes.bytes,
    };
    let places = Places {
        connection_id: &vec![5; packet_of.len()],
        from_client: &packet_of.iter().map(|one| one.0).collect::<Vec<_>>(),
        stream_offset: &packet_of.iter().map(|one| one.1).collect::<Vec<_>>(),
        excerpt_row: &(0..packet_of.len() as u32).collect::<Vec<_>>(),
    };
    let found = read_handshakes(&excerpts, &places, 4, 3);
    assert!(found.connection.iter().all(|number| *number == 1));
    let text = |column: &TextColumn| column.bytes[..column.offsets.clone().into_values()[1] as usize].to_vec();
    (!found.connection.is_empty()).then(|| TlsHandshake {
        resumption: [
            Resumption::Unknown,
            Resumption::Full,
            Resumption::Resumed,
            Resumption::Psk,
        ][found.resumption[0] as usize],
        has_client_hello: found.has_client_hello[0],
        has_server_hello: found.has_server_hello[0],
        early_data_offered: found.early_data_offered[0],
        ech_offered: found.ech_offered[0],
        retried: found.retried[0],
        alert_from_server: found.alert_from_server[0],
        server_name: text(&found.server_name),
        alpn_offered: text(&found.alpn_offered),
        alpn: text(&found.alpn),
        versions_offered: text(&found.versions_offered),
        version: text(&found.version),
        cipher: text(&found.cipher),
        alert: text(&found.alert),
    })
}

struct Silent;

impl twintap_protocols::excerpt::Notes for Silent {
    fn head(&mut self, _: &twintap_protocols::head::Head<'_>, _: u64, _: bool) {}
    fn head_cut(&mut self) {}
    fn left_out(&mut self) {}
}

/// What an agent leaves of a payload.
fn of_agent(payload: &[u8]) -> Vec<u8> {
    let mut left = payload[..payload_policy::kept_len(payload, 2048)].to_vec();
    payload_policy::blank(&mut left, SecretRules::built_in());
    left
}

#[test]
fn both_hellos_say_what_was_asked_and_chosen_also_where_an_agent_captured_them() {
    let asked = of_handshake(&client_hello(9, ASKED));
    let chose = of_handshake(&server_hello(9, VERSION_13));
    for keep in [|payload: &[u8]| payload.to_vec(), of_agent] {
        // TLS begins anywhere in a stream.
        let found = handshake(&[(CLIENT, 8, keep(&asked)), (SERVER, 1, keep(&chose))]).expect("a handshake");
        assert_eq!(
            (&found.server_name[..], &found.alpn_offered[..]),
            (&b"api.example"[..], &b"h2"[..])
        );
        assert_eq!(
            (&found.versions_offered[..], &found.version[..]),
            (&b"1.3, 1.2"[..], &b"1.3"[..])
        );
        assert_eq!(found.cipher, b"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384");
        assert!(found.has_client_hello && found.has_server_hello && found.early_data_offered && !found.retried);
        assert_eq!((found.resumption, &found.alert[..]), (Resumption::Full, &b""[..]));
    }
    // Without the handshake of TCP it is not certain who the client is.
    let turned = handshake(&[(SERVER, 0, asked.clone()), (CLIENT, 0, chose)]).expect("a handshake");
    assert!(turned.has_client_hello && turned.has_server_hello);
    let alone = handshake(&[(CLIENT, 0, asked[..60].to_vec())]);
    assert_eq!(alone, None, "cut before anything is said");
    assert_eq!(handshake(&[(CLIENT, 0, record(23, &[1; 40]))]), None);
}

#[test]
fn resumption_is_known_by_what_follows_the_servers_hello_or_by_ids() {
    let certificate = of_handshake(&[11, 0, 0, 9]);
    let ticket = of_handshake(&[4, 0, 0, 9]);
    let change = record(20, &[1]);
    let hello = |session| server_hello(session, H2);
    let both = of_handshake(&[hello(9), vec![11, 0, 0, 9]].concat());
    let cases: [(&str, Vec<u8>, Resumption); 8] = [
        (
            "certificate",
            [of_handshake(&hello(0)), certificate].concat(),
            Resumption::Full,
        ),
        (
            "ticket",
            [of_handshake(&hello(0)), ticket].concat(),
            Resumption::Resumed,
        ),
        (
            "change",
            [of_handshake(&hello(0)), change].concat(),
            Resumption::Resumed,
        ),
        ("one record", both, Resumption::Full),
        ("id", of_handshake(&hello(9)), Resumption::Resumed),
        ("another id", of_handshake(&hello(8)), Resumption::Full),
        ("no id", of_handshake(&hello(0)), Resumption::Full),
        (
            "psk",
            of_handshake(&server_hello(9, &[VERSION_13, PSK].concat())),
            Resumption::Psk,
        ),
    ];
    let asked = of_handshake(&client_hello(9, ASKED));
    for (name, flight, expected) in cases {
        let found = handshake(&[(CLIENT, 0, asked.clone()), (SERVER, 0, flight.clone())]).expect("a handshake");
        assert_eq!(found.resumption, expected, "{name}");
        let found = handshake(&[(CLIENT, 0, of_agent(&asked)), (SERVER, 0, of_agent(&flight))]).expect("a handshake");
        let expected = if name.ends_with("id") {
            Resumption::Unknown
        } else {
            expected
        };
        assert_eq!(found.resumption, expected, "{name}, of an agent");
    }
}

#[test]
fn a_retry_is_no_choice_and_the_hello_after_it_is() {
    let mut retry = server_hello(9, VERSION_13);
    retry[6..38].copy_from_slice(&hellos::HELLO_RETRY_REQUEST_RANDOM);
    let (asked, retry) = (of_handshake(&client_hello(9, ASKED)), of_handshake(&retry));
    let found = handshake(&[(CLIENT, 0, asked), (SERVER, 0, retry.clone())]).expect("a handshake");
    assert!(found.retried && found.version.is_empty() && !found.has_server_hello);
    let chose = of_handshake(&server_hello(9, VERSION_13));
    let found = handshake(&[(SERVER, 0, retry), (SERVER, 500, chose)]).expect("a handshake");
    assert!(found.retried && found.has_server_hello && found.version == b"1.3");
}

#[test]
fn a_fatal_alert_is_why_a_handshake_failed() {
    let asked = of_handshake(&client_hello(9, ASKED));
    let of_13 = of_handshake(&server_hello(9, VERSION_13));
    let encrypted = [record(20, &[1]), record(23, &[8; 19])].concat();
    let finished = [record(20, &[1]), record(23, &[8; 53]), record(23, &[8; 19])].concat();
    let alert = |level, description| record(21, &[level, description]);
    let cases: [(&str, bool, Vec<u8>, &str); 7] = [
        ("fatal", SERVER, alert(2, 40), "handshake_failure"),
        ("of the client", CLIENT, alert(2, 48), "unknown_ca"),
        ("a warning", SERVER, alert(1, 112), ""),
        ("a close", CLIENT, alert(1, 0), ""),
        ("encrypted, up to TLS 1.2", SERVER, record(21, &[2; 26]), ""),
        ("encrypted", CLIENT, encrypted, "encrypted"),
        ("after the handshake", CLIENT, finished, ""),
    ];
    for (name, sender, payload, expected) in cases {
        let without_early_data = of_handshake(&client_hello(9, &ASKED[..ASKED.len() - 4]));
        let packets = [
            (CLIENT, 0, without_early_data),
            (SERVER, 0, of_13.clone()),
            (sender, 900, payload),
        ];
        let found = handshake(&packets).expect("a handshake");
        assert_eq!(found.alert, expected.as_bytes(), "{name}");
        assert_eq!(
            found.alert_from_server,
            sender == SERVER && !expected.is_empty(),
            "{name}"
        );
    }
    let early = [
        (CLIENT, 0, asked),
        (SERVER, 0, of_13),
        (CLIENT, 900, record(23, &[8; 19])),
    ];
    assert_eq!(
        handshake(&early).expect("a handshake").alert,
        b"",
        "it may be early data"
    );
}
