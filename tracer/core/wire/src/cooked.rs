//! The interfaces behind one cooked capture: `-i any` writes the packets of every interface of a host into one.
//!
//! The header of a Linux cooked capture v2 holds the number of the interface that saw the packet. Each number becomes
//! an interface of its own, in order of appearance, so that one packet seen at a veth, at its bridge and at the card
//! can be distinguished from three packets. The first number replaces the interface that the file describes (and keeps
//! its statistics, which cover all of them); the others are appended to the interfaces known by then. Names are
//! `any:3`: the file contains no more than the number, which is that of `ip link` on that host.
//!
//! Limits: version 1 of the header has no number. Past [`COOKED_LIMIT`] numbers of a file, packets stay with the
//! interface described and are counted.
//!
//! Source: linktypes LINKTYPE_LINUX_SLL2 (tcpdump.org), bytes 4 to 7 of the header.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::bytes::be32;
use crate::counters::{CounterKind, Counters};
use crate::interface::Interface;
use crate::link::SLL2_LEN;

/// Most interfaces that cooked captures of one file are split into; a host of a thousand containers has that many.
pub const COOKED_LIMIT: usize = 4_096;
/// Name of a cooked capture's interface if the file contains none (pcap).
const USUAL_NAME: &str = "any";

/// (interface as described, number in the cooked header).
type Key = (u16, u32);

/// The interface of each number of each cooked capture.
#[derive(Default)]
pub struct CookedInterfaces {
    known: HashMap<Key, u16, RandomState>,
    /// Original names of described interfaces that were split.
    names: HashMap<u16, String, RandomState>,
    last: Option<(Key, u16)>,
}

impl CookedInterfaces {
    /// The interface of the cooked packet `frame` of `described`; `described` itself if its header is cut.
    #[inline]
    pub fn resolve(
        &mut self,
        described: u16,
        frame: &[u8],
        interfaces: &mut Vec<Interface>,
        counters: &mut Counters,
    ) -> u16 {
        if frame.len() < SLL2_LEN {
            return described;
        }
        let key = (described, be32(frame, 4));
        match self.last {
            Some((last, index)) if last == key => index,
            _ => self.look_up(key, interfaces, counters),
        }
    }

    fn look_up(&mut self, key: Key, interfaces: &mut Vec<Interface>, counters: &mut Counters) -> u16 {
        let found = self.known.get(&key).copied();
        let Some(index) = found.or_else(|| self.add(key, interfaces)) else {
            counters.bump(CounterKind::InterfacesNotDistinguished);
            return key.0;
        };
        self.last = Some((key, index));
        index
    }

    fn add(&mut self, key: Key, interfaces: &mut Vec<Interface>) -> Option<u16> {
        let (described, number) = key;
        let fresh = u16::try_from(interfaces.len()).ok().filter(|&index| index < u16::MAX);
        let original = &mut interfaces[usize::from(described)];
        let index = if let Some(name) = self.names.get(&described) {
            let index = fresh.filter(|_| self.known.len() < COOKED_LIMIT)?;
            let interface = Interface {
                name: format!("{name}:{number}"),
                ..original.without_counts()
            };
            interfaces.push(interface);
            index
        } else {
            let described_name = std::mem::take(&mut original.name);
            let name = if described_name.is_empty() {
                USUAL_NAME.to_owned()
            } else {
                described_name
            };
            original.name = format!("{name}:{number}");
            self.names.insert(described, name);
            described
        };
        self.known.insert(key, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkType;
    use crate::time::Resolution;

    fn frame(number: u32) -> Vec<u8> {
        let mut frame = vec![0; SLL2_LEN];
        frame[4..8].copy_from_slice(&number.to_be_bytes());
        frame
    }

    fn interface(name: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            ..Interface::new(LinkType::LINUX_SLL2, 0, Resolution::NANOSECONDS)
        }
    }

    #[test]
    fn each_number_is_an_interface_in_order_of_appearance() {
        let (mut cooked, mut counters) = (CookedInterfaces::default(), Counters::default());
        let mut interfaces = vec![interface("any"), interface("")];
        let seen: Vec<u16> = [(0, 7), (0, 3), (1, 7), (0, 7), (1, 9), (0, 3)]
            .into_iter()
            .map(|(described, number)| cooked.resolve(described, &frame(number), &mut interfaces, &mut counters))
            .collect();
        assert_eq!(seen, [0, 2, 1, 0, 3, 2]);
        let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        assert_eq!(names, ["any:7", "any:7", "any:3", "any:9"]);
    }

    #[test]
    fn a_header_that_is_cut_stays_with_the_interface_described() {
        let (mut cooked, mut counters) = (CookedInterfaces::default(), Counters::default());
        let mut interfaces = vec![interface("any")];
        let cut = &frame(7)[..SLL2_LEN - 1];
        assert_eq!(cooked.resolve(0, cut, &mut interfaces, &mut counters), 0);
        assert_eq!(interfaces[0].name, "any");
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn numbers_without_end_are_counted() {
        let (mut cooked, mut counters) = (CookedInterfaces::default(), Counters::default());
        let mut interfaces = vec![interface("any")];
        for number in 0..COOKED_LIMIT as u32 + 5 {
            let index = cooked.resolve(0, &frame(number), &mut interfaces, &mut counters);
            assert_eq!(u32::from(index), if number < COOKED_LIMIT as u32 { number } else { 0 });
        }
        assert_eq!(interfaces.len(), COOKED_LIMIT);
        assert_eq!(counters.get(CounterKind::InterfacesNotDistinguished), 5);
    }
}
