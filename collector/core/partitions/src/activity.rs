//! When each interface of a host captured, by the stamps of its packets: the time span of each file, and the intervals
//! in which an interface was silent. A silence alone does not show that the capture has a hole: that is decided later,
//! by comparison with what other hosts saw.
//!
//! Cost: one comparison a packet. Memory is bounded: where silences are many, short ones are forgotten.

use rustc_hash::FxHashMap;
use twintap_wire::events::EventColumns;

/// The shortest silence that is noted, as long as memory suffices. A restarted capture misses more than that.
const MIN_SILENCE_NS: i64 = 10_000_000;
/// Silences kept for each host.
const MAX_SILENCES: usize = 1 << 16;

/// Stamps of one host's packets, by file and by interface (its number for the host); all in ns of the host's clock.
#[derive(Debug)]
pub struct Activity {
    /// For each file with packets: the number of packets in the host's earlier files, smallest and largest stamp.
    pub files: Vec<(u32, i64, i64)>,
    /// For each interface: smallest and largest stamp, and the number of packets; `None` without packets.
    pub interfaces: Vec<Option<(i64, i64, u64)>>,
    /// Interface, last stamp before the silence, first stamp after it.
    pub silences: Vec<(u16, i64, i64)>,
    /// Packets by source, destination and interface, while there are few pairs.
    pub passed: FxHashMap<(u32, u32, u16), u64>,
    min_silence_ns: i64,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            interfaces: Vec::new(),
            silences: Vec::new(),
            passed: FxHashMap::default(),
            min_silence_ns: MIN_SILENCE_NS,
        }
    }
}

impl Activity {
    /// Note the packets of a batch with stamps `span_ns` (smallest, largest); `place` gives an interface's number.
    pub fn add(&mut self, events: &EventColumns, frames_before: u32, span_ns: (i64, i64), place: impl Fn(u16) -> u16) {
        match self.files.last_mut() {
            Some(file) if file.0 == frames_before => {
                (file.1, file.2) = (file.1.min(span_ns.0), file.2.max(span_ns.1));
            }
            _ => self.files.push((frames_before, span_ns.0, span_ns.1)),
        }
        for run in events.interface.chunk_by(|a, b| a == b).scan(0, |start, run| {
            let range = *start..*start + run.len();
            *start = range.end;
            Some(range)
        }) {
            let number = place(events.interface[run.start]);
            self.add_run(number, &events.host_ns[run]);
        }
    }

    /// Note packets of one interface, in file order.
    fn add_run(&mut self, number: u16, stamps: &[i64]) {
        let place = usize::from(number);
        if self.interfaces.len() <= place {
            self.interfaces.resize(place + 1, None);
        }
        let Some(&first) = stamps.first() else { return };
        let (mut least, mut latest, count) = self.interfaces[place].unwrap_or((first, first, 0));
        for &stamp in stamps {
            if stamp - latest >= self.min_silence_ns {
                self.silences.push((number, latest, stamp));
            }
            latest = latest.max(stamp);
            least = least.min(stamp);
        }
        self.interfaces[place] = Some((least, latest, count + stamps.len() as u64));
        while self.silences.len() > MAX_SILENCES {
            self.min_silence_ns *= 2;
            let least_ns = self.min_silence_ns;
            self.silences.retain(|&(_, from, to)| to - from >= least_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_wire::events::Event;

    const MS: i64 = 1_000_000;

    fn batch(packets: &[(u16, i64)]) -> EventColumns {
        let mut events = EventColumns::default();
        let rows: Vec<Event> = packets
            .iter()
            .map(|&(interface, at_ms)| Event {
                interface,
                host_ns: at_ms * MS,
                ..Event::default()
            })
            .collect();
        events.extend(&rows);
        events
    }

    #[test]
    fn each_interface_has_its_own_silences_and_each_file_its_span() {
        let mut activity = Activity::default();
        let first = batch(&[(0, 100), (1, 101), (0, 105), (0, 140)]);
        activity.add(&first, 0, (100 * MS, 140 * MS), |interface| interface);
        activity.add(&batch(&[(0, 141)]), 0, (141 * MS, 141 * MS), |interface| interface);
        activity.add(&batch(&[(0, 200)]), 5, (200 * MS, 200 * MS), |interface| interface + 1);
        assert_eq!(activity.files, [(0, 100 * MS, 141 * MS), (5, 200 * MS, 200 * MS)]);
        assert_eq!(
            activity.interfaces,
            [Some((100 * MS, 141 * MS, 4)), Some((101 * MS, 200 * MS, 2))]
        );
        assert_eq!(
            activity.silences,
            [(0, 105 * MS, 140 * MS), (1, 101 * MS, 200 * MS)],
            "a stamp that goes back ends none"
        );
    }

    #[test]
    fn of_many_silences_the_long_ones_stay() {
        let mut activity = Activity::default();
        let stamps: Vec<i64> = (0..2 * MAX_SILENCES as i64).map(|n| n * 15 * MS).collect();
        activity.add_run(0, &stamps);
        activity.add_run(0, &[i64::MAX / 2]);
        assert!(activity.silences.len() <= MAX_SILENCES);
        assert_eq!(activity.silences.last().map(|silence| silence.2), Some(i64::MAX / 2));
    }
}
