//! Capture files and packets, decoded to values: pcap and pcapng, link, IP, TCP, HTTP heads.
//!
//! A packet is decoded in these steps: [`input`] provides a window of the file, [`pcap`] or [`pcapng`] finds the next
//! record in it, [`packet`] decodes link → network → transport, [`events`] collects rows by column. [`reader`] runs
//! these steps, a batch at a time.
//!
//! Nothing here panics on input, and memory is bounded by the constants at the head of each module: bad input becomes
//! a [`error::DecodeError`] and bumps a counter of [`counters`].
#![forbid(unsafe_code)]

pub mod address;
pub mod clues;
pub mod cooked;
pub mod counters;
pub mod error;
pub mod events;
pub mod expansion;
pub mod format;
pub mod fragments;
pub mod frames;
pub mod hello_tails;
pub mod input;
pub mod interface;
pub mod ip;
pub mod link;
pub mod opening;
pub mod packet;
pub mod pcap;
pub mod pcapng;
pub mod reader;
pub mod seq;
pub mod stamps;
pub mod tcp;
pub mod time;
pub mod tunnel;

mod bytes;
