//! The cards of this host, through their drivers' ioctls: timestamps and clocks.

use std::fs::File;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::CaptureError;
use crate::timestamps::{Card, CardClock, Offer, Reading, Setting};

const SIOCETHTOOL: u32 = 0x8946;
const SIOCSHWTSTAMP: u32 = 0x89B0;
const SIOCGHWTSTAMP: u32 = 0x89B1;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// `struct ethtool_ts_info`.
#[derive(Default)]
#[repr(C)]
struct TimestampInfo {
    command: u32,
    capabilities: u32,
    clock: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

/// `struct ptp_clock_time`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ClockTime {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

impl ClockTime {
    fn ns(self) -> i64 {
        self.seconds * 1_000_000_000 + i64::from(self.nanoseconds)
    }
}

/// `struct ptp_sys_offset_precise`: both clocks latched at once.
#[derive(Default)]
#[repr(C)]
struct PreciseOffset {
    device: ClockTime,
    system: ClockTime,
    monotonic: ClockTime,
    reserved: [u32; 4],
}

/// `struct ptp_sys_offset_extended`: the system's clock before and after each reading of the device's.
#[repr(C)]
struct ExtendedOffset {
    samples_count: u32,
    reserved: [u32; 3],
    samples: [[ClockTime; 3]; 25],
}

const fn read_write(number: u32, size: usize) -> u32 {
    3 << 30 | (size as u32) << 16 | (b'=' as u32) << 8 | number
}

const PTP_SYS_OFFSET_PRECISE: u32 = read_write(8, mem::size_of::<PreciseOffset>());
const PTP_SYS_OFFSET_EXTENDED: u32 = read_write(9, mem::size_of::<ExtendedOffset>());

/// Readings of which the narrowest is taken.
const SAMPLES_COUNT: u32 = 5;

/// The card of an interface.
pub struct InterfaceCard {
    name: String,
    fd: OwnedFd,
}

impl InterfaceCard {
    /// The card of the interface of that name, which need not exist.
    pub fn open(name: &str) -> Result<Self, Errno> {
        let fd = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let name = name.to_owned();
        Ok(InterfaceCard { name, fd })
    }

    fn ask<T>(&self, request: u32, data: &mut T) -> Result<(), Errno> {
        // SAFETY: an ifreq is plain data, for which zeros are valid.
        let mut of: libc::ifreq = unsafe { mem::zeroed() };
        let room = of.ifr_name.len() - 1; // its last byte stays 0
        for (place, byte) in of.ifr_name[..room].iter_mut().zip(self.name.bytes()) {
            *place = byte as libc::c_char;
        }
        of.ifr_ifru.ifru_data = std::ptr::from_mut(data).cast();
        ioctl(self.fd.as_raw_fd(), request, &mut of)
    }
}

impl Card for InterfaceCard {
    fn name(&self) -> &str {
        &self.name
    }

    fn offer(&self) -> Result<Offer, Errno> {
        let mut info = TimestampInfo {
            command: ETHTOOL_GET_TS_INFO,
            ..TimestampInfo::default()
        };
        self.ask(SIOCETHTOOL, &mut info)?;
        Ok(Offer {
            capabilities: info.capabilities,
            clock: info.clock,
            filters: info.rx_filters,
        })
    }

    fn setting(&self) -> Result<Setting, Errno> {
        let mut setting = Setting::default();
        self.ask(SIOCGHWTSTAMP, &mut setting)?;
        Ok(setting)
    }

    fn set(&self, mut setting: Setting) -> Result<Setting, Errno> {
        self.ask(SIOCSHWTSTAMP, &mut setting)?;
        Ok(setting)
    }
}

/// `/dev/ptpN`.
pub struct PtpClock(File);

impl PtpClock {
    /// The clock of that number.
    pub fn open(number: i32) -> Result<Self, CaptureError> {
        let path = format!("/dev/ptp{number}");
        let opened = File::open(&path).map_err(|error| CaptureError::CardClock {
            path: path.clone(),
            message: error.to_string(),
        });
        opened.map(PtpClock)
    }

    /// Both clocks latched by the hardware; few cards can.
    fn precise_reading(&self) -> Result<Reading, Errno> {
        let mut offset = PreciseOffset::default();
        ioctl(self.0.as_raw_fd(), PTP_SYS_OFFSET_PRECISE, &mut offset)?;
        Ok(Reading {
            card_ns: offset.device.ns(),
            system_ns: offset.system.ns(),
            width_ns: 1,
        })
    }

    /// The system's clock just before and after the device's, by the driver.
    fn extended_reading(&self) -> Result<Reading, Errno> {
        let mut offset = ExtendedOffset {
            samples_count: SAMPLES_COUNT,
            reserved: [0; 3],
            samples: [[ClockTime::default(); 3]; 25],
        };
        ioctl(self.0.as_raw_fd(), PTP_SYS_OFFSET_EXTENDED, &mut offset)?;
        let samples = &offset.samples[..SAMPLES_COUNT as usize];
        narrowest(samples.iter().map(|sample| sample.map(ClockTime::ns)))
    }

    /// The system's clock before and after the device's, by this program.
    fn read_in_turns(&self) -> Result<Reading, Errno> {
        let clock = !self.0.as_raw_fd() << 3 | 3; // FD_TO_CLOCKID
        let mut samples = Vec::new();
        for _ in 0..SAMPLES_COUNT {
            let before = system_ns();
            let time = nix::time::clock_gettime(nix::time::ClockId::from_raw(clock))?;
            samples.push([before, time.tv_sec() * 1_000_000_000 + time.tv_nsec(), system_ns()]);
        }
        narrowest(samples.into_iter())
    }
}

impl CardClock for PtpClock {
    fn read(&mut self) -> Result<Reading, Errno> {
        self.precise_reading()
            .or_else(|_| self.extended_reading())
            .or_else(|_| self.read_in_turns())
    }
}

/// The reading that is known best, of (system, card, system) ns; `EIO` where the system's clock was put back.
fn narrowest(samples: impl Iterator<Item = [i64; 3]>) -> Result<Reading, Errno> {
    let readings = samples.filter_map(|[before, card_ns, after]| {
        let width_ns = u64::try_from(after - before).ok()?;
        Some(Reading {
            card_ns,
            system_ns: before + (after - before) / 2,
            width_ns,
        })
    });
    readings.min_by_key(|reading| reading.width_ns).ok_or(Errno::EIO)
}

fn system_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as i64
}

/// An ioctl whose argument is plain data as the kernel lays it out.
fn ioctl<T>(fd: RawFd, request: u32, data: &mut T) -> Result<(), Errno> {
    // SAFETY: each caller passes the structure of its request, which the kernel reads and writes; it is borrowed for the
    // call, and so is what it points to.
    let status = unsafe { libc::ioctl(fd, request as _, std::ptr::from_mut(data)) };
    Errno::result(status).map(drop)
}

/// Interfaces of this host whose cards can stamp all packets.
pub fn with_hardware_timestamps() -> Vec<String> {
    let can = |name: &String| {
        let offer = InterfaceCard::open(name).and_then(|card| card.offer());
        offer.is_ok_and(|offer| offer.is_hardware())
    };
    crate::socket::existing_interfaces().into_iter().filter(can).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamps::switch_on;

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(mem::size_of::<TimestampInfo>(), 44);
        assert_eq!(mem::size_of::<Setting>(), 12);
        assert_eq!(PTP_SYS_OFFSET_PRECISE, 0xC040_3D08);
        assert_eq!(PTP_SYS_OFFSET_EXTENDED, 0xC4C0_3D09);
    }

    #[test]
    fn loopback_has_software_timestamps_by_what_the_kernel_answers() {
        let card = InterfaceCard::open("lo").expect("a socket");
        let offer = card.offer().expect("lo answers");
        assert_eq!((offer.words(), offer.clock), ("software timestamps only", -1));
        assert!(matches!(
            switch_on(&card, &[]),
            Err(CaptureError::NoHardwareTimestamps { .. })
        ));
        let missing = InterfaceCard::open("nonesuch0").expect("a socket");
        assert_eq!(missing.offer(), Err(Errno::ENODEV));
    }

    #[test]
    fn the_narrowest_reading_is_taken() {
        let samples = [[100, 7_000, 140], [200, 7_100, 210], [300, 7_200, 290]];
        let reading = narrowest(samples.into_iter()).expect("two of them are in order");
        let expected = Reading {
            card_ns: 7_100,
            system_ns: 205,
            width_ns: 10,
        };
        assert_eq!(reading, expected);
        assert_eq!(narrowest([[300, 7_200, 290]].into_iter()), Err(Errno::EIO));
    }

    #[test]
    fn what_is_no_clock_is_not_read() {
        assert!(matches!(PtpClock::open(9_999), Err(CaptureError::CardClock { .. })));
        let mut not_a_clock = PtpClock(File::open("/dev/null").expect("readable"));
        assert!(not_a_clock.read().is_err());
    }
}
