//! The protocols that are known, a module each, and the registry that every other part asks.
//!
//! # The seam
//! A packet's payload means something only to its protocol. What the parts of the pipeline must know of it, each
//! protocol states in one place, its [`protocol::Protocol`], and [`registry::REGISTRY`] lists them:
//! 1. The agent asks what it may keep of a payload ([`protocol::AgentKeeps`], [`fixed_bytes`]).
//! 2. Whoever stores or shows a payload asks what must be overwritten first ([`redaction`]).
//! 3. The decoder asks which payloads to look into, and keeps excerpts of them, redacted ([`excerpt`],
//!    [`protocol::Framing`]): it sees packets, not streams.
//! 4. After matching, excerpts have places in streams, and the messages are read from them ([`excerpt::Read`]); how a
//!    connection's two directions begin shows what it speaks ([`protocol::Protocol::begins`]).
//! 5. What makes exchanges asks how messages become exchanges ([`exchanges::Exchanges`]).
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
pub mod parts;
pub mod protocol;
pub mod redaction;
pub mod registry;

pub mod http1;
pub mod http2;
pub mod tls;

mod amqp;
mod ceph;
mod memcached;
mod mongodb;
mod mqtt;
mod mysql;
mod nats;
mod postgresql;
mod redis;
mod ssh;
mod turns;
mod websocket;

mod numbers;
