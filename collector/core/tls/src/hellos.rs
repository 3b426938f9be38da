//! What opening needs of hellos: the client's random number; of the server's the random number, version and suite.

use twintap_protocols::tls::hellos::{client_hello, server_hello};

use crate::key_log::Random;

pub const TLS_12: u16 = 0x0303;
pub const TLS_13: u16 = 0x0304;
const RECORD_HEADER_LEN: usize = 5;

/// What a server chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub version: u16,
    pub suite: u16,
    pub server_random: Random,
}

/// The random number of the client's hello that a record begins with.
pub fn client_random(record: &[u8]) -> Option<Random> {
    client_hello(record.get(RECORD_HEADER_LEN..)?).map(|hello| hello.random)
}

/// The choice in a handshake message that is a server's hello; none if it is another message, or asks for another hello.
pub fn choice(message: &[u8]) -> Option<Choice> {
    let hello = server_hello(message).filter(|hello| !hello.is_retry)?;
    Some(Choice {
        version: hello.version?,
        suite: hello.cipher_suite,
        server_random: hello.random,
    })
}
