//! What a process may do once it knows what to capture: a few capabilities, and nothing else of root's power.
//!
//! As `tracer/privileges.py`, which explains it: the others are taken out of the bounding set, and no program that is
//! started gains any. Capabilities belong to threads, so this is for the main thread before there is another.
//!
//! Source: capabilities(7), capset(2), prctl(2); numbers of linux/capability.h.

/// Packet sockets, which an agent opens all its life.
pub const NET_RAW: u32 = 13;
/// `/proc` of other users' processes: `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE`.
pub const FOR_PROCESSES: [u32; 2] = [2, 19];

const VERSION_3: u32 = 0x2008_0522;
/// The kernel answers an error for the first number that it does not know.
const MOST: u32 = 64;

/// Two halves of each set, the lower first, as capset(2) takes them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// Gives up every capability of this thread but those in `kept`, for good. What it does not have stays away, and what the
/// system does not let it give up (a host without capabilities) stays: the capture works either way.
pub fn keep_only(kept: &[u32]) {
    let wanted = kept.iter().fold(0, |bits, number| bits | 1_u64 << number);
    // SAFETY: this option of prctl takes numbers alone.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    for number in (0..MOST).filter(|number| wanted >> number & 1 == 0) {
        // SAFETY: as above.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) } != 0 {
            break; // past the last one, or without CAP_SETPCAP
        }
    }
    if let Some(permitted) = permitted_bits() {
        set(wanted & permitted);
    }
}

fn permitted_bits() -> Option<u64> {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut halves = [Half::default(); 2];
    // SAFETY: the kernel writes two halves for this version, and both are there.
    let status = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
    (status == 0).then(|| u64::from(halves[1].permitted) << 32 | u64::from(halves[0].permitted))
}

fn set(bits: u64) {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let half = |bits: u64| Half {
        effective: bits as u32,
        permitted: bits as u32,
        inheritable: 0,
    };
    let halves = [half(bits & u64::from(u32::MAX)), half(bits >> 32)];
    // SAFETY: the kernel reads two halves for this version, and both are there. Fewer capabilities are always granted.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_is_to_keep_of_what_it_has() {
        std::thread::spawn(|| {
            let before = permitted_bits().expect("the kernel says");
            keep_only(&[NET_RAW, FOR_PROCESSES[1]]);
            assert_eq!(permitted_bits(), Some(before & (1 << NET_RAW | 1 << FOR_PROCESSES[1])));
            keep_only(&[NET_RAW]);
            assert_eq!(permitted_bits(), Some(before & 1 << NET_RAW));
        })
        .join()
        .expect("no panic");
    }
}
