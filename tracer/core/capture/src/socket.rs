//! A packet socket (packet(7)): opening, filtering, binding, counting.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, socket, sockopt};

use crate::bridge_port::is_bridge_port;
use crate::error::CaptureError;
use crate::filter::Instruction;
use crate::pcapng::LinkType;
use crate::timestamps::capability;

/// ARPHRD_* of interfaces whose frames begin with the IP header (linux/if_arp.h).
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_NONE: u16 = 0xFFFE;

/// A packet socket tied to one interface; it receives nothing before `receive`.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    pub name: String,
    pub index: i32,
    hardware_type: u16,
}

impl PacketSocket {
    /// Opens a socket on an interface.
    pub fn open(name: &str) -> Result<Self, CaptureError> {
        let index = if_nametoindex(name).map_err(|_| CaptureError::NoSuchInterface {
            name: name.to_owned(),
            existing: existing_interfaces(),
        })?;
        // Protocol 0: no packet comes before filter and ring are there.
        let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).map_err(
            |errno| match errno {
                Errno::EPERM | Errno::EACCES => CaptureError::NotPermitted,
                other => system("socket(AF_PACKET)", other),
            },
        )?;
        let mut socket = PacketSocket {
            fd,
            name: name.to_owned(),
            index: index as i32,
            hardware_type: 0,
        };
        socket.bind(0)?;
        socket.hardware_type = socket.bound_address()?.sll_hatype;
        Ok(socket)
    }

    /// The link layer of its frames.
    pub fn link_type(&self) -> Result<LinkType, CaptureError> {
        match self.hardware_type {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::Ethernet),
            ARPHRD_RAWIP | ARPHRD_NONE => Ok(LinkType::RawIp),
            hardware_type => Err(CaptureError::UnsupportedLink {
                name: self.name.clone(),
                hardware_type,
            }),
        }
    }

    /// Whether each packet is seen twice here, once in each direction.
    pub fn is_loopback(&self) -> bool {
        self.hardware_type == libc::ARPHRD_LOOPBACK
    }

    /// Whether the interface is a port of a bridge, where packets for the hosts behind it arrive.
    pub fn is_bridge_port(&self) -> bool {
        is_bridge_port(self.index)
    }

    /// Leaves out the sent copy of each packet, on loopback, where the received one shows too. A kernel before 4.20
    /// does not know this; then the capture drops the copies itself.
    pub fn leave_out_sent(&self) {
        let on: libc::c_int = 1;
        let _ = self.set_option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on);
    }

    /// Lets the kernel deliver only packets that the program accepts.
    pub fn attach_filter(&self, program: &[Instruction]) -> Result<(), CaptureError> {
        let mut instructions: Vec<libc::sock_filter> = program
            .iter()
            .map(|i| libc::sock_filter {
                code: i.code,
                jt: i.jt,
                jf: i.jf,
                k: i.k,
            })
            .collect();
        let program = libc::sock_fprog {
            len: instructions.len() as u16,
            filter: instructions.as_mut_ptr(),
        };
        self.set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
            .map_err(|errno| system("attaching the filter", errno))
    }

    /// Has the ring carry the card's stamps where there are any, else the kernel's.
    pub fn prefer_hardware_timestamps(&self) -> Result<(), CaptureError> {
        let wanted = (capability::RAW_HARDWARE | capability::SOFTWARE) as libc::c_int;
        self.set_option(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &wanted)
            .map_err(|errno| system("PACKET_TIMESTAMP", errno))
    }

    /// Starts receiving. An interface that is down delivers as soon as it is up; `take_error` then says `ENETDOWN`.
    pub fn receive(&self) -> Result<(), CaptureError> {
        self.bind(libc::ETH_P_ALL as u16)
    }

    /// The socket's pending error, which reading it clears.
    pub fn take_error(&self) -> Option<Errno> {
        match getsockopt(&self.fd, sockopt::SocketError) {
            Ok(0) => None,
            Ok(code) => Some(Errno::from_raw(code)),
            Err(errno) => Some(errno),
        }
    }

    /// Whether the interface still exists.
    pub fn exists(&self) -> bool {
        if_nametoindex(self.name.as_str()).is_ok_and(|index| index as i32 == self.index)
    }

    /// (received, dropped) since the last call; received includes dropped.
    pub fn statistics(&self) -> (u64, u64) {
        let mut statistics = libc::tpacket_stats_v3 {
            tp_packets: 0,
            tp_drops: 0,
            tp_freeze_q_cnt: 0,
        };
        let mut len = mem::size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `statistics`, which is that large, and both outlive the
        // call.
        let status = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut len,
            )
        };
        assert_eq!(status, 0, "PACKET_STATISTICS is refused only for a wrong length");
        (u64::from(statistics.tp_packets), u64::from(statistics.tp_drops))
    }

    /// The descriptor, to poll and to map.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Sets a socket option whose value is plain data.
    pub fn set_option<T>(&self, level: i32, name: i32, value: &T) -> Result<(), Errno> {
        // SAFETY: the kernel reads `size_of::<T>()` bytes from `value`, which is borrowed for the call; a filter
        // program's instructions are owned by the caller of this private path and outlive it too.
        let status = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                mem::size_of::<T>() as libc::socklen_t,
            )
        };
        Errno::result(status).map(drop)
    }

    fn bind(&self, protocol: u16) -> Result<(), CaptureError> {
        let mut address = empty_address();
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = self.index;
        // SAFETY: `address` is a whole sockaddr_ll and the length passed is its own.
        let status = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of_val(&address) as libc::socklen_t,
            )
        };
        Errno::result(status).map(drop).map_err(|errno| match errno {
            Errno::ENODEV | Errno::ENXIO => CaptureError::InterfaceGone {
                name: self.name.clone(),
            },
            other => system("bind", other),
        })
    }

    fn bound_address(&self) -> Result<libc::sockaddr_ll, CaptureError> {
        let mut address = empty_address();
        let mut len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `address`, which is that large, and both outlive the call.
        let status = unsafe { libc::getsockname(self.fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
        Errno::result(status)
            .map(|_| address)
            .map_err(|errno| system("getsockname", errno))
    }
}

/// Names of this host's interfaces.
pub fn existing_interfaces() -> Vec<String> {
    let Ok(interfaces) = nix::net::if_::if_nameindex() else {
        return Vec::new();
    };
    interfaces
        .iter()
        .map(|interface| interface.name().to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn system(operation: &'static str, errno: Errno) -> CaptureError {
    CaptureError::System {
        operation,
        message: errno.desc().to_owned(),
    }
}

fn empty_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
