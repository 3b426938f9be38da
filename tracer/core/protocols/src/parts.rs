//! Parts of a payload, of which the rest is overwritten.

use std::ops::Range;

/// Overwrite with zeros all bytes outside `parts`, which ascend.
pub fn blank_beside(captured: &mut [u8], parts: Vec<Range<usize>>) {
    let mut from = 0;
    for part in parts {
        captured[from..part.start].fill(0);
        from = part.end;
    }
    captured[from..].fill(0);
}
