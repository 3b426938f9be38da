//! Named counts of what happened to the input, each with a severity and a remedy.
//!
//! `Info` is normal; `Notice` may surprise; `DataLoss` means that rows are missing or incomplete, and shows on every
//! view made from the data; `Error` means that the input contradicts itself.

/// Severity of a counter. Values cross to Python by name (`collector.capture_files.records.Severity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Info,
    Notice,
    DataLoss,
    Error,
}

impl Severity {
    /// The name by which it crosses to Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Notice => "notice",
            Self::DataLoss => "data_loss",
            Self::Error => "error",
        }
    }
}

macro_rules! counter_kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $severity:ident, $remedy:literal;)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum CounterKind { $($(#[$doc])* $kind,)* }

        impl CounterKind {
            /// Every kind, in order.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The counter's name, as it shows to the user.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The counter's severity.
            pub fn severity(self) -> Severity {
                match self { $(Self::$kind => Severity::$severity,)* }
            }

            /// What to do about it; empty where there is nothing to do.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)* }
            }
        }
    };
}

counter_kinds! {
    /// UDP, ARP, ICMP and the like: counted in `frame`, no row.
    NotTcp, "packets_not_tcp", Info, "";
    /// Fragments after the first carry no TCP header: they lengthen the row of the first.
    IpFragments, "ip_fragments", Notice,
        "packets are split on the way, which costs time: the MTU of a link is smaller than the sender believes";
    /// Rows of first fragments of which not all others were seen: `payload_len` is what the first carried.
    IpDatagramsIncomplete, "ip_datagrams_incomplete", DataLoss,
        "fragments were lost, or the capture's filter left them out (they have no ports): add `or (ip[6:2] & 0x1fff != 0)`";
    /// The same, given up because too many datagrams were incomplete at one time.
    IpDatagramsEvicted, "ip_datagrams_evicted", DataLoss,
        "more than 4,096 split datagrams wait for fragments at one time; the longest waiting were taken as they were";
    /// Length 0 in the IP header (TSO, BIG TCP): taken from the frame's own length.
    IpLengthZero, "ip_length_zero", Info, "";
    /// The captured bytes end before the TCP header does.
    PacketsCutTooShort, "packets_cut_too_short", DataLoss, "capture with a larger snaplen, at least 128 bytes";
    /// The captured bytes end within the TCP options.
    TcpOptionsCut, "tcp_options_cut", Notice, "capture with a larger snaplen, at least 128 bytes";
    /// A TCP option with an impossible length; options before it are kept.
    TcpOptionsMalformed, "tcp_options_malformed", Notice, "";
    /// A TCP header that contradicts itself.
    TcpMalformed, "tcp_malformed", Error, "look at these packets in Wireshark; the capture or the sender is damaged";
    /// An IP header that contradicts itself.
    IpMalformed, "ip_malformed", Error, "look at these packets in Wireshark; the capture or the sender is damaged";
    /// More nested headers than are followed.
    TooManyLayers, "too_many_layers", Notice, "";
    /// A link type that is not decoded.
    LinkTypeUnknown, "link_type_unknown", DataLoss, "capture on an Ethernet, loopback or `any` interface";
    /// Simple Packet Blocks hold no time.
    PacketsWithoutTime, "packets_without_time", DataLoss,
        "these packets have no timestamp and were left out; capture again with dumpcap, tcpdump or `tracer capture`";
    /// A timestamp outside of what int64 nanoseconds hold (years 1677 to 2262).
    TimeOutOfRange, "time_out_of_range", DataLoss, "the capture's timestamps are damaged; these packets were left out";
    /// A timestamp decades from those around it: taken as if captured when the packet before it was.
    StampsAbsurd, "stamps_absurd", DataLoss,
        "these packets' timestamps are decades off; their times were not used, and stand as that of the packet before each";
    /// Packets before or after the time that was asked for: counted in `frame`, no row.
    OutsideTime, "outside_time", Info, "";
    /// A packet of an interface that no block describes.
    InterfaceUnknown, "interface_unknown", DataLoss, "the capture misses an Interface Description Block; write it again";
    /// More interfaces than a file may describe here.
    TooManyInterfaces, "too_many_interfaces", DataLoss, "split the capture; more than 65,535 interfaces in one file";
    /// Packets of a cooked capture past the limit of interfaces that are distinguished.
    InterfacesNotDistinguished, "interfaces_not_distinguished", Notice,
        "capture on the interfaces that matter by name instead of on `any`; packets past 4,096 interfaces count as of one";
    /// A block or record that was left out because of its size.
    PacketsTooLarge, "packets_too_large", DataLoss, "packets over 16 MiB are left out";
    /// Packets past what `frame` can number.
    TooManyPackets, "too_many_packets", DataLoss, "split the capture; only the first 4,294,967,295 packets were read";
    /// Names or comments past the limit of what is kept.
    NamesLeftOut, "names_left_out", Notice, "";
    /// Blocks that are not needed (secrets, journals, custom blocks).
    BlocksSkipped, "blocks_skipped", Info, "";
    /// A block whose contents contradict its length.
    BlocksMalformed, "blocks_malformed", Error, "the file is damaged; write it again from the original";
    /// The file ends within a record.
    CaptureTruncated, "capture_truncated", DataLoss,
        "the file ends within a packet: the capture was cut off or is still being written; all before it is kept";
    /// A record that cannot be: the rest of the file cannot be read.
    CaptureCorrupt, "capture_corrupt", DataLoss,
        "the file is damaged at this point and nothing after it was read; copy it again from the original";
    /// The compressed stream is damaged.
    CompressionCorrupt, "compression_corrupt", DataLoss,
        "the compressed file is damaged and nothing after that point was read; copy it again from the original";
    /// The compressed stream expands to more than it may.
    ExpansionRefused, "expansion_refused", DataLoss,
        "the compressed file expands to far more than captures of traffic do, and nothing after that point was read";
    /// The operating system failed to read on.
    ReadFailed, "read_failed", DataLoss, "the disk or network failed while reading; read the file again";
    /// Packets that the capturing host received but did not keep.
    CaptureDropped, "capture_dropped", DataLoss, "the capture lost packets; use a larger capture buffer or a narrower filter";
    /// A message head whose end is not in the packet.
    HttpHeadsCut, "http_heads_cut", Info, "";
    /// Directions of HTTP/2 connections of which a frame's header was not captured, so that others were missed as well.
    FramesMissed, "frames_missed", Info, "";
    /// Connections of TLS that the key log does not hold, or whose hellos were not captured.
    TlsNotOpened, "tls_not_opened", Notice,
        "have client or server log its keys (SSLKEYLOGFILE) while it is captured, and capture from the connection's \
         first packet on: its hello names the keys";
    /// Connections of TLS whose suite or version cannot be opened.
    TlsSuiteNotOpened, "tls_suite_not_opened", Notice,
        "TLS 1.2 and 1.3 with AES-GCM, AES-CCM or ChaCha20-Poly1305 can be opened: let the server offer one of these";
    /// Records, at least, that were not opened although the connection's keys are known.
    TlsRecordsNotOpened, "tls_records_not_opened", Notice,
        "these records were not captured whole: capture whole packets (tcpdump -s 0; an agent with --payload 65535), \
         and see whether the capture dropped packets; if nothing is missing, the keys are not those of the connection";
    /// Lines of a key log that are none, and secrets past the limit.
    TlsKeysUnread, "tls_keys_unread", Notice,
        "lines of a key log are LABEL, RANDOM and SECRET, as SSLKEYLOGFILE has them; 1,048,576 connections are kept";
    /// Text of heads past the limit of a batch.
    HttpTextLeftOut, "http_text_left_out", Notice, "";
}

/// A count for each kind.
#[derive(Clone, Debug)]
pub struct Counters([u64; CounterKind::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; CounterKind::ALL.len()])
    }
}

impl Counters {
    /// One more of `kind`.
    #[inline]
    pub fn bump(&mut self, kind: CounterKind) {
        self.add(kind, 1);
    }

    /// `count` more of `kind`.
    #[inline]
    pub fn add(&mut self, kind: CounterKind, count: u64) {
        let slot = &mut self.0[kind as usize];
        *slot = slot.saturating_add(count);
    }

    /// The count so far.
    pub fn get(&self, kind: CounterKind) -> u64 {
        self.0[kind as usize]
    }

    /// Kinds that occurred, with their counts, in the order of [`CounterKind::ALL`].
    pub fn nonzero(&self) -> impl Iterator<Item = (CounterKind, u64)> + '_ {
        CounterKind::ALL
            .iter()
            .map(|&kind| (kind, self.get(kind)))
            .filter(|&(_, count)| count > 0)
    }
}
