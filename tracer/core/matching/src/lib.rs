//! Pairing each transfer of bytes between a send event and a receive event.
#![forbid(unsafe_code)]
