//! The known protocols, a module each, and the registry that all other parts use.
//!
//! # The seam
//! Only a payload's protocol can interpret it. What each stage needs to know, a protocol states in one place, its
//! [`protocol::Protocol`], and [`registry::REGISTRY`] lists them:
//! 1. Agent: what may be kept of a payload ([`protocol::AgentKeeps`], [`fixed_bytes`]).
//! 2. Before a payload is stored or shown: what must be overwritten ([`redaction`]).
//! 3. Decoder, which sees packets, not streams: which payloads to read, and which redacted excerpts of them to keep
//!    ([`excerpt`], [`protocol::Framing`]).
//! 4. After matching, when excerpts have places in streams: how messages are read from them ([`excerpt::Read`]), and
//!    how a connection's two directions begin ([`protocol::Protocol::begins`]), which shows its protocol.
//! 5. Exchanges: how messages become exchanges ([`exchanges::Exchanges`]), and what an answer's status and result code
//!    mean ([`results::Results`]).
//!
//! # Invariants
//! - Nothing here panics on input, and nothing is read beyond a payload.
//! - Overwriting never changes a length.
//!
//! # To add one
//! A module, and its line in the registry: docs/adding.md.
#![forbid(unsafe_code)]

pub mod excerpt;
pub mod exchanges;
pub mod fixed_bytes;
pub mod head;
pub mod marks;
pub mod ordered;
pub mod parts;
pub mod protocol;
pub mod redaction;
pub mod registry;
pub mod results;
pub mod sql;
pub mod upgrade;

pub mod http1;
pub mod http2;
pub mod tls;

mod amqp;
mod ceph;
mod kafka;
mod kept_messages;
mod kept_parts;
mod key_shape;
mod memcached;
mod mongodb;
mod mqtt;
mod mysql;
mod name_index;
mod nats;
mod postgresql;
mod redis;
mod sized_messages;
mod ssh;
mod turns;
mod websocket;
mod zookeeper;

mod numbered_messages;
mod numbers;
