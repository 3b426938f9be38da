//! The order of many short texts.

/// The rows of texts by their bytes, the least first; row n is `bytes[offsets[n]..offsets[n + 1]]`. Equal texts are in
/// any order.
///
/// Cost: one sort by the first 16 bytes as a number, of which most comparisons need no more.
pub fn order(offsets: &[i32], bytes: &[u8]) -> Vec<u32> {
    let text = |row: u32| &bytes[offsets[row as usize] as usize..offsets[row as usize + 1] as usize];
    let rows = 0..offsets.len().saturating_sub(1) as u32;
    let mut keyed: Vec<(u128, u32)> = rows.map(|row| (first_bytes(text(row)), row)).collect();
    keyed.sort_unstable_by(|(key, row), (other_key, other)| {
        key.cmp(other_key).then_with(|| text(*row).cmp(text(*other)))
    });
    keyed.into_iter().map(|(_, row)| row).collect()
}

/// The first bytes of a text, filled up with zeros: in the order of the texts, except that some are equal.
fn first_bytes(text: &[u8]) -> u128 {
    let mut first = [0; size_of::<u128>()];
    let len = text.len().min(first.len());
    first[..len].copy_from_slice(&text[..len]);
    u128::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_to_their_ends() {
        let texts = [
            "fe80::1234:5678:9abc:2",
            "10.0.0.10",
            "10.0.0.1",
            "",
            "fe80::1234:5678:9abc",
            "::1",
            "10.0.0.1\0",
            "fe80::1234:5678:9abc:1",
        ];
        let ends = texts.iter().scan(0, |end, text| {
            *end += text.len() as i32;
            Some(*end)
        });
        let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
        let mut expected = texts;
        expected.sort_unstable();
        let found = order(&offsets, texts.concat().as_bytes());
        assert_eq!(
            found.iter().map(|&row| texts[row as usize]).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(order(&[0], b""), [0; 0]);
        assert_eq!(order(&[], b""), [0; 0]);
    }
}
