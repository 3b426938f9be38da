//! Rows of TCP packets, collected by column.
//!
//! A packet is decoded into an [`Event`] in a small block of rows that stays in the level-1 cache, and a full block is
//! turned into columns: one capacity check a column and block instead of one a value.

/// Calls `$then!` with the name and type of every column of an event, in order.
#[macro_export]
macro_rules! with_event_columns {
    ($then:ident) => {
        $then! {
            frame: u32, host_ns: i64, interface: u16, direction: u8, src_addr: u32, dst_addr: u32, src_port: u16,
            dst_port: u16, seq: u32, ack: u32, flags: u16, window: u16, payload_len: u32, ip_id: i32, tsval: u32,
            tsecr: u32, options: u8, mss: u16, window_scale: u8, sack_hash: u32, captured_len: u32, original_len: u32,
        }
    };
}

macro_rules! define_event {
    ($($name:ident: $kind:ty,)*) => {
        /// One TCP packet at one capture point.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Event { $(pub $name: $kind,)* }

        /// Events by column; all of one length.
        #[derive(Clone, Debug, Default)]
        pub struct EventColumns { $(pub $name: Vec<$kind>,)* }

        impl EventColumns {
            /// Add `rows` at the end.
            pub fn extend(&mut self, rows: &[Event]) {
                $(self.$name.extend(rows.iter().map(|row| row.$name));)*
            }

            /// Make room for `rows` more.
            pub fn reserve(&mut self, rows: usize) {
                $(self.$name.reserve(rows);)*
            }

            /// Remove all rows but keep their memory.
            pub fn clear(&mut self) {
                $(self.$name.clear();)*
            }

            /// Keep the rows before `at`; the others are returned.
            pub fn split_off(&mut self, at: usize) -> Self {
                Self { $($name: self.$name.split_off(at),)* }
            }

            /// Row `at`, assembled from the columns.
            pub fn row(&self, at: usize) -> Event {
                Event { $($name: self.$name[at],)* }
            }
        }
    };
}

with_event_columns!(define_event);

impl EventColumns {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }
}
