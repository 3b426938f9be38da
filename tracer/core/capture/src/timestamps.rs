//! Timestamps by the network card: what it offers, switching them on, and its clock against the system's.
//!
//! A card stamps a frame as it comes off the wire, before interrupt and softirq, by a clock of its own (PHC). A packet
//! socket gets such stamps of received packets only: a sent one passes the tap before the card has it. So one host
//! would have two clocks. To avoid that, [`Relation`] converts the card's stamps to the system's clock, which it reads
//! beside the card's again and again:
//!
//! ```text
//! system_ns = last.system_ns + (stamp - last.card_ns) * (1 + rate),    off by at most half of the readings' width
//! ```
//!
//! Limits: a system clock that is stepped between two readings is noticed at the next one, at most `READ_EVERY` later.
//!
//! Source: Linux Documentation/networking/timestamping.rst, packet_mmap.rst; linux/ethtool.h, net_tstamp.h,
//! ptp_clock.h.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::error::CaptureError;

/// Who stamps packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// The kernel, when a packet passes its tap.
    #[default]
    Software,
    /// The card, if it stamps a packet; else the kernel.
    Hardware,
}

impl std::str::FromStr for Timestamps {
    type Err = CaptureError;

    fn from_str(text: &str) -> Result<Self, CaptureError> {
        match text {
            "software" => Ok(Timestamps::Software),
            "hardware" => Ok(Timestamps::Hardware),
            _ => Err(CaptureError::UnknownTimestamps { text: text.to_owned() }),
        }
    }
}

/// SOF_TIMESTAMPING_* (linux/net_tstamp.h).
pub mod capability {
    pub const RX_HARDWARE: u32 = 1 << 2;
    pub const RX_SOFTWARE: u32 = 1 << 3;
    pub const SOFTWARE: u32 = 1 << 4;
    pub const RAW_HARDWARE: u32 = 1 << 6;
}

/// HWTSTAMP_FILTER_ALL: all received packets are stamped.
const FILTER_ALL: i32 = 1;

/// The clock of the card is read this often. Its rate is known from the second reading on.
pub const READ_EVERY: Duration = Duration::from_millis(250);

/// A greater difference of rates is a step of a clock.
const MOST_RATE: f64 = 1e-3;

/// What an interface offers (ETHTOOL_GET_TS_INFO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Bits of [`capability`].
    pub capabilities: u32,
    /// Number of its clock, `/dev/ptpN`; negative for none.
    pub clock: i32,
    /// Bit n: it can stamp by filter n.
    pub filters: u32,
}

impl Offer {
    /// Whether it can stamp each received packet.
    pub fn is_hardware(&self) -> bool {
        let wanted = capability::RX_HARDWARE | capability::RAW_HARDWARE;
        self.capabilities & wanted == wanted && self.filters & 1 << FILTER_ALL != 0 && self.clock >= 0
    }

    /// In words, as `ethtool -T` has them at length.
    pub fn words(&self) -> &'static str {
        if self.is_hardware() {
            "hardware timestamps of all packets"
        } else if self.capabilities & capability::RX_HARDWARE != 0 {
            "hardware timestamps of some packets only (of PTP)"
        } else if self.capabilities & capability::RX_SOFTWARE != 0 {
            "software timestamps only"
        } else {
            "no timestamps of its own; the kernel stamps its packets"
        }
    }
}

/// What a card is set to (`struct hwtstamp_config`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Setting {
    pub flags: i32,
    pub tx_type: i32,
    pub rx_filter: i32,
}

/// A card as its driver shows it; replaced in tests.
pub trait Card {
    /// The interface's name.
    fn name(&self) -> &str;
    /// What it can do.
    fn offer(&self) -> Result<Offer, Errno>;
    /// What it is set to.
    fn setting(&self) -> Result<Setting, Errno>;
    /// Sets it. Returns what it is set to then, which may stamp more packets than asked for.
    fn set(&self, setting: Setting) -> Result<Setting, Errno>;
}

/// Has a card stamp all received packets. Returns the number of its clock, and what it was set to if that was changed.
///
/// `others`: interfaces that can, for the remedy.
pub fn switch_on(card: &dyn Card, others: &[String]) -> Result<(i32, Option<Setting>), CaptureError> {
    let offer = card.offer();
    let Some(offer) = offer.ok().filter(Offer::is_hardware) else {
        return Err(CaptureError::NoHardwareTimestamps {
            name: card.name().to_owned(),
            offer: offer.map_or("no timestamps of its own; the kernel stamps its packets", |offer| {
                offer.words()
            }),
            others: others.to_vec(),
        });
    };
    let before = card.setting().unwrap_or_default();
    if before.rx_filter == FILTER_ALL {
        return Ok((offer.clock, None));
    }
    let refused = |message: &str| CaptureError::HardwareTimestampsRefused {
        name: card.name().to_owned(),
        message: message.to_owned(),
    };
    let asked = Setting {
        rx_filter: FILTER_ALL,
        ..before
    };
    let now = card.set(asked).map_err(|errno| refused(errno.desc()))?;
    if now.rx_filter != FILTER_ALL {
        let _ = card.set(before); // as well as it can
        return Err(refused("it stamps some packets only"));
    }
    Ok((offer.clock, Some(before)))
}

/// Both clocks at one moment; the system's is known to `width_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub card_ns: i64,
    pub system_ns: i64,
    pub width_ns: u64,
}

/// The clock of a card; replaced in tests.
pub trait CardClock: Send {
    /// Reads both clocks.
    fn read(&mut self) -> Result<Reading, Errno>;
}

/// A card's clock against the system's.
pub struct Relation {
    clock: Box<dyn CardClock>,
    last: Reading,
    rate: f64,
    read_at: Instant,
    widest_ns: u64,
}

impl Relation {
    /// Reads the clock for the first time.
    pub fn start(mut clock: Box<dyn CardClock>, now: Instant) -> Result<Self, Errno> {
        let last = clock.read()?;
        Ok(Relation {
            clock,
            last,
            rate: 0.0,
            read_at: now,
            widest_ns: last.width_ns,
        })
    }

    /// Reads the clocks again if it is time. A reading that fails leaves the last one.
    pub fn read_if_due(&mut self, now: Instant) {
        if now.saturating_duration_since(self.read_at) < READ_EVERY {
            return;
        }
        self.read_at = now;
        let Ok(next) = self.clock.read() else {
            return;
        };
        let card = (next.card_ns - self.last.card_ns) as f64;
        let rate = (next.system_ns - self.last.system_ns) as f64 / card - 1.0;
        self.rate = if card > 0.0 && rate.abs() < MOST_RATE {
            rate
        } else {
            0.0
        };
        self.last = next;
        self.widest_ns = self.widest_ns.max(next.width_ns);
    }

    /// A stamp of the card by the system's clock.
    pub fn system_ns(&self, card_ns: u64) -> u64 {
        let since = i128::from(card_ns) - i128::from(self.last.card_ns);
        let gained = (since as f64 * self.rate).round() as i128;
        let system = i128::from(self.last.system_ns) + since + gained;
        system.clamp(0, i128::from(u64::MAX)) as u64
    }

    /// How far converted stamps may be off: half of the widest reading, and twice that for the rate, over as long as it
    /// was measured.
    pub fn error_ns(&self) -> u64 {
        self.widest_ns + self.widest_ns / 2
    }
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Relation")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// Stamps of an interface by kind, since the last segment was closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StampCounts {
    pub hardware: u64,
    pub software: u64,
}

impl StampCounts {
    /// Counts a packet.
    pub fn add(&mut self, is_hardware: bool) {
        self.hardware += u64::from(is_hardware);
        self.software += u64::from(!is_hardware);
    }

    /// As a segment has it: `twintap.stamps interface=eth0 hardware=12 software=3 error_ns=250`.
    pub fn comment(&self, interface: &str, error_ns: u64) -> String {
        let StampCounts { hardware, software } = self;
        format!("twintap.stamps interface={interface} hardware={hardware} software={software} error_ns={error_ns}")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const HARDWARE: Offer = Offer {
        capabilities: capability::RX_HARDWARE | capability::RAW_HARDWARE | capability::RX_SOFTWARE,
        clock: 0,
        filters: 0b11,
    };
    const OFF: Setting = Setting {
        flags: 0,
        tx_type: 1,
        rx_filter: 0,
    };

    /// A card that gives `becomes` for whatever it is set to.
    struct Fake {
        offer: Result<Offer, Errno>,
        is: Cell<Setting>,
        becomes: Result<i32, Errno>,
        asked: RefCell<Vec<Setting>>,
    }

    impl Fake {
        fn new(offer: Result<Offer, Errno>, is: Setting, becomes: Result<i32, Errno>) -> Self {
            let (is, asked) = (Cell::new(is), RefCell::default());
            Fake {
                offer,
                is,
                becomes,
                asked,
            }
        }
    }

    impl Card for Fake {
        fn name(&self) -> &str {
            "eth0"
        }
        fn offer(&self) -> Result<Offer, Errno> {
            self.offer
        }
        fn setting(&self) -> Result<Setting, Errno> {
            Ok(self.is.get())
        }
        fn set(&self, setting: Setting) -> Result<Setting, Errno> {
            self.asked.borrow_mut().push(setting);
            let rx_filter = self.becomes?;
            Ok(Setting { rx_filter, ..setting })
        }
    }

    fn outcome(offer: Result<Offer, Errno>, becomes: Result<i32, Errno>) -> (String, String) {
        let others = ["eth7".to_owned()];
        let error = switch_on(&Fake::new(offer, OFF, becomes), &others).expect_err("no hardware timestamps");
        (error.to_string(), error.next_step())
    }

    #[test]
    fn a_card_without_hardware_timestamps_is_refused_with_what_it_offers() {
        let software = Offer {
            capabilities: capability::RX_SOFTWARE,
            clock: -1,
            filters: 0,
        };
        let of_ptp = Offer {
            filters: 1 << 12,
            ..HARDWARE
        };
        let without_clock = Offer { clock: -1, ..HARDWARE };
        for (offer, words) in [
            (Ok(software), "software timestamps only"),
            (Ok(of_ptp), "hardware timestamps of some packets only (of PTP)"),
            (Ok(without_clock), "hardware timestamps of some packets only (of PTP)"),
            (
                Err(Errno::EOPNOTSUPP),
                "no timestamps of its own; the kernel stamps its packets",
            ),
        ] {
            let (what, next) = outcome(offer, Ok(FILTER_ALL));
            assert_eq!(what, format!("interface eth0 has {words}"));
            assert_eq!(
                next,
                "give --timestamps software; those that have hardware timestamps: eth7"
            );
        }
    }

    #[test]
    fn a_card_that_does_not_do_as_it_says_is_refused() {
        assert_eq!(
            outcome(Ok(HARDWARE), Err(Errno::EPERM)).0,
            "the card of eth0 did not switch hardware timestamps on: Operation not permitted"
        );
        assert_eq!(
            outcome(Ok(HARDWARE), Ok(12)).0,
            "the card of eth0 did not switch hardware timestamps on: it stamps some packets only"
        );
    }

    #[test]
    fn what_others_have_set_is_kept() {
        let card = Fake::new(Ok(HARDWARE), OFF, Ok(FILTER_ALL));
        assert_eq!(switch_on(&card, &[]), Ok((0, Some(OFF))));
        assert_eq!(
            *card.asked.borrow(),
            [Setting {
                rx_filter: FILTER_ALL,
                ..OFF
            }],
            "tx_type is another's"
        );
        let on = Fake::new(
            Ok(HARDWARE),
            Setting {
                rx_filter: FILTER_ALL,
                ..OFF
            },
            Err(Errno::EPERM),
        );
        assert_eq!(switch_on(&on, &[]), Ok((0, None)), "it needs no right where it is on");
    }

    /// A card's clock that is 37 s ahead (TAI) and 30 ppm fast; readings are known to 400 ns.
    struct Ahead {
        since_ns: i64,
        step_ns: i64,
    }

    fn ahead(system_ns: i64) -> i64 {
        system_ns + 37_000_000_000 + system_ns % 1_000_000_000_000 * 30 / 1_000_000
    }

    impl CardClock for Ahead {
        fn read(&mut self) -> Result<Reading, Errno> {
            self.since_ns += self.step_ns;
            let wrong_ns = if self.since_ns % 2 == 0 { 200 } else { -200 };
            Ok(Reading {
                card_ns: ahead(self.since_ns),
                system_ns: self.since_ns + wrong_ns,
                width_ns: 400,
            })
        }
    }

    #[test]
    fn stamps_are_converted_to_the_systems_clock_within_the_error_that_is_stated() {
        let start = Instant::now();
        let clock = Ahead {
            since_ns: 1_700_000_000_000_000_000,
            step_ns: 250_000_001,
        };
        let mut relation = Relation::start(Box::new(clock), start).expect("readable");
        let mut system_ns = 1_700_000_000_250_000_001_i64;
        let mut now = start;
        for _ in 0..40 {
            (now, system_ns) = (now + READ_EVERY, system_ns + 250_000_001);
            relation.read_if_due(now);
            relation.read_if_due(now + READ_EVERY / 2);
            for behind_ns in [0, 50_000_000, -200_000_000] {
                let at_ns = system_ns - behind_ns;
                let found = relation.system_ns(ahead(at_ns) as u64) as i64;
                assert!(
                    (found - at_ns).unsigned_abs() <= relation.error_ns(),
                    "{} ns off",
                    found - at_ns
                );
            }
        }
        assert_eq!(relation.error_ns(), 600);
    }

    /// Readings one after the other; then it fails.
    struct Script(Vec<(i64, i64)>);

    impl CardClock for Script {
        fn read(&mut self) -> Result<Reading, Errno> {
            let (card_ns, system_ns) = self.0.pop().ok_or(Errno::EIO)?;
            Ok(Reading {
                card_ns,
                system_ns,
                width_ns: 2,
            })
        }
    }

    #[test]
    fn a_step_of_a_clock_is_no_rate_and_a_failed_reading_changes_nothing() {
        let start = Instant::now();
        let clock = Script(vec![(2_000, 9_000_000), (1_000, 100), (1_000, 100)]);
        let mut relation = Relation::start(Box::new(clock), start).expect("readable");
        relation.read_if_due(start + READ_EVERY);
        assert_eq!(relation.system_ns(1_500), 600, "no time passed by the card's clock");
        relation.read_if_due(start + 2 * READ_EVERY);
        assert_eq!(relation.system_ns(2_500), 9_000_500, "a step is no rate");
        relation.read_if_due(start + 3 * READ_EVERY);
        assert_eq!(relation.system_ns(2_500), 9_000_500);
        assert!(Relation::start(Box::new(Script(Vec::new())), start).is_err());
    }

    #[test]
    fn counts_are_a_comment() {
        let mut counts = StampCounts {
            hardware: 11,
            software: 2,
        };
        counts.add(false);
        counts.add(true);
        let comment = "twintap.stamps interface=eth0 hardware=12 software=3 error_ns=250";
        assert_eq!(counts.comment("eth0", 250), comment);
    }
}
