//! A running capture: one thread that empties the rings into segments until it receives the request to stop.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::poll::{PollFd, PollFlags, poll};

use crate::card::{self, InterfaceCard, PtpClock};
use crate::checksum;
use crate::connections::Connections;
use crate::error::CaptureError;
use crate::exclusion;
use crate::filter::{self, Instruction, Programs};
use crate::finisher::Totals;
use crate::interfaces::WantedInterfaces;
use crate::owners::watch::Owners;
use crate::pcapng::{Direction, Interface, LinkType, Statistics};
use crate::policy::{HEADERS_LIMIT_BYTES, Packet, PayloadPolicy};
use crate::ring::{self, RETIRE_AFTER, Ring, RingPacket, VlanTag};
use crate::sampling::{self, Keeping, KeepingHistory, LeftOut};
use crate::segments::{Now, PacketRecord, SegmentSettings, SegmentWriter};
use crate::socket::{PacketSocket, system};
use crate::timestamps::{self, Card, READ_EVERY, Relation, Setting, StampCounts, Timestamps};

/// Longest sleep of the thread while no packets come; limits the delay of `stop` and of closing a segment.
const POLL_MS: u16 = 50;

/// After `stop`, the time within which the kernel hands over the blocks that it is still filling.
const DRAIN: Duration = Duration::from_millis(2 * RETIRE_AFTER.as_millis() as u64 + 10);

/// After `stop`, the longest time in which a backlog is still read.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

/// The filter program that accepts no packet: `ret #0`.
const REFUSE: Instruction = Instruction {
    code: 0x06,
    jt: 0,
    jf: 0,
    k: 0,
};

/// How often it is looked for interfaces that fit a pattern.
const FOLLOW_AFTER: Duration = Duration::from_millis(500);

/// Of interfaces that fit a pattern, each has a ring of its own.
const FOLLOWED_RING_BYTES: usize = 2 << 20;

/// The longest time for which `Capture::exclude` waits for the thread.
const LONGEST_EXCLUDING: Duration = Duration::from_secs(1);

const NO_ROOM: &str = "its ring would exceed --memory-mib";

/// Said once.
const UNREADABLE_OWNERS: &str = "/proc does not show all processes of connections: for them give --owners processes, \
                                 as root; users and units are recorded all the same";

/// Offset at which a removed VLAN tag is inserted again: after the two MAC addresses.
const VLAN_AT: usize = 12;

/// What to capture and how.
#[derive(Debug, Clone)]
pub struct CaptureSettings {
    /// Names, or patterns ([`crate::interfaces`]).
    pub interface_names: Vec<String>,
    pub programs: Programs,
    /// Packets to and from these endpoints are left out, whatever `programs` accept.
    pub excluded: Vec<SocketAddr>,
    pub policy: PayloadPolicy,
    /// Size of the ring of each interface that is given by name; of others it is at most `FOLLOWED_RING_BYTES`.
    pub ring_bytes: usize,
    /// What all rings may take: of interfaces that fit a pattern, no more are captured.
    pub rings_bytes: usize,
    pub snaplen: u32,
    /// Whether to look for the processes of the connections.
    pub with_owners: bool,
    /// To look for them, at most one part of a processor in so many is used (at most 2 %).
    pub owners_parts: u32,
    /// What to keep at first, of a capture that may keep less later (`Capture::keep`); its segments state it.
    pub kept: Option<Share>,
    /// Who stamps packets.
    pub timestamps: Timestamps,
}

/// What to keep: one connection in 2^`depth`, and at most `head_bytes` of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub depth: u8,
    pub head_bytes: Option<u32>,
}

impl Share {
    fn since(self, since_ns: u64) -> Keeping {
        Keeping {
            since_ns,
            depth: self.depth.min(sampling::MOST_DEPTH),
            head_bytes: self.head_bytes,
        }
    }

    /// Bytes of a packet that the kernel must hand over.
    fn snaplen(self) -> u32 {
        self.head_bytes
            .map_or(u32::MAX, |len| HEADERS_LIMIT_BYTES.saturating_add(len))
    }
}

/// Counts of a capture so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Packets written.
    pub packets_count: AtomicU64,
    /// Packets that passed the filter but are for other hosts: a switch sends frames for unknown addresses to all
    /// ports.
    pub foreign_count: AtomicU64,
    /// Packets that passed the filter but are not TCP.
    pub other_count: AtomicU64,
    /// Packets lost because the ring was full.
    pub dropped_count: AtomicU64,
    /// Packets of connections that were not kept.
    pub left_out_count: AtomicU64,
    /// Segments that are durable.
    pub totals: Arc<Totals>,
}

/// A capture that runs until `stop`, or until an error ends it.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<CaptureState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct CaptureState {
    stop: AtomicBool,
    progress: Progress,
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    finished: bool,
    error: Option<CaptureError>,
    notices: Vec<String>,
    /// Endpoints to leave out from now on; the thread takes them.
    excluded: Option<Vec<SocketAddr>>,
    /// What to keep from now on; the thread takes it.
    kept: Option<Share>,
}

impl CaptureState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notice(&self, text: String) {
        self.state().notices.push(text);
    }
}

/// Names of this host's interfaces.
pub fn existing_interfaces() -> Vec<String> {
    crate::socket::existing_interfaces()
}

impl Capture {
    /// Opens the rings and starts the thread. Every error that the operator can correct is returned here, except a disk
    /// that fills up later.
    ///
    /// `segments`: its `interfaces`, `addresses` and `since_ns` are filled in here.
    pub fn start(settings: &CaptureSettings, mut segments: SegmentSettings) -> Result<Self, CaptureError> {
        let wanted = WantedInterfaces::new(&settings.interface_names);
        let mut taps = wanted
            .names()
            .map(|name| Tap::open(name, settings, settings.ring_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(CaptureState::default());
        let mut refused = Refusals::new();
        for name in new_interfaces(&wanted, &running_interfaces(), &taps, &refused) {
            if !has_room(&taps, settings) {
                refuse(&shared, &mut refused, name, NO_ROOM);
                continue;
            }
            match Tap::open(&name, settings, ring_bytes_of(&name, &wanted, settings)) {
                Ok(tap) => taps.push(tap),
                Err(error @ (CaptureError::NotPermitted | CaptureError::RingTooLarge { .. })) => {
                    return Err(error);
                }
                Err(error) => refuse(&shared, &mut refused, name, &error.to_string()),
            }
        }
        segments.interfaces = taps.iter().map(|tap| tap.describe(settings)).collect();
        let names = names_of(&taps);
        segments.addresses = own_addresses(&names);
        for tap in &taps {
            tap.ring.socket.receive()?;
        }
        segments.since_ns = Now::read().host_ns;
        let totals = Arc::clone(&shared.progress.totals);
        let owners = settings
            .with_owners
            .then(|| Owners::start(&names, settings.owners_parts))
            .flatten();
        if settings.with_owners && owners.is_none() {
            shared.notice("this kernel has no sock_diag: connections are captured without their processes".to_owned());
        }
        if wanted.has_patterns() {
            shared.notice(format!("of these are there now: {}", list_of(&names)));
        }
        let history = KeepingHistory::new(Keeping::all(segments.since_ns));
        let mut run = Run {
            owners,
            settings: settings.clone(),
            wanted,
            refused,
            looked: Instant::now(),
            shared: Arc::clone(&shared),
            totals: vec![Statistics::default(); taps.len()],
            arrived_count: 0,
            taken_count: 0,
            taps,
            policy: settings.policy,
            connections: Connections::default(),
            writer: SegmentWriter::new(segments, totals),
            excluded: settings.excluded.clone(),
            history,
            snaplen: u32::MAX,
        };
        if let Some(kept) = settings.kept {
            run.keep(kept)?;
        }
        let thread = thread::Builder::new()
            .name("capture".into())
            .spawn(move || run.drive())
            .map_err(|error| CaptureError::System {
                operation: "starting the capture thread",
                message: error.to_string(),
            })?;
        Ok(Capture {
            shared,
            thread: Some(thread),
        })
    }

    /// Asks the thread to write what has arrived until now and to end.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Waits until the capture has ended, at most for `timeout`. Returns whether it has.
    pub fn wait(&self, timeout: Duration) -> bool {
        let (state, _) = self
            .shared
            .finished
            .wait_timeout_while(self.shared.state(), timeout, |state| !state.finished)
            .unwrap_or_else(PoisonError::into_inner);
        state.finished
    }

    /// The error that ended the capture; `None` if it runs or `stop` ended it.
    pub fn error(&self) -> Option<CaptureError> {
        self.shared.state().error.clone()
    }

    /// Lines for the operator since the last call (an interface went down …).
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().notices)
    }

    /// Leaves out packets to and from these endpoints instead of the previous ones. Returns when the kernel does so.
    ///
    /// Has no effect if the capture has ended or is ending. An error of the kernel ends the capture.
    pub fn exclude(&self, endpoints: Vec<SocketAddr>) {
        let mut state = self.shared.state();
        state.excluded = Some(endpoints);
        let waits = |state: &mut State| state.excluded.is_some() && !state.finished;
        let _ = self.shared.finished.wait_timeout_while(state, LONGEST_EXCLUDING, waits);
    }

    /// Keeps less, or more again, of the packets that come from now on. Only of a capture that was started with something
    /// to keep.
    pub fn keep(&self, kept: Share) {
        self.shared.state().kept = Some(kept);
    }

    /// Counts so far.
    pub fn progress(&self) -> &Progress {
        &self.shared.progress
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was already printed
        }
    }
}

/// One captured interface.
struct Tap {
    ring: Ring,
    link_type: LinkType,
    /// The operator's filter, or the built-in one.
    filter: Vec<Instruction>,
    loopback: bool,
    /// It is a port of a bridge: packets for other hosts that arrive there belong to a host behind it (a container).
    bridged: bool,
    /// It was taken down once. The kernel then does not report its removal, so its existence is checked.
    was_down: bool,
    gone: bool,
    /// With hardware timestamps.
    stamping: Option<Stamping>,
}

/// An interface whose card stamps packets.
struct Stamping {
    card: InterfaceCard,
    /// What the card was set to before, if that was changed.
    before: Option<Setting>,
    relation: Relation,
    counts: StampCounts,
}

impl Stamping {
    /// Switches hardware timestamps on, and reads the card's clock twice, so that its rate is known.
    fn start(name: &str) -> Result<Self, CaptureError> {
        let card = InterfaceCard::open(name).map_err(|errno| system("socket(AF_INET)", errno))?;
        let (number, before) = timestamps::switch_on(&card, &card::with_hardware_timestamps())?;
        let clock = PtpClock::open(number)?;
        let relation = Relation::start(Box::new(clock), Instant::now());
        let mut relation = relation.map_err(|errno| system("reading the card's clock", errno))?;
        thread::sleep(READ_EVERY);
        relation.read_if_due(Instant::now());
        let counts = StampCounts::default();
        Ok(Stamping {
            card,
            before,
            relation,
            counts,
        })
    }

    /// A packet's stamp by the system's clock.
    fn host_ns(&self, packet: &RingPacket) -> u64 {
        if packet.is_hardware {
            self.relation.system_ns(packet.host_ns)
        } else {
            packet.host_ns
        }
    }
}

impl Drop for Stamping {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = self.card.set(before); // a card that was removed has nothing to set
        }
    }
}

impl Tap {
    fn open(name: &str, settings: &CaptureSettings, ring_bytes: usize) -> Result<Self, CaptureError> {
        let socket = PacketSocket::open(name)?;
        let link_type = socket.link_type()?;
        let filter = settings
            .programs
            .for_link(link_type)
            .ok_or_else(|| CaptureError::NoFilterForLink { name: name.to_owned() })?
            .to_vec();
        socket.attach_filter(&exclusion::without(&settings.excluded, link_type, &filter))?;
        let (loopback, bridged) = (socket.is_loopback(), socket.is_bridge_port());
        if loopback {
            socket.leave_out_sent();
        }
        let stamping = match settings.timestamps {
            Timestamps::Software => None,
            Timestamps::Hardware => Some(Stamping::start(name)?),
        };
        if stamping.is_some() {
            socket.prefer_hardware_timestamps()?;
        }
        Ok(Tap {
            ring: Ring::map(socket, ring_bytes)?,
            link_type,
            filter,
            loopback,
            bridged,
            was_down: false,
            gone: false,
            stamping,
        })
    }

    fn name(&self) -> String {
        self.ring.socket.name.clone()
    }

    fn describe(&self, settings: &CaptureSettings) -> Interface {
        Interface {
            name: self.ring.socket.name.clone(),
            link_type: self.link_type,
            snaplen: settings.snaplen.min(ring::LONGEST_SNAPLEN),
            filter: settings.programs.expression.clone(),
        }
    }
}

/// Notes when dropped that the thread has ended, so that nobody waits for one that panicked.
struct EndNotice(Arc<CaptureState>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if thread::panicking() {
            state.error = Some(CaptureError::System {
                operation: "the capture",
                message: "an error in the program, shown above".into(),
            });
        }
        state.finished = true;
        drop(state);
        self.0.finished.notify_all();
    }
}

/// Interfaces that fit a pattern and cannot be captured, with why, which was said.
type Refusals = HashMap<String, String>;

/// The state that the thread owns.
struct Run {
    shared: Arc<CaptureState>,
    settings: CaptureSettings,
    wanted: WantedInterfaces,
    refused: Refusals,
    /// When it was last looked for interfaces.
    looked: Instant,
    taps: Vec<Tap>,
    policy: PayloadPolicy,
    connections: Connections,
    owners: Option<Owners>,
    writer: SegmentWriter,
    /// Statistics of each interface since the last segment was closed.
    totals: Vec<Statistics>,
    /// Packets that the kernel had put into the rings at the last `read_statistics`, and packets read from them.
    arrived_count: u64,
    taken_count: u64,
    /// Endpoints that are left out.
    excluded: Vec<SocketAddr>,
    /// What is kept.
    history: KeepingHistory,
    /// Bytes of a packet that the kernel hands over at most.
    snaplen: u32,
}

impl Run {
    fn drive(&mut self) {
        let _ended = EndNotice(Arc::clone(&self.shared));
        let outcome = self.capture();
        if outcome.is_err() {
            let _ = self.writer.finish(&[], Now::read()); // whole segments are kept; the first failure is reported
        }
        self.shared.state().error = outcome.err();
    }

    fn capture(&mut self) -> Result<(), CaptureError> {
        let mut stop_seen: Option<Instant> = None;
        loop {
            let since_stop = stop_seen.map(|seen| seen.elapsed());
            // The kernel hands over a block that is not full by a timer, which is late on a busy machine: so it is
            // asked whether all was taken, and the last look at the rings comes after that.
            let drained = since_stop.is_some_and(|elapsed| elapsed >= DRAIN) && self.is_drained();
            if !drained {
                self.sleep()?;
            }
            let any = self.read_rings()?;
            if drained && !any || since_stop.is_some_and(|elapsed| elapsed >= LONGEST_DRAIN) {
                return self.finish();
            }
            if stop_seen.is_none() {
                self.exclude_more()?;
                self.apply_share()?;
                self.follow_interfaces()?;
            }
            if stop_seen.is_none() && self.shared.stop.load(Ordering::Acquire) {
                self.refuse_more()?;
                stop_seen = Some(Instant::now());
            }
            if let Some(gone) = self.removal_error() {
                self.finish()?;
                return Err(gone);
            }
        }
    }

    /// Stop the kernel from accepting and counting packets, so that all it has counted will be written.
    fn refuse_more(&self) -> Result<(), CaptureError> {
        self.taps
            .iter()
            .try_for_each(|tap| tap.ring.socket.attach_filter(&[REFUSE]))
    }

    /// Applies the endpoints that `Capture::exclude` set.
    fn exclude_more(&mut self) -> Result<(), CaptureError> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state(); // until the kernel has them: `exclude` waits
        let Some(endpoints) = state.excluded.take() else {
            return Ok(());
        };
        self.excluded = endpoints;
        self.attach_filters()?;
        drop(state);
        self.shared.finished.notify_all();
        Ok(())
    }

    /// Applies what `Capture::keep` set.
    fn apply_share(&mut self) -> Result<(), CaptureError> {
        let kept = self.shared.state().kept.take();
        kept.map_or(Ok(()), |kept| self.keep(kept))
    }

    /// Keeps less or more of the packets that come from now on, and states it.
    fn keep(&mut self, kept: Share) -> Result<(), CaptureError> {
        let now = Now::read();
        self.history.change(kept.since(now.host_ns));
        self.writer.state_keeping(self.history.now(), now)?;
        if let Some(owners) = &self.owners {
            owners.keep(kept.depth);
        }
        if self.snaplen != kept.snaplen() {
            self.snaplen = kept.snaplen();
            self.attach_filters()?;
        }
        Ok(())
    }

    /// With a pattern: captures interfaces that have come, and lets go of those that went.
    fn follow_interfaces(&mut self) -> Result<(), CaptureError> {
        if !self.wanted.has_patterns() || self.looked.elapsed() < FOLLOW_AFTER {
            return Ok(());
        }
        self.looked = Instant::now();
        for tap in &mut self.taps {
            tap.gone = !tap.ring.socket.exists();
            tap.bridged = tap.ring.socket.is_bridge_port(); // it may have become one
        }
        let gone: Vec<String> = self.taps.iter().filter(|tap| tap.gone).map(Tap::name).collect();
        let remaining: Vec<&Tap> = self.taps.iter().filter(|tap| !tap.gone).collect();
        let existing = running_interfaces();
        let has_more_room = !gone.is_empty();
        self.refused
            .retain(|name, why| existing.contains(name) && !(has_more_room && why == NO_ROOM));
        let fresh = new_interfaces(&self.wanted, &existing, remaining, &self.refused);
        if gone.is_empty() && fresh.is_empty() {
            return Ok(());
        }
        self.change_interfaces(&gone, fresh)
    }

    /// Ends the segment, since its interfaces are described at its beginning, and goes on with others.
    fn change_interfaces(&mut self, gone: &[String], fresh: Vec<String>) -> Result<(), CaptureError> {
        for index in 0..self.taps.len() {
            while self.taps[index].gone && self.read_block(index)? {}
        }
        let now = Now::read();
        self.read_statistics();
        self.write_owners();
        self.writer.close(&self.totals, now)?;
        self.taps.retain(|tap| !tap.gone);
        let mut come = Vec::new();
        for name in fresh {
            if !has_room(&self.taps, &self.settings) {
                refuse(&self.shared, &mut self.refused, name, NO_ROOM);
                continue;
            }
            match self.open_tap(&name, ring_bytes_of(&name, &self.wanted, &self.settings)) {
                Ok(tap) => {
                    self.taps.push(tap);
                    come.push(name);
                }
                Err(error) => refuse(&self.shared, &mut self.refused, name, &error.to_string()),
            }
        }
        self.totals = vec![Statistics::default(); self.taps.len()];
        let names = names_of(&self.taps);
        let described = self.taps.iter().map(|tap| tap.describe(&self.settings)).collect();
        self.writer.set_interfaces(described, own_addresses(&names));
        if let Some(owners) = &mut self.owners {
            owners.set_interfaces(names);
        }
        for (what, those) in [("captured from now on", &come[..]), ("gone", gone)] {
            if !those.is_empty() {
                self.shared.notice(format!("interfaces {what}: {}", list_of(those)));
            }
        }
        Ok(())
    }

    fn attach_filters(&self) -> Result<(), CaptureError> {
        self.taps.iter().try_for_each(|tap| self.attach_filter(tap))
    }

    fn attach_filter(&self, tap: &Tap) -> Result<(), CaptureError> {
        let program = exclusion::without(&self.excluded, tap.link_type, &tap.filter);
        tap.ring
            .socket
            .attach_filter(&filter::with_snaplen(program, self.snaplen))
    }

    /// An interface that receives from now on, as the others do.
    fn open_tap(&self, name: &str, ring_bytes: usize) -> Result<Tap, CaptureError> {
        let tap = Tap::open(name, &self.settings, ring_bytes)?;
        self.attach_filter(&tap)?;
        tap.ring.socket.receive()?;
        Ok(tap)
    }

    fn is_drained(&mut self) -> bool {
        self.read_statistics();
        self.taken_count >= self.arrived_count
    }

    fn finish(&mut self) -> Result<(), CaptureError> {
        self.read_statistics();
        self.write_owners();
        self.write_stamps();
        self.writer.finish(&self.totals, Now::read())
    }

    /// Sleeps until a block is ready or an interface changes.
    fn sleep(&mut self) -> Result<(), CaptureError> {
        let mut polled: Vec<PollFd> = self
            .taps
            .iter()
            .filter(|tap| !tap.gone)
            .map(|tap| PollFd::new(tap.ring.socket.fd().as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut polled, POLL_MS) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("poll", errno)),
        }
        let failing = polled
            .iter()
            .any(|fd| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLERR)));
        if failing {
            self.note_errors();
        }
        self.note_removals();
        Ok(())
    }

    fn note_errors(&mut self) {
        for tap in self.taps.iter_mut().filter(|tap| !tap.gone) {
            let Some(errno) = tap.ring.socket.take_error() else {
                continue;
            };
            tap.was_down = true;
            if self.wanted.has_patterns() && !tap.ring.socket.exists() {
                continue; // `follow_interfaces` says that it is gone
            }
            let name = &tap.ring.socket.name;
            self.shared.notice(match errno {
                Errno::ENETDOWN => {
                    format!("interface {name} is down; it is captured again as soon as it is up")
                }
                other => format!("interface {name}: {}", other.desc()),
            });
        }
    }

    fn note_removals(&mut self) {
        if self.wanted.has_patterns() {
            return; // `follow_interfaces` looks for them
        }
        for tap in self.taps.iter_mut().filter(|tap| tap.was_down && !tap.gone) {
            tap.gone = !tap.ring.socket.exists();
            if tap.gone {
                let name = &tap.ring.socket.name;
                self.shared.notice(format!("interface {name} was removed"));
            }
        }
    }

    fn removal_error(&self) -> Option<CaptureError> {
        let all_gone = !self.wanted.has_patterns() && self.taps.iter().all(|tap| tap.gone);
        all_gone.then(|| CaptureError::InterfaceGone {
            name: self.taps[0].name(),
        })
    }

    /// Reads at most one block of each ring, so that none starves another. Returns whether there was any.
    fn read_rings(&mut self) -> Result<bool, CaptureError> {
        let mut any = false;
        for index in 0..self.taps.len() {
            any |= self.read_block(index)?;
        }
        self.rotate_if_due(Now::read())?;
        Ok(any)
    }

    fn read_block(&mut self, index: usize) -> Result<bool, CaptureError> {
        let tap = &mut self.taps[index];
        let (link_type, loopback, bridged) = (tap.link_type, tap.loopback, tap.bridged);
        let interface = tap.ring.socket.index as u32;
        let Some(mut block) = tap.ring.next_block() else {
            return Ok(false);
        };
        let now = Now::read();
        if let Some(stamping) = &mut tap.stamping {
            stamping.relation.read_if_due(now.instant);
        }
        let mut tagged = Vec::new();
        let (mut written_count, mut foreign_count, mut other_count) = (0, 0, 0);
        let mut left_out = LeftOut::default();
        while let Some(packet) = block.next_packet() {
            self.taken_count += 1;
            let Some(direction) = direction(loopback, bridged, packet.packet_type) else {
                foreign_count += u64::from(!loopback);
                continue;
            };
            let (frame, original_len) = with_vlan_tag(&packet, &mut tagged);
            let seen = Packet {
                interface,
                link_type,
                frame,
                original_len,
            };
            let host_ns = match &tap.stamping {
                Some(stamping) => stamping.host_ns(&packet),
                None => packet.host_ns,
            };
            let keeping = self.history.at(host_ns);
            if keeping.depth > 0 && sampling::depth_of_frame(link_type, frame) < keeping.depth {
                left_out.packets_count += 1;
                continue;
            }
            let policy = match keeping.head_bytes {
                Some(0) => PayloadPolicy::None,
                _ => self.policy,
            };
            let Some(kept) = policy.keep(&seen, &mut self.connections) else {
                other_count += 1;
                continue;
            };
            if let Some(stamping) = &mut tap.stamping {
                stamping.counts.add(packet.is_hardware);
            }
            let record = PacketRecord {
                interface_index: index as u32,
                host_ns,
                direction,
                frame,
                original_len,
                is_damaged: !loopback
                    && direction == Direction::Receive
                    && packet.is_unchecked
                    && checksum::is_wrong(link_type, frame),
            };
            if let Some(owners) = &mut self.owners {
                owners.note(link_type, frame, direction, loopback, host_ns);
            }
            self.writer.write(&record, &kept, now)?;
            left_out.shortened_count += u64::from(keeping.head_bytes.is_some());
            written_count += 1;
        }
        self.writer.leave_out(left_out);
        if let Some(owners) = &mut self.owners {
            owners.ask();
        }
        let progress = &self.shared.progress;
        progress.packets_count.fetch_add(written_count, Ordering::Relaxed);
        progress.foreign_count.fetch_add(foreign_count, Ordering::Relaxed);
        progress.other_count.fetch_add(other_count, Ordering::Relaxed);
        progress
            .left_out_count
            .fetch_add(left_out.packets_count, Ordering::Relaxed);
        Ok(true)
    }

    fn rotate_if_due(&mut self, now: Now) -> Result<(), CaptureError> {
        if self.writer.is_due(now.instant) {
            self.read_statistics();
            self.write_owners();
            self.write_stamps();
            self.writer.close(&self.totals, now)?;
            self.totals.fill(Statistics::default());
        }
        Ok(())
    }

    /// Writes who owns the connections of the open segment.
    fn write_owners(&mut self) {
        let Some(owners) = &mut self.owners else {
            return;
        };
        let had_unreadable = owners.unreadable_count() > 0;
        let clock_error = self.writer.clock_error();
        let comments = owners.statement(|host_ns| clock_error.stamp(host_ns));
        self.writer.write_comments(&comments);
        if owners.unreadable_count() > 0 && !had_unreadable {
            self.shared.notice(UNREADABLE_OWNERS.to_owned());
        }
    }

    /// Writes who stamped the packets of the open segment, of interfaces whose card stamps any.
    fn write_stamps(&mut self) {
        let mut comments = Vec::new();
        for tap in &mut self.taps {
            if let Some(stamping) = &mut tap.stamping {
                let counts = std::mem::take(&mut stamping.counts);
                comments.push(counts.comment(&tap.ring.socket.name, stamping.relation.error_ns()));
            }
        }
        self.writer.write_comments(&comments);
    }

    fn read_statistics(&mut self) {
        for (tap, total) in self.taps.iter().zip(&mut self.totals) {
            let (received_count, dropped_count) = tap.ring.socket.statistics();
            total.received_count += received_count;
            total.dropped_count += dropped_count;
            self.arrived_count += received_count - dropped_count;
            self.shared
                .progress
                .dropped_count
                .fetch_add(dropped_count, Ordering::Relaxed);
        }
    }
}

/// Wanted interfaces that are there, are not captured, and were not refused.
fn new_interfaces<'a>(
    wanted: &WantedInterfaces,
    existing: &[String],
    taps: impl IntoIterator<Item = &'a Tap>,
    refused: &Refusals,
) -> Vec<String> {
    let captured: HashSet<&str> = taps.into_iter().map(|tap| tap.ring.socket.name.as_str()).collect();
    wanted
        .among(existing)
        .into_iter()
        .filter(|name| !captured.contains(name.as_str()) && !refused.contains_key(name.as_str()))
        .collect()
}

/// Whether the rings leave room for another one.
fn has_room(taps: &[Tap], settings: &CaptureSettings) -> bool {
    let taken: usize = taps.iter().map(|tap| tap.ring.size_bytes()).sum();
    taken + FOLLOWED_RING_BYTES <= settings.rings_bytes
}

fn ring_bytes_of(name: &str, wanted: &WantedInterfaces, settings: &CaptureSettings) -> usize {
    if wanted.is_named(name) {
        settings.ring_bytes
    } else {
        settings.ring_bytes.min(FOLLOWED_RING_BYTES)
    }
}

fn refuse(shared: &CaptureState, refused: &mut Refusals, name: String, why: &str) {
    shared.notice(format!("interface {name} is not captured: {why}"));
    refused.insert(name, why.to_owned());
}

/// Names of the interfaces that are up.
fn running_interfaces() -> Vec<String> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    let up = interfaces.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let mut names: Vec<String> = up.map(|interface| interface.interface_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn names_of(taps: &[Tap]) -> Vec<String> {
    taps.iter().map(Tap::name).collect()
}

fn list_of(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// Send or receive; `None` for a packet that is not this host's nor of one behind its bridge's port, or the second copy
/// on loopback (the sent one, as in libpcap).
fn direction(loopback: bool, bridged: bool, packet_type: u8) -> Option<Direction> {
    match packet_type {
        libc::PACKET_OUTGOING if loopback => None,
        libc::PACKET_OUTGOING => Some(Direction::Send),
        libc::PACKET_OTHERHOST if !bridged => None,
        _ => Some(Direction::Receive),
    }
}

/// The frame as it was on the wire, and its length there: a VLAN tag that the kernel removed is inserted again.
fn with_vlan_tag<'a>(packet: &RingPacket<'a>, tagged: &'a mut Vec<u8>) -> (&'a [u8], u32) {
    let Some(VlanTag { tpid, tci }) = packet.vlan.filter(|_| packet.frame.len() >= VLAN_AT) else {
        return (packet.frame, packet.original_len);
    };
    tagged.clear();
    tagged.extend_from_slice(&packet.frame[..VLAN_AT]);
    tagged.extend_from_slice(&tpid.to_be_bytes());
    tagged.extend_from_slice(&tci.to_be_bytes());
    tagged.extend_from_slice(&packet.frame[VLAN_AT..]);
    (tagged, packet.original_len + 4)
}

/// Addresses of the captured interfaces.
fn own_addresses(interface_names: &[String]) -> Vec<IpAddr> {
    interface_addresses()
        .into_iter()
        .filter(|(name, _)| interface_names.contains(name))
        .map(|(_, address)| address)
        .collect()
}

/// Every interface's name with each of its addresses.
pub fn interface_addresses() -> Vec<(String, IpAddr)> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            let ip = v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
            Some((interface.interface_name, ip))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(vlan: Option<VlanTag>, frame: &[u8]) -> RingPacket<'_> {
        RingPacket {
            host_ns: 1,
            frame,
            original_len: 1500,
            vlan,
            packet_type: libc::PACKET_HOST,
            is_unchecked: false,
            is_hardware: false,
        }
    }

    #[test]
    fn a_taken_out_tag_is_put_back() {
        let frame = [&[1; 12][..], &[0x08, 0x00], &[0x45]].concat();
        let vlan = Some(VlanTag { tpid: 0x88A8, tci: 7 });
        let mut scratch = Vec::new();
        let expected = [&[1; 12][..], &[0x88, 0xA8, 0, 7], &[0x08, 0x00], &[0x45]].concat();
        assert_eq!(
            with_vlan_tag(&packet(vlan, &frame), &mut scratch),
            (&expected[..], 1504)
        );
        let mut scratch = Vec::new();
        assert_eq!(with_vlan_tag(&packet(None, &frame), &mut scratch), (&frame[..], 1500));
        let mut scratch = Vec::new();
        assert_eq!(
            with_vlan_tag(&packet(vlan, &frame[..11]), &mut scratch),
            (&frame[..11], 1500)
        );
    }

    #[test]
    fn loopback_shows_each_packet_once_and_flooded_packets_are_not_ours() {
        let cases = [
            (false, libc::PACKET_HOST, Some(Direction::Receive)),
            (false, libc::PACKET_OUTGOING, Some(Direction::Send)),
            (false, libc::PACKET_OTHERHOST, None),
            (true, libc::PACKET_HOST, Some(Direction::Receive)),
            (true, libc::PACKET_OUTGOING, None),
        ];
        for (loopback, packet_type, expected) in cases {
            let found = direction(loopback, false, packet_type);
            assert_eq!(found, expected, "{loopback} {packet_type}");
        }
        let behind = direction(false, true, libc::PACKET_OTHERHOST);
        assert_eq!(behind, Some(Direction::Receive), "of a container, at its bridge's port");
    }

    #[test]
    fn a_thread_that_panics_is_not_waited_for() {
        let shared = Arc::new(CaptureState::default());
        let ended = EndNotice(Arc::clone(&shared));
        let thread = thread::spawn(move || {
            let _ended = ended;
            panic!("as the test wants");
        });
        assert!(thread.join().is_err());
        let capture = Capture { shared, thread: None };
        assert!(capture.wait(Duration::ZERO));
        assert!(matches!(capture.error(), Some(CaptureError::System { .. })));
    }

    #[test]
    fn a_missing_interface_is_reported_with_those_that_exist() {
        match PacketSocket::open("nonesuch0") {
            Err(CaptureError::NoSuchInterface { existing, .. }) => {
                assert!(existing.contains(&"lo".to_owned()))
            }
            other => panic!("{other:?}"),
        }
    }
}
