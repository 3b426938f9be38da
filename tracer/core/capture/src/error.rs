//! The errors that stop a capture, each with what the operator can do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Who must act; becomes the class of the Python exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Input,
    Privilege,
    Resource,
    /// A resource: a disk without space.
    DiskFull,
}

/// An error that the operator can correct. Its text and its [`next_step`](CaptureError::next_step) are one clause each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureError {
    UnknownPolicy {
        text: String,
    },
    UnknownTimestamps {
        text: String,
    },
    NoHardwareTimestamps {
        name: String,
        offer: &'static str,
        others: Vec<String>,
    },
    HardwareTimestampsRefused {
        name: String,
        message: String,
    },
    CardClock {
        path: String,
        message: String,
    },
    NotPermitted,
    NoSuchInterface {
        name: String,
        existing: Vec<String>,
    },
    InterfaceGone {
        name: String,
    },
    UnsupportedLink {
        name: String,
        hardware_type: u16,
    },
    NoFilterForLink {
        name: String,
    },
    RingTooLarge {
        name: String,
        ring_bytes: usize,
    },
    DiskFull {
        folder: PathBuf,
    },
    NotACapture {
        what: &'static str,
    },
    NotWritable {
        path: PathBuf,
        message: String,
    },
    System {
        operation: &'static str,
        message: String,
    },
}

impl CaptureError {
    /// Sorts a failed file operation into `DiskFull` or `NotWritable`.
    pub fn from_file(error: &io::Error, path: &Path) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CaptureError::DiskFull {
                folder: path.parent().unwrap_or(path).to_path_buf(),
            },
            _ => CaptureError::NotWritable {
                path: path.to_path_buf(),
                message: error.to_string(),
            },
        }
    }

    /// Who must act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CaptureError::NotPermitted => ErrorKind::Privilege,
            CaptureError::UnknownPolicy { .. }
            | CaptureError::UnknownTimestamps { .. }
            | CaptureError::NoHardwareTimestamps { .. }
            | CaptureError::NotACapture { .. }
            | CaptureError::UnsupportedLink { .. }
            | CaptureError::NoFilterForLink { .. } => ErrorKind::Input,
            CaptureError::DiskFull { .. } => ErrorKind::DiskFull,
            _ => ErrorKind::Resource,
        }
    }

    /// What the operator can do, in one clause; empty if nothing is known.
    pub fn next_step(&self) -> String {
        match self {
            CaptureError::UnknownPolicy { .. } => "give none, heads or a number of bytes".into(),
            CaptureError::UnknownTimestamps { .. } => "give software or hardware".into(),
            CaptureError::NoHardwareTimestamps { others, .. } if others.is_empty() => {
                "give --timestamps software; no interface of this host has hardware timestamps".into()
            }
            CaptureError::NoHardwareTimestamps { others, .. } => {
                let others = others.join(", ");
                format!("give --timestamps software; those that have hardware timestamps: {others}")
            }
            CaptureError::HardwareTimestampsRefused { name, .. } => {
                format!("run as root, or switch them on before: hwstamp_ctl -i {name} -r 1")
            }
            CaptureError::CardClock { path, .. } => format!("let this user read {path}, or give --timestamps software"),
            CaptureError::NotPermitted => "run as root, or give the interpreter the capability: \
                 sudo setcap cap_net_raw+ep $(readlink -f $(command -v python3))"
                .into(),
            CaptureError::NoSuchInterface { existing, .. } => format!("there are: {}", existing.join(", ")),
            CaptureError::InterfaceGone { .. } => "what was captured until then is kept".into(),
            CaptureError::UnsupportedLink { .. } => "capture on the Ethernet interface below it".into(),
            CaptureError::NoFilterForLink { .. } => {
                "write it without Ethernet addresses, or leave that interface out".into()
            }
            CaptureError::RingTooLarge { .. } => "give a smaller --ring-mib".into(),
            CaptureError::DiskFull { .. } => {
                "free some space, or give another directory; all packets written until then are kept".into()
            }
            CaptureError::NotWritable { .. } => "give a directory that can be written to".into(),
            CaptureError::NotACapture { .. } => "what arrived before it is kept".into(),
            CaptureError::System { .. } => String::new(),
        }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::UnknownPolicy { text } => {
                write!(out, "no payload policy '{text}'")
            }
            CaptureError::UnknownTimestamps { text } => write!(out, "no timestamps '{text}'"),
            CaptureError::NoHardwareTimestamps { name, offer, .. } => write!(out, "interface {name} has {offer}"),
            CaptureError::HardwareTimestampsRefused { name, message } => {
                write!(
                    out,
                    "the card of {name} did not switch hardware timestamps on: {message}"
                )
            }
            CaptureError::CardClock { path, message } => {
                write!(out, "cannot read the card's clock {path}: {message}")
            }
            CaptureError::NotPermitted => write!(out, "the kernel refused a packet socket: CAP_NET_RAW is missing"),
            CaptureError::NoSuchInterface { name, .. } => write!(out, "no interface {name}"),
            CaptureError::InterfaceGone { name } => write!(out, "interface {name} was removed"),
            CaptureError::UnsupportedLink { name, hardware_type } => {
                write!(
                    out,
                    "interface {name} is neither Ethernet nor raw IP (ARPHRD {hardware_type})"
                )
            }
            CaptureError::NoFilterForLink { name } => {
                write!(
                    out,
                    "the filter does not fit interface {name}, which has no Ethernet header"
                )
            }
            CaptureError::RingTooLarge { name, ring_bytes } => {
                write!(out, "no memory for a ring of {} MiB on {name}", ring_bytes >> 20)
            }
            CaptureError::DiskFull { folder } => {
                write!(out, "no space left on the disk of {}", folder.display())
            }
            CaptureError::NotACapture { what } => {
                write!(out, "the stream is no capture as tcpdump writes it: {what}")
            }
            CaptureError::NotWritable { path, message } => {
                write!(out, "cannot write {}: {message}", path.display())
            }
            CaptureError::System { operation, message } => {
                write!(out, "{operation} failed: {message}")
            }
        }
    }
}

impl std::error::Error for CaptureError {}
