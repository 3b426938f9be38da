//! Capture files and packets, decoded to values: pcap, pcapng, link, IP, TCP, HTTP heads.
#![forbid(unsafe_code)]
