//! A connection on which the client asks for TLS in another protocol first, as PostgreSQL's SSLRequest does.

use twintap_exchanges::{Connections, Crossings, Heads, Hops, Pauses, Texts, build, kind};
use twintap_protocols::tls::{RECORD, content, flag};

/// Bytes of one direction: from the client, first and last place, when they were sent, and of the record that begins with
/// them the content type and flags.
type Transfer = (bool, (i64, i64), i64, Option<(u16, u8)>);

#[test]
fn what_asks_for_tls_is_part_of_the_handshake() {
    let (handshake, data) = (content::HANDSHAKE, content::APPLICATION_DATA);
    let sent: &[Transfer] = &[
        (true, (0, 8), 10, None),
        (false, (0, 1), 30, None),
        (true, (8, 208), 50, Some((handshake, flag::CLIENT_HELLO))),
        (false, (1, 1_001), 70, Some((handshake, flag::SERVER_HELLO))),
        (true, (208, 308), 90, Some((handshake, 0))),
        (false, (1_001, 1_050), 110, Some((handshake, 0))),
        (true, (308, 408), 200, Some((data, 0))),
        (false, (1_050, 1_150), 220, Some((data, 0))),
        (true, (408, 508), 300, Some((data, 0))),
        (false, (1_150, 1_250), 320, Some((data, 0))),
    ];
    let count = sent.len();
    let hops = Hops {
        connection_id: &vec![1; count],
        kind: &vec![kind::DATA; count],
        from_client: &sent.iter().map(|one| one.0).collect::<Vec<_>>(),
        stream_start: &sent.iter().map(|one| one.1.0).collect::<Vec<_>>(),
        stream_end: &sent.iter().map(|one| one.1.1).collect::<Vec<_>>(),
        sent_ns: &sent.iter().map(|one| one.2).collect::<Vec<_>>(),
        received_ns: &sent.iter().map(|one| one.2 + 10).collect::<Vec<_>>(),
        uncertainty_ns: &vec![1; count],
        likely_error_ns: &vec![1; count],
    };
    let records = || sent.iter().filter_map(|one| Some((one, one.3?)));
    let records_count = records().count();
    let none = vec![0; records_count + 1];
    let texts = Texts {
        offsets: &none,
        bytes: &[],
    };
    let heads = Heads {
        connection_id: &vec![1; records_count],
        from_client: &records().map(|(one, _)| one.0).collect::<Vec<_>>(),
        stream_offset: &records().map(|(one, _)| one.1.0).collect::<Vec<_>>(),
        head_kind: &vec![RECORD.0; records_count],
        flags: &records().map(|(_, record)| record.1).collect::<Vec<_>>(),
        head_len: &records().map(|(one, _)| (one.1.1 - one.1.0) as u32).collect::<Vec<_>>(),
        content_length: &vec![-1; records_count],
        status: &records().map(|(_, record)| record.0).collect::<Vec<_>>(),
        result_code: &vec![-1; records_count],
        frame_kind: &vec![0; records_count],
        stream_id: &vec![-1; records_count],
        method: texts,
        target: texts,
        id: texts,
    };
    let pauses = Pauses {
        connection_id: &[],
        from_client: &[],
        stream_offset: &[],
        is_reader: &[],
    };
    let connections = Connections {
        connection_id: &[1],
        handshake: &[true],
    };
    let built = build(&hops, &heads, &connections, &pauses, &Crossings::default());
    let asked: Vec<i64> = built.in_order().map(|one| one.request.first_sent_ns).collect();
    assert_eq!(asked, [200, 300]);
    let first = built.rare.of(&built.exchanges[0]);
    assert_eq!((first.tls_start_ns, first.tls_end_ns), (10, 120));
}
