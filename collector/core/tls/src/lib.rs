//! Opens TLS connections whose secrets a key log holds, so that what is inside is read as if it had been in the clear.
//!
//! Input: packets of all connections, in the order of the capture, and a key log ([`key_log`]). Output: records, each
//! with its content and its place in the stream ([`twintap_wire::opening`]).
//!
//! 1. A client's hello whose random number the key log has begins a connection ([`opener`]). Both directions are put
//!    in order from there, and divided into records ([`direction`]).
//! 2. The server's hello chooses version and suite ([`hellos`], [`suites`]); with the secrets of the log that gives the
//!    keys of each direction ([`key_schedule`]).
//! 3. A record whose tag verifies is opened. Any other is counted and left out: nothing of it is read.
//! 4. Behind a hole the next record is searched for, and the number of missing records is tried, up to a bound: a tag
//!    verifies only under the right number.
//!
//! Versions 1.2 and 1.3, suites with AES-GCM, AES-CCM and ChaCha20-Poly1305. Secrets are in memory only, and are
//! overwritten when they are dropped; nothing here formats them.
//!
//! Limits: early data (0-RTT), renegotiation in TLS 1.2, Encrypted Client Hello, DTLS; connections whose hellos were not captured, since
//! only these contain the random number by which a log lists a connection.
//!
//! Source: RFC 8446 (TLS 1.3), RFC 5246 and 5288 (TLS 1.2, GCM), RFC 6655 (CCM), RFC 7905 (ChaCha20-Poly1305).
#![forbid(unsafe_code)]

pub mod direction;
pub mod hellos;
pub mod key_log;
pub mod key_schedule;
pub mod opener;
pub mod suites;

pub use key_log::KeyLog;
pub use opener::TlsOpener;
