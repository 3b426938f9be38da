//! Which host owns an address, inferred from the packets that hosts sent and received under it.

use crate::{Direction, NO_HOST};

/// The host of each address: the one that sent from it or, failing that, received at it; of several, the last.
///
/// All columns are of one length.
pub fn host_of_address(direction: &[u8], host: &[u16], src_addr: &[u32], dst_addr: &[u32]) -> Vec<u16> {
    let size = src_addr
        .iter()
        .chain(dst_addr)
        .max()
        .map_or(0, |&address| address as usize + 1);
    let (mut sender, mut receiver) = (vec![NO_HOST; size], vec![NO_HOST; size]);
    for (((&code, &host), &src), &dst) in direction.iter().zip(host).zip(src_addr).zip(dst_addr) {
        match Direction::from_code(code) {
            Direction::Send => sender[src as usize] = host,
            Direction::Receive => receiver[dst as usize] = host,
            Direction::Loopback | Direction::Unknown => {}
        }
    }
    let owner = |(&sent, &received): (&u16, &u16)| if sent == NO_HOST { received } else { sent };
    sender.iter().zip(&receiver).map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_from_an_address_owns_it_before_who_receives_at_it() {
        let owners = host_of_address(&[1, 2, 0, 3, 2], &[0, 0, 1, 1, 1], &[0, 1, 2, 4, 3], &[1, 3, 3, 4, 0]);
        assert_eq!(owners, [NO_HOST, 0, NO_HOST, 1, NO_HOST]);
        assert_eq!(host_of_address(&[1, 2], &[5, 6], &[0, 1], &[1, 0]), [NO_HOST, 6]);
        assert_eq!(host_of_address(&[], &[], &[], &[]), [0_u16; 0]);
    }
}
