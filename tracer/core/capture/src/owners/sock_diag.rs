//! Questions to the kernel about its TCP sockets: the one of a 4-tuple, and those that listen.
//!
//! Source: sock_diag(7), linux/inet_diag.h. No right is needed. Of one 4-tuple the kernel looks the socket up in its
//! hash table, so the cost does not grow with the number of sockets; where there is none, it gives the socket that
//! listens at the port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

use super::key::Key;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LEN: usize = 16;
const REQUEST_LEN: usize = HEADER_LEN + 56;
const ANSWER_LEN: usize = HEADER_LEN + 72;
const ATTRIBUTE_HEADER_LEN: usize = 4;
const INET_DIAG_CGROUP_ID: u16 = 21;
const TCP: u8 = 6;
const NO_COOKIE: [u8; 8] = [0xff; 8];
const TIME_WAIT: u8 = 6;
const LISTEN: u8 = 10;
/// FIN_WAIT1, FIN_WAIT2, CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING.
const CLOSING_STATES: [u8; 6] = [4, 5, 7, 8, 9, 11];
/// An answer comes at once; this only ends the wait for one that does not come.
const LONGEST_ANSWER_MS: i64 = 200;
/// Sockets that listen, at most.
const MOST_LISTENERS: usize = 65_536;

/// A socket of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFacts {
    pub listens: bool,
    /// It is a connection's last trace in the kernel (TIME_WAIT), which no process will have.
    pub is_over: bool,
    /// One of its ends has closed: who still has it need not be who served.
    pub is_closing: bool,
    pub local: SocketAddr,
    /// 0 if no process has it: it is not accepted yet, or closed already.
    pub inode: u64,
    /// Of whom it was made; means nothing without an inode.
    pub uid: u32,
    /// Of the process that made it, in the unified hierarchy.
    pub cgroup_id: Option<u64>,
}

/// A connection to the kernel for such questions, in the network namespace in which it was opened.
pub struct SockDiag {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl SockDiag {
    pub fn open() -> Result<Self, Errno> {
        let protocol = SockProtocol::NetlinkSockDiag;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(
            &fd,
            sockopt::ReceiveTimeout,
            &TimeVal::new(0, LONGEST_ANSWER_MS * 1_000),
        )?;
        Ok(SockDiag {
            fd,
            sequence: 0,
            buffer: vec![0; 32 * 1024],
        })
    }

    /// The socket of a connection's end, else the one that listens there.
    pub fn find(&mut self, key: &Key) -> Option<SocketFacts> {
        self.ask(&request(family(key.local.ip()), NLM_F_REQUEST, u32::MAX, Some(key)))
            .ok()?;
        let mut found = None;
        self.read_answers(|facts| found = Some(facts), false).ok()?;
        found
    }

    /// All sockets that listen.
    pub fn listeners(&mut self) -> Vec<SocketFacts> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let flags = NLM_F_REQUEST | NLM_F_DUMP;
            if self.ask(&request(family as u8, flags, 1 << LISTEN, None)).is_ok() {
                let add = |facts| {
                    if found.len() < MOST_LISTENERS {
                        found.push(facts);
                    }
                };
                let _ = self.read_answers(add, true); // what came until then is right
            }
        }
        found
    }

    fn ask(&mut self, request: &[u8; REQUEST_LEN]) -> Result<(), Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = *request;
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        send(self.fd.as_raw_fd(), &request, MsgFlags::empty()).map(drop)
    }

    fn read_answers(&mut self, mut take: impl FnMut(SocketFacts), is_dump: bool) -> Result<(), Errno> {
        loop {
            let len = recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
            let mut rest = &self.buffer[..len];
            while let Some((kind, sequence, message)) = next_message(&mut rest) {
                if sequence != self.sequence {
                    continue; // an answer that came too late
                }
                match kind {
                    NLMSG_DONE | NLMSG_ERROR => return Ok(()),
                    SOCK_DIAG_BY_FAMILY => {
                        if let Some(facts) = answer(message) {
                            take(facts);
                        }
                        if !is_dump {
                            return Ok(());
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Whether a socket in this state, as the kernel numbers them, belongs to a connection that an end has closed.
pub fn is_closing(state: u8) -> bool {
    CLOSING_STATES.contains(&state)
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    family as u8
}

fn request(family: u8, flags: u16, states: u32, key: Option<&Key>) -> [u8; REQUEST_LEN] {
    let mut request = [0; REQUEST_LEN];
    request[..4].copy_from_slice(&(REQUEST_LEN as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[16..18].copy_from_slice(&[family, TCP]);
    request[20..24].copy_from_slice(&states.to_ne_bytes());
    if let Some(key) = key {
        request[24..26].copy_from_slice(&key.local.port().to_be_bytes());
        request[26..28].copy_from_slice(&key.remote.port().to_be_bytes());
        put_address(&mut request[28..44], key.local.ip());
        put_address(&mut request[44..60], key.remote.ip());
    }
    request[64..72].copy_from_slice(&NO_COOKIE);
    request
}

fn put_address(field: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(v4) => field[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => field.copy_from_slice(&v6.octets()),
    }
}

/// The next netlink message: its type, its sequence number, and all of it.
fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, u32, &'a [u8])> {
    let len = u32_at(rest, 0)? as usize;
    if len < HEADER_LEN || len > rest.len() {
        return None;
    }
    let message = &rest[..len];
    *rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    let kind = u16::from_ne_bytes([message[4], message[5]]);
    Some((kind, u32_at(message, 8)?, message))
}

fn answer(message: &[u8]) -> Option<SocketFacts> {
    let fixed = message.get(HEADER_LEN..ANSWER_LEN)?;
    let port = u16::from_be_bytes([fixed[4], fixed[5]]);
    let address: IpAddr = if i32::from(fixed[0]) == libc::AF_INET {
        Ipv4Addr::from(<[u8; 4]>::try_from(&fixed[8..12]).ok()?).into()
    } else {
        Ipv6Addr::from(<[u8; 16]>::try_from(&fixed[8..24]).ok()?).into()
    };
    let mut cgroup_id = None;
    let mut attributes = &message[ANSWER_LEN..];
    while attributes.len() >= ATTRIBUTE_HEADER_LEN {
        let len = usize::from(u16::from_ne_bytes([attributes[0], attributes[1]]));
        let kind = u16::from_ne_bytes([attributes[2], attributes[3]]);
        let Some(value) = attributes.get(ATTRIBUTE_HEADER_LEN..len) else {
            break;
        };
        if kind == INET_DIAG_CGROUP_ID {
            cgroup_id = value.try_into().ok().map(u64::from_ne_bytes);
        }
        attributes = &attributes[len.next_multiple_of(4).min(attributes.len())..];
    }
    Some(SocketFacts {
        listens: fixed[1] == LISTEN,
        is_over: fixed[1] == TIME_WAIT,
        is_closing: is_closing(fixed[1]),
        local: SocketAddr::new(address, port),
        uid: u32_at(fixed, 64)?,
        inode: u64::from(u32_at(fixed, 68)?),
        cgroup_id,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn inode(fd: &impl AsRawFd) -> u64 {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        std::fs::metadata(path).expect("an open socket").ino()
    }

    fn connection(address: &str) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).expect("loopback");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (server, _) = listener.accept().expect("connected");
        (listener, client, server)
    }

    fn key(stream: &TcpStream) -> Key {
        let (local, remote) = (stream.local_addr(), stream.peer_addr());
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Key {
            local: plain(local.expect("connected")),
            remote: plain(remote.expect("connected")),
        }
    }

    #[test]
    fn each_end_has_its_own_socket() {
        let mut diag = SockDiag::open().expect("sock_diag");
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (_listener, client, server) = connection(address);
            for stream in [client, server] {
                let facts = diag.find(&key(&stream)).expect("a socket of this process");
                assert_eq!((facts.inode, facts.listens), (inode(&stream), false), "{address}");
            }
        }
    }

    #[test]
    fn a_connection_that_one_end_has_closed_is_closing() {
        let mut diag = SockDiag::open().expect("sock_diag");
        let (_listener, client, server) = connection("127.0.0.1:0");
        let is_closing = |diag: &mut SockDiag| diag.find(&key(&server)).expect("a socket").is_closing;
        assert!(!is_closing(&mut diag));
        client.shutdown(std::net::Shutdown::Write).expect("connected");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !is_closing(&mut diag) {
            assert!(std::time::Instant::now() < until, "the FIN has arrived");
        }
    }

    #[test]
    fn a_server_of_ipv6_has_its_connections_of_ipv4() {
        let mut diag = SockDiag::open().expect("sock_diag");
        let listener = TcpListener::bind("[::]:0").expect("any address");
        let port = listener.local_addr().expect("bound").port();
        let client = TcpStream::connect(("127.0.0.1", port)).expect("listening");
        let (server, _) = listener.accept().expect("connected");
        let facts = diag.find(&key(&client).other_end()).expect("a socket of this process");
        assert_eq!(facts.inode, inode(&server));
    }

    #[test]
    fn without_a_connection_the_listening_socket_is_found() {
        let mut diag = SockDiag::open().expect("sock_diag");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let local = listener.local_addr().expect("bound");
        let remote = "127.0.0.1:9".parse().expect("an address");
        let facts = diag.find(&Key { local, remote }).expect("a socket of this process");
        assert_eq!((facts.inode, facts.listens), (inode(&listener), true));
        let found = diag.listeners();
        assert!(
            found
                .iter()
                .any(|each| each.local == local && each.inode == inode(&listener))
        );
    }

    #[test]
    fn what_is_no_answer_is_passed_by() {
        assert_eq!(answer(&[0; ANSWER_LEN - 1]), None);
        assert!(next_message(&mut &[255_u8; 16][..]).is_none());
        assert!(next_message(&mut &[0_u8; 3][..]).is_none());
    }
}
