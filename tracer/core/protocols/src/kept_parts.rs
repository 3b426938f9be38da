//! Parts of a payload that an agent keeps, of which some are masked as keys are ([`crate::key_shape`]).

use std::ops::Range;

use crate::key_shape::mask;
use crate::parts::blank_beside;

/// A part that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    AsIs(Range<usize>),
    Key(Range<usize>),
}

impl Part {
    pub fn range(&self) -> &Range<usize> {
        match self {
            Self::AsIs(range) | Self::Key(range) => range,
        }
    }
}

/// Bytes up to the end of the last part; 0 if there is none.
pub(crate) fn end_of(parts: &[Part]) -> usize {
    parts.last().map_or(0, |part| part.range().end)
}

/// Mask the keys of a payload, and overwrite with zeros all bytes outside its parts, which ascend.
pub(crate) fn blank(captured: &mut [u8], parts: &[Part]) {
    for part in parts {
        if let Part::Key(range) = part {
            mask(&mut captured[range.clone()]);
        }
    }
    blank_beside(captured, parts.iter().map(|part| part.range().clone()).collect());
}
