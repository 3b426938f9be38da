use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use twintap_secrets::SecretRules;

use super::*;
use crate::clock_error::SkewedClock;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const HEAD: &[u8] = b"GET /a HTTP/1.1\r\nX-Auth-Token: geheim\r\n\r\nbody";
const KEPT: &[u8] = b"GET /a HTTP/1.1\r\nX-Auth-Token: xxxxxx\r\n\r\n";

/// A directory of its own for each test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("twintap-streamed-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("temporary directory");
        Folder(path)
    }

    /// All segments, one after the other.
    fn bytes(&self) -> Vec<u8> {
        let mut paths: Vec<_> = fs::read_dir(&self.0)
            .expect("readable")
            .map(|entry| entry.expect("entry").path())
            .collect();
        paths.sort();
        paths
            .iter()
            .flat_map(|path| fs::read(path).expect("readable"))
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn capture(folder: &Folder) -> StreamedCapture {
    let settings = SegmentSettings {
        folder: folder.0.clone(),
        stream: None,
        host: "web1".into(),
        stem: "web1".into(),
        application: "tcpdump".into(),
        os: "Linux".into(),
        addresses: Vec::new(),
        interfaces: Vec::new(),
        since_ns: 0,
        segment_bytes: 1 << 20,
        segment_age: Duration::from_secs(3600),
        first_number: 1,
        clock_error: SkewedClock::default(),
        secrets: Arc::new(SecretRules::built_in().clone()),
    };
    let interface = RemoteInterface {
        name: "eth0".into(),
        index: 7,
        address: OWN,
    };
    StreamedCapture::new(vec![interface], PayloadPolicy::Heads, settings)
}

fn ip_packet(payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 40];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
    ip[9] = 6;
    ip[32] = 0x50;
    ip.extend(payload);
    ip
}

fn cooked_frame(index: u32, packet_type: u8, ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x08, 0, 0, 0];
    frame.extend(index.to_be_bytes());
    frame.extend([0, 1, packet_type, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(ip);
    frame
}

fn ethernet(to: [u8; 6], from: [u8; 6], ip: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &[0x08, 0x00], ip].concat()
}

/// A pcap file; `put` writes a number in the file's order.
fn pcap(magic: [u8; 4], link: u32, frames: &[Vec<u8>], put: fn(u32) -> [u8; 4]) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.resize(20, 0);
    file.extend(put(link));
    for (place, frame) in frames.iter().enumerate() {
        for number in [1_700_000_000, 5 + place as u32, frame.len() as u32, frame.len() as u32] {
            file.extend(put(number));
        }
        file.extend(frame);
    }
    file
}

const NANOSECONDS: [u8; 4] = [0x4D, 0x3C, 0xB2, 0xA1];

fn holds(all: &[u8], part: &[u8]) -> usize {
    all.windows(part.len()).filter(|window| *window == part).count()
}

#[test]
fn packets_are_cut_and_redacted_before_they_are_written() {
    let ip = ip_packet(HEAD);
    let cases = [
        (
            "cooked",
            LINK_SLL2,
            vec![cooked_frame(7, 4, &ip), cooked_frame(7, 0, &ip)],
        ),
        (
            "ethernet",
            LINK_ETHERNET,
            vec![ethernet(PEER, OWN, &ip), ethernet(OWN, PEER, &ip)],
        ),
    ];
    for (name, link, frames) in cases {
        let folder = Folder::new();
        let mut capture = capture(&folder);
        capture
            .feed(&pcap(NANOSECONDS, link, &frames, u32::to_le_bytes))
            .expect(name);
        capture.finish(3).expect(name);
        let written = folder.bytes();
        assert_eq!(holds(&written, KEPT), 2, "{name}");
        assert_eq!(holds(&written, b"geheim") + holds(&written, b"body"), 0, "{name}");
        let flags = [[2, 0, 4, 0, 2, 0, 0, 0], [2, 0, 4, 0, 1, 0, 0, 0]];
        assert_eq!(
            flags.map(|flags| holds(&written, &flags)),
            [1, 1],
            "{name}: sent, received"
        );
        let drops = [&[5, 0, 8, 0][..], &3_u64.to_le_bytes()].concat();
        assert_eq!(holds(&written, &drops), 1, "{name}: drops");
        let expected = StreamCounts {
            packets_count: 2,
            foreign_count: 0,
            other_count: 0,
            newest_ns: 1_700_000_000_000_000_006,
        };
        assert_eq!(capture.counts(), expected, "{name}");
    }
}

#[test]
fn the_pieces_in_which_it_arrives_do_not_matter() {
    let frames = [
        cooked_frame(7, 4, &ip_packet(HEAD)),
        cooked_frame(7, 0, &ip_packet(b"")),
    ];
    let file = pcap([0xA1, 0xB2, 0xC3, 0xD4], LINK_SLL2, &frames, u32::to_be_bytes);
    let written = |piece_len: usize| {
        let folder = Folder::new();
        let mut capture = capture(&folder);
        for piece in file.chunks(piece_len) {
            capture.feed(piece).expect("pcap");
        }
        capture.finish(0).expect("room");
        (folder.bytes(), capture.counts())
    };
    let whole = written(file.len());
    assert_eq!(whole.1.newest_ns, 1_700_000_000_000_006_000, "microseconds");
    assert_eq!(written(1), whole);
    assert_eq!(written(7), whole);
}

#[test]
fn a_stream_cut_at_any_byte_keeps_its_whole_packets() {
    let frames = [
        cooked_frame(7, 4, &ip_packet(HEAD)),
        cooked_frame(7, 0, &ip_packet(HEAD)),
    ];
    let file = pcap(NANOSECONDS, LINK_SLL2, &frames, u32::to_le_bytes);
    let first_end = FILE_HEADER_LEN + RECORD_HEADER_LEN + frames[0].len();
    for len in 0..=file.len() {
        let folder = Folder::new();
        let mut capture = capture(&folder);
        capture.feed(&file[..len]).expect("a prefix of pcap");
        capture.finish(0).expect("room");
        let expected = usize::from(len >= first_end) + usize::from(len == file.len());
        assert_eq!(holds(&folder.bytes(), KEPT), expected, "{len} bytes");
    }
}

#[test]
fn what_is_not_this_hosts_is_left_out_and_counted() {
    let ip = ip_packet(b"");
    let mut udp = ip.clone();
    udp[9] = 17;
    let mut arp = cooked_frame(7, 4, &ip);
    arp[..2].copy_from_slice(&[8, 6]);
    let tagged = [&cooked_frame(7, 4, &[0, 9, 8, 0])[..], &ip].concat();
    let mut tagged = tagged;
    tagged[..2].copy_from_slice(&[0x81, 0]);
    let frames = [
        cooked_frame(1, 0, &ip),
        cooked_frame(7, 3, &ip),
        cooked_frame(7, 0, &udp),
        arp,
        vec![0; 5],
        tagged,
    ];
    let folder = Folder::new();
    let mut capture = capture(&folder);
    capture
        .feed(&pcap(NANOSECONDS, LINK_SLL2, &frames, u32::to_le_bytes))
        .expect("pcap");
    let counts = capture.counts();
    assert_eq!(
        (counts.packets_count, counts.foreign_count, counts.other_count),
        (1, 2, 3)
    );
    capture.finish(0).expect("room");
    assert_eq!(holds(&folder.bytes(), &ip), 1, "the tag is not written");
}

#[test]
fn what_is_no_capture_is_refused() {
    let mut endless = pcap(NANOSECONDS, LINK_SLL2, &[], u32::to_le_bytes);
    endless.extend([0xFF; 16]);
    let cases = [
        (
            "it does not begin as pcap",
            b"bash: tcpdump: command not found\n".to_vec(),
        ),
        (
            "its link type is neither Ethernet nor LINUX_SLL2",
            pcap(NANOSECONDS, 113, &[], u32::to_le_bytes),
        ),
        ("a packet longer than 1 MiB", endless),
    ];
    for (what, bytes) in cases {
        let folder = Folder::new();
        assert_eq!(capture(&folder).feed(&bytes), Err(CaptureError::NotACapture { what }));
    }
}
