//! What is written is read back by the crate `parquet`'s own decoders, whatever the values.

use bytes::Bytes;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::collection::vec;
use proptest::prelude::*;
use twintap_tables::file::MAGIC;
use twintap_tables::{Column, ColumnKind, ColumnSchema, Footer, Schema, Texts, Values};

/// A file of one column, each of `parts` a row group; `validity` is of every part.
fn file(kind: ColumnKind, parts: &[Values<'_>], validity: &[u8], rows: usize) -> Bytes {
    let column = ColumnSchema {
        name: "value".to_owned(),
        kind,
        may_be_null: !validity.is_empty(),
        has_statistics: true,
    };
    let schema = Schema::new(vec![column]).expect("one column");
    let (mut footer, mut bytes) = (Footer::new(schema.clone()), MAGIC.to_vec());
    for &values in parts {
        let (data, group) = schema.encode(&[Column { values, validity }], rows).expect("rows");
        footer.add(&group).expect("rows of the schema");
        bytes.extend(data);
    }
    bytes.extend(footer.bytes(&[]).expect("a footer"));
    bytes.into()
}

/// Values that are not null, and of every row whether it is not.
fn read<T: DataType>(file: Bytes) -> (Vec<T::T>, Vec<bool>) {
    let reader = SerializedFileReader::new(file).expect("a file");
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).expect("a group");
        let rows = group.metadata().num_rows() as usize;
        let mut column = get_typed_column_reader::<T>(group.get_column_reader(0).expect("a column"));
        let read = column
            .read_records(rows, Some(&mut levels), None, &mut values)
            .expect("values");
        assert_eq!(read.0, rows);
    }
    (values, levels.iter().map(|&level| level == 1).collect())
}

/// Numbers as columns have them: anything, few, near each other, the same for long.
fn numbers(least: i64, most: i64) -> impl Strategy<Value = Vec<i64>> {
    let near = (least / 2..most / 2, vec(-40_i64..1_000, 1..700));
    prop_oneof![
        vec(least..=most, 1..300),
        vec(prop_oneof![Just(least), Just(most), Just(0)], 1..300),
        near.prop_map(|(first, steps)| steps.iter().map(|step| first + step).collect()),
        vec((least..=most, 1..200_usize), 1..10)
            .prop_map(|runs| runs.iter().flat_map(|&(value, times)| vec![value; times]).collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]
    #[test]
    fn numbers_of_64_bits(values in numbers(i64::MIN, i64::MAX)) {
        let file = file(ColumnKind::Int64, &[Values::I64(&values), Values::I64(&values)], &[], values.len());
        prop_assert_eq!(read::<Int64Type>(file).0, [values.clone(), values].concat());
    }

    #[test]
    fn numbers_of_32_bits(values in numbers(0, u32::MAX.into())) {
        let narrow: Vec<u32> = values.iter().map(|&value| value as u32).collect();
        let file = file(ColumnKind::UInt32, &[Values::U32(&narrow)], &[], narrow.len());
        let stored: Vec<i32> = values.iter().map(|&value| value as u32 as i32).collect();
        prop_assert_eq!(read::<Int32Type>(file).0, stored);
    }

    #[test]
    fn numbers_of_16_bits(values in numbers(0, u16::MAX.into())) {
        let narrow: Vec<u16> = values.iter().map(|&value| value as u16).collect();
        let file = file(ColumnKind::UInt16, &[Values::U16(&narrow)], &[], narrow.len());
        let stored: Vec<i32> = narrow.iter().map(|&value| value.into()).collect();
        prop_assert_eq!(read::<Int32Type>(file).0, stored);
    }

    #[test]
    fn numbers_between_nulls(values in numbers(i64::MIN, i64::MAX), bits in vec(any::<u8>(), 175)) {
        let is_known = |at: usize| bits[at / 8] >> (at % 8) & 1 == 1;
        let rows = values.len().min(8 * bits.len());
        let validity = &bits[..rows.div_ceil(8)];
        let file = file(ColumnKind::Int64, &[Values::I64(&values[..rows])], validity, rows);
        let known = (0..rows).filter(|&at| is_known(at)).map(|at| values[at]);
        prop_assert_eq!(read::<Int64Type>(file), (known.collect(), (0..rows).map(is_known).collect()));
    }
}

#[test]
fn whole_packed_groups_of_every_width() {
    for width in 1..=64 {
        let values: Vec<i64> = (0..300)
            .map(|at| ((at % 2) << (width - 1)) | (at % 3 % width))
            .collect();
        let file = file(ColumnKind::Int64, &[Values::I64(&values)], &[], values.len());
        assert_eq!(read::<Int64Type>(file).0, values, "{width} bits");
    }
}

#[test]
fn of_a_long_dictionary_only_the_texts_that_occur_are_stored() {
    let all: Vec<String> = (0..1_000).map(|number| format!("address {number:03}")).collect();
    let offsets: Vec<i32> = (0..=all.len() as i32).map(|place| 11 * place).collect();
    let bytes = all.concat().into_bytes();
    let texts = Texts {
        offsets: &offsets,
        bytes: &bytes,
    };
    let stored = |places: &[u32]| {
        let file = file(
            ColumnKind::Text,
            &[Values::Texts(places, texts)],
            &[0b1111_1101],
            places.len(),
        );
        let expected: Vec<&str> = places
            .iter()
            .enumerate()
            .filter_map(|(at, &place)| (at != 1).then_some(all[place as usize].as_str()))
            .collect();
        let (values, _) = read::<ByteArrayType>(file.clone());
        assert_eq!(
            values
                .iter()
                .map(|text| text.as_utf8().expect("a text"))
                .collect::<Vec<_>>(),
            expected
        );
        file.len()
    };
    assert!(stored(&[999, 500, 3, 3, 640, 999, 0, 3]) < 1_000);
    assert!(stored(&[0, 1, 2, 3, 4, 5, 6, 7]) < 1_000);
}
