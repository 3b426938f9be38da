//! Values of a few bits each, packed without gaps, and runs of equal values.
//!
//! Source: Parquet's `Encodings.md`, "Run Length Encoding / Bit-Packing Hybrid".

/// Values that are compared together: they are stored as a run if all are equal.
const BLOCK_VALUES: usize = 64;
/// Values are packed in groups of this many.
const GROUP_VALUES: usize = 8;

/// Number of bits of `most`.
pub fn width_of(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

/// Append a number in groups of 7 bits, the lowest first.
pub fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7F | 0x80) as u8);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Append `values`, given by their `bits`, in `width` bits each (at most 64), the lowest bit first. The last group is
/// padded.
///
/// A group takes as many bytes as a value has bits, so up to 16 bits it is put together in a register.
pub fn pack<T: Copy>(values: &[T], bits: impl Fn(T) -> u64, width: u32, out: &mut Vec<u8>) {
    let (groups, last) = values.as_chunks::<GROUP_VALUES>();
    let groups = groups.iter().map(|group| group.map(&bits));
    let mut filled = [0; GROUP_VALUES];
    for (place, value) in filled.iter_mut().zip(last) {
        *place = bits(*value);
    }
    let groups = groups.chain((!last.is_empty()).then_some(filled));
    match width {
        0 => {}
        1..=8 => groups.for_each(|group| put_low_bytes(join_bits(group, width).into(), width, out)),
        9..=16 => groups.for_each(|[a, b, c, d, e, f, g, h]| {
            let halves = [[a, b, c, d], [e, f, g, h]].map(|half| u128::from(join_bits(half, width)));
            put_low_bytes(halves[0] | halves[1] << (4 * width), width, out);
        }),
        _ => put_wide(values, bits, width, out),
    }
}

fn join_bits<const N: usize>(values: [u64; N], width: u32) -> u64 {
    values
        .into_iter()
        .rev()
        .fold(0, |word, value| word.wrapping_shl(width) | value)
}

/// Append the `count` low bytes of `word`: all 16 are copied and then truncated, since a copy of constant length is
/// fast.
fn put_low_bytes(word: u128, count: u32, out: &mut Vec<u8>) {
    let end = out.len() + count as usize;
    out.extend_from_slice(&word.to_le_bytes());
    out.truncate(end);
}

fn put_wide<T: Copy>(values: &[T], bits: impl Fn(T) -> u64, width: u32, out: &mut Vec<u8>) {
    let end = out.len() + values.len().div_ceil(GROUP_VALUES) * width as usize;
    let (mut word, mut filled) = (0_u64, 0_u32);
    for &value in values {
        let value = bits(value);
        word |= value.wrapping_shl(filled);
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= u64::BITS;
            word = value.checked_shr(width - filled).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes());
    out.resize(end, 0);
}

/// Append `codes` of `width` bits each: long runs of equal ones as runs, the others packed.
pub fn put_runs<T: Copy + Eq + Into<u32>>(codes: &[T], width: u32, out: &mut Vec<u8>) {
    let mut rest = codes;
    while let Some(&first) = rest.first() {
        let same = rest.iter().take_while(|&&code| code == first).count();
        if same >= BLOCK_VALUES || same == rest.len() {
            put_varint((same as u64) << 1, out);
            out.extend_from_slice(&first.into().to_le_bytes()[..width.div_ceil(8) as usize]);
            rest = &rest[same..];
            continue;
        }
        let mut mixed = BLOCK_VALUES.min(rest.len());
        while mixed < rest.len() && !is_run(&rest[mixed..]) {
            mixed = rest.len().min(mixed + BLOCK_VALUES);
        }
        put_varint((mixed.div_ceil(GROUP_VALUES) as u64) << 1 | 1, out);
        pack(&rest[..mixed], |code| code.into().into(), width, out);
        rest = &rest[mixed..];
    }
}

/// Whether the first block is long and of one code.
fn is_run<T: Copy + Eq>(codes: &[T]) -> bool {
    codes
        .first_chunk::<BLOCK_VALUES>()
        .is_some_and(|block| block.iter().all(|&code| code == block[0]))
}
