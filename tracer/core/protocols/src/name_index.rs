//! Finds a name in a fixed table of names with one comparison, for tables in which every message is looked up.

/// Where each name of a table is, by a number made of the name's length and of three of its bytes.
///
/// `SLOTS` is a power of two, at least twice the number of names.
#[derive(Debug)]
pub(crate) struct NameIndex<const SLOTS: usize> {
    /// Place in the table plus 1; 0 where no name is.
    slots: [u16; SLOTS],
}

impl<const SLOTS: usize> NameIndex<SLOTS> {
    pub const fn new(names: &[&[u8]]) -> Self {
        assert!(SLOTS.is_power_of_two() && 2 * names.len() <= SLOTS);
        let (mut slots, mut place) = ([0; SLOTS], 0);
        while place < names.len() {
            let mut slot = Self::first_slot(names[place]);
            while slots[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            place += 1;
            slots[slot] = place as u16;
        }
        Self { slots }
    }

    /// Place of a name in the table of which this is the index.
    #[inline]
    pub fn find(&self, names: &[&[u8]], name: &[u8]) -> Option<usize> {
        let mut slot = Self::first_slot(name);
        loop {
            let place = usize::from(self.slots[slot]).checked_sub(1)?;
            if names[place] == name {
                return Some(place);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Where the search for a name begins.
    #[inline]
    const fn first_slot(name: &[u8]) -> usize {
        let len = name.len();
        if len == 0 {
            return 0;
        }
        let bytes = u32::from_be_bytes([name[0], name[len / 2], name[len - 1], len as u8]);
        (bytes.wrapping_mul(0x9e37_79b1) >> 16) as usize % SLOTS // Fibonacci hashing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_it_is_and_no_other() {
        const NAMES: &[&[u8]] = &[b"get", b"gat", b"got", b"set", b"s", b"", b"prepend"];
        const INDEX: NameIndex<16> = NameIndex::new(NAMES);
        for (place, name) in NAMES.iter().enumerate() {
            assert_eq!(INDEX.find(NAMES, name), Some(place));
        }
        for first in 0..=255_u8 {
            for last in 0..=255_u8 {
                let name = [first, b'e', last];
                assert_eq!(INDEX.find(NAMES, &name), NAMES.iter().position(|known| *known == name));
            }
        }
    }

    #[test]
    fn a_table_may_fill_half_of_the_slots_whatever_its_names() {
        const NAMES: &[&[u8]] = &[b"aaaa", b"abaa", b"acaa", b"adaa"]; // which begin at one slot
        const INDEX: NameIndex<8> = NameIndex::new(NAMES);
        for (place, name) in NAMES.iter().enumerate() {
            assert_eq!(INDEX.find(NAMES, name), Some(place));
        }
        assert_eq!(INDEX.find(NAMES, b"aeaa"), None);
    }
}
