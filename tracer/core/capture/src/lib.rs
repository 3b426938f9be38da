//! The capture ring: AF_PACKET TPACKET_V3 to pcapng segments.
