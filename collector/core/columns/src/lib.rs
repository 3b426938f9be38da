//! Declares tables that cross between the core and its caller. A list of columns generates the struct, the reading of
//! its columns and their checks.
//!
//! [`input_table!`] declares a struct of slices that the caller owns, with the reading of its columns by name, their
//! types, and the check that all have one length. [`output_table!`] declares a struct of vectors, with their names;
//! [`row_table!`] a struct of one row, for tables that are built row by row.
//! A column has the name of its field, or the text in parentheses after it. A table may also have columns of texts
//! ([`Texts`]), after `texts`, and, after `beside`, fields that are no columns.
//!
//! ```
//! twintap_columns::input_table! {
//!     /// Points in time.
//!     pub struct Points { host("host_id"): u16, at_ns: i64 }
//! }
//! twintap_columns::output_table! {
//!     /// What each took.
//!     pub struct Delays { delay_ns: i64 }
//! }
//! use twintap_columns::{InputTable, OutputTable, Slice};
//! let given = [("host_id", Slice::U16(&[3])), ("at_ns", Slice::I64(&[7]))];
//! let points = Points::read(&given[..]).unwrap();
//! assert_eq!((points.host, points.at_ns), (&[3][..], &[7][..]));
//! assert_eq!(Delays { delay_ns: vec![7] }.into_columns()[0].0, "delay_ns");
//! ```
//!
//! Limits: columns have one dimension and no nulls. A missing value is a reserved value, or a bit in another column.
#![forbid(unsafe_code)]

use std::fmt;

/// Why columns do not form a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnError {
    Missing(&'static str),
    /// The column is not of the type that it must have.
    Type {
        name: &'static str,
        expected: &'static str,
    },
    /// The column is longer or shorter than the table's first.
    Length(&'static str),
    /// Offsets of texts descend, or lead beyond their bytes.
    Offsets(&'static str),
}

impl fmt::Display for ColumnError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(to, "column {name} is missing"),
            Self::Type { name, expected } => write!(to, "column {name} is no contiguous array of {expected}"),
            Self::Length(name) => write!(to, "columns differ in length: {name}"),
            Self::Offsets(name) => write!(to, "column {name} leads beyond its bytes"),
        }
    }
}

impl std::error::Error for ColumnError {}

/// A type that a column may have.
pub trait Element: Copy + Sized {
    const NAME: &'static str;
    /// The values, if they are of this type.
    fn of_slice(slice: Slice<'_>) -> Option<&[Self]>;
    fn into_values(values: Vec<Self>) -> Values;
}

macro_rules! elements {
    ($($variant:ident: $kind:ty = $name:literal),+ $(,)?) => {
        /// Values of a column that the caller owns.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Slice<'a> {
            $($variant(&'a [$kind]),)+
            /// Another type, or no contiguous array.
            Unsupported,
        }

        /// Values of a column that goes to the caller.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Values { $($variant(Vec<$kind>)),+ }

        $(impl Element for $kind {
            const NAME: &'static str = $name;

            fn of_slice(slice: Slice<'_>) -> Option<&[Self]> {
                match slice {
                    Slice::$variant(values) => Some(values),
                    _ => None,
                }
            }

            fn into_values(values: Vec<Self>) -> Values {
                Values::$variant(values)
            }
        })+
    };
}

elements! {
    Bool: bool = "bool",
    U8: u8 = "uint8",
    U16: u16 = "uint16",
    U32: u32 = "uint32",
    U64: u64 = "uint64",
    I32: i32 = "int32",
    I64: i64 = "int64",
    F64: f64 = "float64",
}

/// Columns of the caller by name.
pub trait Source<'a> {
    fn slice(&self, name: &str) -> Option<Slice<'a>>;
}

impl<'a, N: AsRef<str>> Source<'a> for [(N, Slice<'a>)] {
    fn slice(&self, name: &str) -> Option<Slice<'a>> {
        let found = self.iter().find(|(own, _)| own.as_ref() == name);
        found.map(|(_, slice)| *slice)
    }
}

/// A struct of slices of one length.
pub trait InputTable<'a>: Sized {
    /// Find the columns of the table among those of `source`, which may have others too.
    ///
    /// # Errors
    /// The first column that is missing, of another type, or of another length than the first.
    fn read<S: Source<'a> + ?Sized>(source: &S) -> Result<Self, ColumnError>;
}

/// A struct of vectors.
pub trait OutputTable: Sized {
    fn into_columns(self) -> Vec<(&'static str, Values)>;
}

/// The column `name` of `source`.
///
/// # Errors
/// It is missing, or of another type.
pub fn column<'a, T: Element + 'a, S: Source<'a> + ?Sized>(
    source: &S,
    name: &'static str,
) -> Result<&'a [T], ColumnError> {
    let slice = source.slice(name).ok_or(ColumnError::Missing(name))?;
    let expected = T::NAME;
    T::of_slice(slice).ok_or(ColumnError::Type { name, expected })
}

/// Texts end to end: that of row n is bytes `offsets[n]..offsets[n + 1]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Texts<'a> {
    pub offsets: &'a [i32],
    pub bytes: &'a [u8],
}

impl<'a> Texts<'a> {
    /// The two columns of these names.
    ///
    /// # Errors
    /// One is missing or of another type, or offsets do not lead into the bytes.
    pub fn read_as<S: Source<'a> + ?Sized>(
        source: &S,
        offsets: &'static str,
        bytes: &'static str,
    ) -> Result<Self, ColumnError> {
        let texts = Self {
            offsets: column(source, offsets)?,
            bytes: column(source, bytes)?,
        };
        texts
            .is_consistent()
            .then_some(texts)
            .ok_or(ColumnError::Offsets(offsets))
    }

    /// Number of texts.
    pub fn rows_count(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether offsets lead into the bytes.
    pub fn is_consistent(&self) -> bool {
        // Without an early exit, so that the compiler vectorises it.
        let in_order = |all: bool, pair: &[i32]| all & (0 <= pair[0]) & (pair[0] <= pair[1]);
        let ascending = self.offsets.windows(2).fold(true, in_order);
        let end = self.offsets.last().copied().unwrap_or(-1);
        ascending && usize::try_from(end).is_ok_and(|end| end <= self.bytes.len())
    }

    /// How long the text of a row is (bytes).
    pub fn text_len(&self, row: u32) -> i32 {
        self.offsets[row as usize + 1] - self.offsets[row as usize]
    }

    /// The text of a row.
    pub fn text(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }
}

impl<'a> InputTable<'a> for Texts<'a> {
    fn read<S: Source<'a> + ?Sized>(source: &S) -> Result<Self, ColumnError> {
        Self::read_as(source, "offsets", "bytes")
    }
}

/// The name of a column: the given one, or that of its field.
#[doc(hidden)]
#[macro_export]
macro_rules! column_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident, $name:literal) => {
        $name
    };
}

/// Declares an [`InputTable`].
#[macro_export]
macro_rules! input_table {
    ($(#[$meta:meta])* $vis:vis struct $Table:ident {
        $($(#[$doc:meta])* $field:ident $(($name:literal))?: $kind:ty),+ $(,)?
    } $(texts {
        $($(#[$text_doc:meta])* $text:ident),+ $(,)?
    })? $(beside {
        $($(#[$extra_doc:meta])* $extra:ident: $extra_kind:ty = $none:expr),+ $(,)?
    })?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $Table<'a> {
            $($(#[$doc])* pub $field: &'a [$kind],)+
            $($($(#[$text_doc])* pub $text: $crate::Texts<'a>,)+)?
            $($($(#[$extra_doc])* pub $extra: $extra_kind,)+)?
        }

        impl $Table<'_> {
            /// The first column whose length is not that of the table's first column.
            $vis fn unequal_column(&self) -> Option<&'static str> {
                let lens = [
                    $(($crate::column_name!($field $(, $name)?), self.$field.len()),)+
                    $($((stringify!($text), self.$text.rows_count()),)+)?
                ];
                lens.iter().find(|(_, len)| *len != lens[0].1).map(|(name, _)| *name)
            }

            /// Whether all columns have one length, and offsets lead into their bytes.
            #[allow(dead_code)]
            $vis fn is_consistent(&self) -> bool {
                self.unequal_column().is_none() $($(&& self.$text.is_consistent())+)?
            }
        }

        impl<'a> $crate::InputTable<'a> for $Table<'a> {
            fn read<S: $crate::Source<'a> + ?Sized>(source: &S) -> Result<Self, $crate::ColumnError> {
                let table = Self {
                    $($field: $crate::column(source, $crate::column_name!($field $(, $name)?))?,)+
                    $($($text: $crate::Texts::read_as(
                        source,
                        concat!(stringify!($text), "_offsets"),
                        concat!(stringify!($text), "_bytes"),
                    )?,)+)?
                    $($($extra: $none,)+)?
                };
                match table.unequal_column() {
                    Some(name) => Err($crate::ColumnError::Length(name)),
                    None => Ok(table),
                }
            }
        }
    };
}

/// Declares an [`OutputTable`]. Fields after `beside` are no columns: the caller of the core does not see them.
#[macro_export]
macro_rules! output_table {
    ($(#[$meta:meta])* $vis:vis struct $Table:ident {
        $($(#[$doc:meta])* $field:ident $(($name:literal))?: $kind:ty),+ $(,)?
    } $(beside {
        $($(#[$extra_doc:meta])* $extra:ident: $extra_kind:ty),+ $(,)?
    })?) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $Table {
            $($(#[$doc])* pub $field: Vec<$kind>,)+
            $($($(#[$extra_doc])* pub $extra: $extra_kind,)+)?
        }

        impl $crate::OutputTable for $Table {
            fn into_columns(self) -> Vec<(&'static str, $crate::Values)> {
                vec![$((
                    $crate::column_name!($field $(, $name)?),
                    <$kind as $crate::Element>::into_values(self.$field),
                )),+]
            }
        }
    };
}

/// A field of a row as a value of a column.
pub trait Cell: Copy {
    type Element: Element;
    fn cell(self) -> Self::Element;
}

macro_rules! plain_cells {
    ($($kind:ty),+) => {
        $(impl Cell for $kind {
            type Element = Self;
            fn cell(self) -> Self {
                self
            }
        })+
    };
}

plain_cells!(bool, u16, u32, i64);

/// -1 in place of a figure that is not known.
impl Cell for Option<i64> {
    type Element = i64;
    fn cell(self) -> i64 {
        self.unwrap_or(-1)
    }
}

/// A struct of one row.
pub trait RowTable: Sized {
    fn columns_of(rows: &[Self]) -> Vec<(&'static str, Values)>;
}

/// Declares a [`RowTable`]: a table that is built row by row, and passed to the caller as columns.
#[macro_export]
macro_rules! row_table {
    ($(#[$meta:meta])* $vis:vis struct $Row:ident {
        $($(#[$doc:meta])* $field:ident: $kind:ty),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $Row { $($(#[$doc])* pub $field: $kind),+ }

        impl $crate::RowTable for $Row {
            fn columns_of(rows: &[Self]) -> Vec<(&'static str, $crate::Values)> {
                vec![$((
                    stringify!($field),
                    $crate::Element::into_values(rows.iter().map(|row| $crate::Cell::cell(row.$field)).collect()),
                )),+]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    input_table! {
        struct Points { host("host_id"): u16, at_ns: i64 }
    }

    output_table! {
        struct Delays { delay_ns("delay"): i64, is_late: bool }
    }

    fn read(given: &[(&'static str, Slice<'static>)]) -> Result<(usize, usize), ColumnError> {
        Points::read(given).map(|points| (points.host.len(), points.at_ns.len()))
    }

    #[test]
    fn a_table_is_read_by_the_names_and_types_of_its_columns() {
        let host = ("host_id", Slice::U16(&[1, 2]));
        let at = ("at_ns", Slice::I64(&[3, 4]));
        assert_eq!(read(&[at, host, ("other", Slice::Bool(&[]))]), Ok((2, 2)));
        assert_eq!(read(&[host]), Err(ColumnError::Missing("at_ns")));
        let wide = ColumnError::Type {
            name: "host_id",
            expected: "uint16",
        };
        assert_eq!(read(&[("host_id", Slice::U32(&[1, 2])), at]), Err(wide));
        assert_eq!(
            read(&[host, ("at_ns", Slice::I64(&[3]))]),
            Err(ColumnError::Length("at_ns"))
        );
    }

    #[test]
    fn a_result_has_the_names_of_its_columns() {
        let columns = Delays {
            delay_ns: vec![5],
            is_late: vec![true],
        }
        .into_columns();
        assert_eq!(
            columns,
            [("delay", Values::I64(vec![5])), ("is_late", Values::Bool(vec![true]))]
        );
    }

    row_table! {
        struct Wait { from_ns: i64, to_ns: Option<i64> }
    }

    #[test]
    fn rows_become_columns_with_minus_one_for_what_is_not_known() {
        let rows = [(3, Some(4)), (5, None)].map(|(from_ns, to_ns)| Wait { from_ns, to_ns });
        let columns = Wait::columns_of(&rows);
        assert_eq!(
            columns,
            [
                ("from_ns", Values::I64(vec![3, 5])),
                ("to_ns", Values::I64(vec![4, -1]))
            ]
        );
    }
}
