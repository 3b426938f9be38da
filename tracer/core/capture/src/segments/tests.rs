use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::connections::Connections;
use crate::pcapng::LinkType;
use crate::policy::{Packet, PayloadPolicy};

/// A directory of its own for each test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "twintap-segments-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("temporary directory");
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .expect("readable")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(folder: &Folder) -> SegmentSettings {
    SegmentSettings {
        folder: folder.0.clone(),
        stream: None,
        host: "proxy".into(),
        stem: "proxy-a".into(),
        application: "twintap-agent 1".into(),
        os: "Linux".into(),
        addresses: vec!["10.77.0.20".parse().expect("IPv4"), "fe80::1".parse().expect("IPv6")],
        interfaces: vec![interface("eth0"), interface("lo")],
        since_ns: 1_000,
        segment_bytes: 1000,
        segment_age: Duration::from_secs(1),
        first_number: 7,
        clock_error: SkewedClock::default(),
        secrets: Arc::new(SecretRules::built_in().clone()),
    }
}

fn interface(name: &str) -> Interface {
    Interface {
        name: name.into(),
        link_type: LinkType::RawIp,
        snaplen: 300,
        filter: String::new(),
    }
}

fn now(after_ms: u64) -> Now {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Now {
        instant: *START.get_or_init(Instant::now) + Duration::from_millis(after_ms),
        host_ns: 1_700_000_000_000_000_000 + after_ms * 1_000_000,
    }
}

fn tcp_frame() -> Vec<u8> {
    let mut frame = vec![0; 41];
    frame[0] = 0x45;
    frame[3] = 41;
    frame[9] = 6;
    frame[32] = 0x50;
    frame
}

fn write(writer: &mut SegmentWriter, after_ms: u64) -> Result<(), CaptureError> {
    let frame = tcp_frame();
    let kept = PayloadPolicy::None
        .keep(&Packet::whole(LinkType::RawIp, &frame), &mut Connections::default())
        .expect("TCP");
    let record = PacketRecord {
        interface_index: 1,
        host_ns: now(after_ms).host_ns,
        direction: Direction::Send,
        frame: &frame,
        original_len: 41,
        is_damaged: false,
    };
    writer.write(&record, &kept, now(after_ms))
}

fn statistics(received_count: u64, dropped_count: u64) -> [Statistics; 2] {
    let some = Statistics {
        received_count,
        dropped_count,
        written_count: 0,
    };
    [Statistics::default(), some]
}

/// (type, body without framing) of each block; panics if lengths do not agree.
fn blocks(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        assert_eq!(len % 4, 0);
        assert_eq!(word(at + len - 4) as usize, len);
        found.push((word(at), bytes[at + 8..at + len - 4].to_vec()));
        at += len;
    }
    found
}

fn types(path: &Path) -> Vec<u32> {
    blocks(&fs::read(path).expect("segment"))
        .iter()
        .map(|(block_type, _)| *block_type)
        .collect()
}

const SHB: u32 = 0x0A0D_0D0A;

#[test]
fn a_segment_is_a_whole_section() {
    let folder = Folder::new();
    let totals = Arc::new(Totals::default());
    let mut writer = SegmentWriter::new(settings(&folder), Arc::clone(&totals));
    write(&mut writer, 0).expect("written");
    assert_eq!(folder.names(), ["proxy-a-000007.pcapng.partial"]);
    writer.finish(&statistics(5, 2), now(10)).expect("closed");
    assert_eq!(folder.names(), ["proxy-a-000007.pcapng"]);

    let bytes = fs::read(folder.0.join("proxy-a-000007.pcapng")).expect("segment");
    assert_eq!(totals.bytes_count.load(Ordering::Relaxed), bytes.len() as u64);
    assert_eq!(totals.segments_count.load(Ordering::Relaxed), 1);
    let blocks = blocks(&bytes);
    assert_eq!(
        blocks.iter().map(|(t, _)| *t).collect::<Vec<_>>(),
        [SHB, 4, 1, 1, 6, 5, 5]
    );
    let holds = |index: usize, text: &[u8]| blocks[index].1.windows(text.len()).any(|window| window == text);
    assert!(holds(0, b"twintap.host=proxy") && holds(0, b"twintap-agent 1"));
    assert!(holds(1, b"\x0a\x4d\x00\x14proxy\0"), "name of an address");
    assert!(holds(3, b"lo"));
    let packet = &blocks[4].1;
    assert_eq!(packet[..4], [1, 0, 0, 0], "interface");
    assert_eq!(packet[12..20], [40, 0, 0, 0, 41, 0, 0, 0], "captured, original");
    assert_eq!(packet[20..60], tcp_frame()[..40]);
    assert_eq!(packet[60..68], [2, 0, 4, 0, 2, 0, 0, 0], "epb_flags: outbound");
    let statistics = &blocks[6].1;
    assert!(
        statistics
            .windows(12)
            .any(|w| w == [4, 0, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0]),
        "received"
    );
    assert!(
        statistics
            .windows(12)
            .any(|w| w == [5, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
        "dropped"
    );
    assert!(
        statistics
            .windows(12)
            .any(|w| w == [8, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        "written"
    );
}

#[test]
fn owners_stand_behind_the_packets_and_readers_find_them() {
    let folder = Folder::new();
    let mut writer = SegmentWriter::new(settings(&folder), Arc::new(Totals::default()));
    let owner = format!(
        "twintap.owner process=nginx pid=7\n{}",
        "10.0.0.1:80 10.0.0.2:5 socket 9\n".repeat(99)
    );
    let comments = [owner.trim_end().to_owned(), "twintap.owners unreadable=3".to_owned()];
    writer.write_comments(&comments);
    write(&mut writer, 0).expect("written");
    writer.write_comments(&comments);
    writer.finish(&statistics(1, 0), now(10)).expect("closed");
    let path = folder.0.join("proxy-a-000007.pcapng");
    assert_eq!(
        types(&path),
        [SHB, 4, 1, 1, 6, 4, 5, 5],
        "none before the segment is begun"
    );
    let mut reader = twintap_wire::reader::open(&path).expect("a capture");
    while reader.next_batch(100).is_some() {}
    assert_eq!(reader.section().owners, comments);
    let names = reader.section().names.iter();
    assert!(names.clone().count() > 0 && names.clone().all(|record| record.name == "proxy"));
}

#[test]
fn segments_rotate_by_size_and_by_age() {
    let folder = Folder::new();
    let mut writer = SegmentWriter::new(settings(&folder), Arc::default());
    assert!(!writer.is_due(now(5000).instant), "nothing is open");
    write(&mut writer, 100).expect("written");
    assert!(!writer.is_due(now(1099).instant));
    assert!(writer.is_due(now(1100).instant));
    writer.close(&statistics(1, 0), now(1100)).expect("closed");
    let mut packets_count = 0;
    while !writer.is_due(now(1200).instant) {
        write(&mut writer, 1200).expect("written");
        packets_count += 1;
    }
    assert!(
        (4..12).contains(&packets_count),
        "{packets_count} packets in 1000 bytes"
    );
    writer.finish(&statistics(1, 0), now(1200)).expect("closed");
    assert_eq!(folder.names(), ["proxy-a-000007.pcapng", "proxy-a-000008.pcapng"]);
}

#[test]
fn a_capture_without_packets_leaves_one_segment() {
    let folder = Folder::new();
    let mut writer = SegmentWriter::new(settings(&folder), Arc::default());
    writer.finish(&statistics(0, 0), now(0)).expect("closed");
    assert_eq!(types(&folder.0.join("proxy-a-000007.pcapng")), [SHB, 4, 1, 1, 5, 5]);
}

#[test]
fn drops_after_the_last_packet_are_written_to_a_segment_of_their_own() {
    for (dropped_count, segments_count) in [(0, 1), (9, 2)] {
        let folder = Folder::new();
        let mut writer = SegmentWriter::new(settings(&folder), Arc::default());
        write(&mut writer, 0).expect("written");
        writer.close(&statistics(1, 0), now(0)).expect("closed");
        writer
            .finish(&statistics(dropped_count, dropped_count), now(0))
            .expect("closed");
        assert_eq!(folder.names().len(), segments_count);
    }
}

#[test]
fn a_failure_in_the_background_ends_the_capture() {
    let folder = Folder::new();
    let mut writer = SegmentWriter::with_files(
        settings(&folder),
        Arc::default(),
        Box::new(|path| Ok(Box::new(LateDisk(File::create(path)?)))),
    );
    let mut failures_count = 0;
    while failures_count == 0 {
        write(&mut writer, 0).expect("buffered");
        failures_count += u32::from(writer.close(&statistics(1, 0), now(0)).is_err());
    }
    write(&mut writer, 0).expect("buffered");
    assert!(matches!(writer.finish(&[], now(0)), Err(CaptureError::DiskFull { .. })));
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn an_existing_file_is_never_overwritten() {
    let folder = Folder::new();
    fs::write(folder.0.join("proxy-a-000007.pcapng.partial"), b"another's").expect("written");
    let mut writer = SegmentWriter::new(settings(&folder), Arc::default());
    assert!(matches!(write(&mut writer, 0), Err(CaptureError::NotWritable { .. })));
    assert_eq!(
        fs::read(folder.0.join("proxy-a-000007.pcapng.partial")).expect("kept"),
        b"another's"
    );
}

/// A real file on a disk that has room for `ROOM` bytes of it.
struct SmallDisk(File, usize);

const ROOM: usize = 1000;

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.len().min(ROOM - self.1) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            len => {
                self.1 += len;
                self.0.write(&bytes[..len])
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SegmentFile for SmallDisk {
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// A disk that takes everything and fails when asked to make it durable.
struct LateDisk(File);

impl Write for LateDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SegmentFile for LateDisk {
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_full_disk_keeps_the_whole_blocks_and_says_so() {
    for packets_count in [0, 1, 8, 50] {
        let folder = Folder::new();
        let mut writer = SegmentWriter::with_files(
            settings(&folder),
            Arc::default(),
            Box::new(|path| Ok(Box::new(SmallDisk(File::create(path)?, 0)))),
        );
        for _ in 0..packets_count {
            write(&mut writer, 0).expect("buffered");
        }
        let outcome = writer.finish(&statistics(1, 0), now(0));
        let fits = packets_count < 4;
        assert_eq!(outcome.is_ok(), fits, "{packets_count}: {outcome:?}");
        assert_eq!(folder.names(), ["proxy-a-000007.pcapng"]);
        let types = types(&folder.0.join("proxy-a-000007.pcapng"));
        if !fits {
            let folder = folder.0.clone();
            assert_eq!(outcome, Err(CaptureError::DiskFull { folder }));
            assert!(types.contains(&6), "{types:?}");
        }
    }
}

#[test]
fn what_never_became_durable_is_no_segment() {
    let folder = Folder::new();
    let mut writer = SegmentWriter::with_files(
        settings(&folder),
        Arc::default(),
        Box::new(|path| Ok(Box::new(LateDisk(File::create(path)?)))),
    );
    write(&mut writer, 0).expect("buffered");
    assert!(matches!(
        writer.finish(&statistics(1, 0), now(0)),
        Err(CaptureError::DiskFull { .. })
    ));
    assert_eq!(folder.names(), [""; 0]);
}

/// The statements of what is kept in a segment, in their order.
fn statements(folder: &Folder, name: &str) -> Vec<String> {
    let bytes = fs::read(folder.0.join(name)).expect("a segment");
    let text = String::from_utf8_lossy(&bytes);
    let places = text
        .match_indices("twintap.kept ")
        .chain(text.match_indices("twintap.left_out "));
    let mut found: Vec<(usize, String)> = places
        .map(|(at, _)| (at, text[at..].split('\0').next().unwrap_or_default().to_owned()))
        .collect();
    found.sort();
    found.into_iter().map(|(_, statement)| statement).collect()
}

#[test]
fn each_segment_states_what_is_kept_and_a_change_begins_one() {
    let folder = Folder::new();
    let keeping = |depth, after_ms| Keeping {
        depth,
        ..Keeping::all(now(after_ms).host_ns)
    };
    let mut writer = SegmentWriter::new(settings(&folder), Arc::default());
    writer
        .state_keeping(keeping(0, 0), now(0))
        .expect("nothing is written yet");
    assert!(folder.names().is_empty());
    write(&mut writer, 1).expect("written");
    writer.state_keeping(keeping(1, 500), now(500)).expect("stated");
    writer.leave_out(LeftOut {
        packets_count: 5,
        shortened_count: 1,
    });
    writer.close(&statistics(6, 0), now(600)).expect("closed");
    writer
        .state_keeping(keeping(6, 700), now(700))
        .expect("a segment without a packet");
    writer.close(&statistics(0, 0), now(1_700)).expect("closed");
    write(&mut writer, 2_000).expect("written");
    writer.finish(&statistics(1, 0), now(2_100)).expect("finished");
    let since = |after_ms, share: &str| format!("twintap.kept since={} connections={share}", now(after_ms).host_ns);
    let expected = [
        vec![
            since(0, "1/1"),
            since(500, "1/2"),
            "twintap.left_out packets=5 shortened=1".into(),
        ],
        vec![since(700, "1/64")],
        vec![since(700, "1/64")],
    ];
    let found: Vec<_> = folder.names().iter().map(|name| statements(&folder, name)).collect();
    assert_eq!(found, expected);
}
