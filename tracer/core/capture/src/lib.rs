//! The capture ring: AF_PACKET TPACKET_V3 to pcapng segments, without Python in the loop.
//!
//! ```text
//! kernel ──filter──▶ ring (one for each interface) ──▶ policy: TCP only, cut the payload, overwrite credentials └──▶
//! pcapng blocks ──▶ NAME-000001.pcapng.partial ──fsync, rename──▶ .pcapng
//! ```
//!
//! Nothing that the policy has not passed is ever written, not even to a partial file. `unsafe` is confined to `ring`,
//! `socket`, `card` and `privileges`, which talk to the kernel; the rest is ordinary code that tests run without
//! privileges.
#![deny(unsafe_code)]

pub mod checksum;
pub mod clock_error;
pub mod connections;
pub mod cut_hellos;
pub mod error;
pub mod exclusion;
pub mod filter;
pub mod finisher;
mod heads;
pub mod interfaces;
pub mod layout;
pub mod owners;
pub mod pcapng;
pub mod policy;
pub mod sampling;
pub mod segments;
pub mod streamed;

#[cfg(target_os = "linux")]
mod bridge_port;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod card;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub mod privileges;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod ring;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod socket;

#[cfg(target_os = "linux")]
pub mod capture;
#[cfg(target_os = "linux")]
pub mod timestamps;

pub use error::{CaptureError, ErrorKind};
