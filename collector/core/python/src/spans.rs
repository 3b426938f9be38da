//! Links by transaction id, waits and ledgers: columns of exchanges in, columns of spans out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_spans::{
    Exchanges, Nodes, Piece, Shape, Silences, Texts, Waiting, coalesce, forest, link, path_numbers, places, share_out,
    text_numbers, waits, words,
};

use crate::columns::{Columns, inconsistent, to_dict};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(link_by_id, module)?)?;
    module.add_function(wrap_pyfunction!(trace_forest, module)?)?;
    module.add_function(wrap_pyfunction!(coalesce_py, module)?)?;
    module.add_function(wrap_pyfunction!(text_numbers_py, module)?)?;
    module.add_function(wrap_pyfunction!(path_numbers_py, module)?)?;
    module.add_function(wrap_pyfunction!(waits_py, module)?)?;
    module.add_function(wrap_pyfunction!(make_ledger, module)?)?;
    module.add_function(wrap_pyfunction!(places_py, module)?)?;
    module.add_function(wrap_pyfunction!(target_words, module)?)
}

/// Link exchanges by the ids that they show.
#[pyfunction]
fn link_by_id<'py>(
    py: Python<'py>,
    exchanges: &Bound<'py, PyDict>,
    most_with_one_id: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(exchanges)?;
    let exchanges: Exchanges = columns.table()?;
    to_dict(py, py.detach(|| link(&exchanges, most_with_one_id)))
}

/// Root and depth of every row.
#[pyfunction]
fn trace_forest<'py>(py: Python<'py>, parent: PyReadonlyArray1<'py, i64>) -> PyResult<Bound<'py, PyDict>> {
    let parent = parent.as_slice()?;
    let count = i64::try_from(parent.len())?;
    if parent.iter().any(|&of| of >= count) {
        return Err(PyValueError::new_err("a parent is beyond the last row"));
    }
    to_dict(py, py.detach(|| forest(parent)))
}

/// Values of consecutive rows, which of them are known (a bit each, or nothing), and where these bits begin.
type PieceColumns<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u8>, usize);

fn piece<'a>((values, validity, first_bit): &'a PieceColumns) -> PyResult<Piece<'a>> {
    Ok(Piece {
        values: values.as_slice()?,
        validity: validity.as_slice()?,
        first_bit: *first_bit,
    })
}

/// For each row the value of the first column in which it is known.
#[pyfunction(name = "coalesce")]
fn coalesce_py<'py>(
    py: Python<'py>,
    columns: Vec<Vec<PieceColumns<'py>>>,
    missing: i64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let pieces: Vec<Vec<Piece>> = columns
        .iter()
        .map(|column| column.iter().map(piece).collect())
        .collect::<PyResult<_>>()?;
    let cut = |column: &Vec<Piece>| column.iter().map(|piece| piece.values.len()).collect::<Vec<_>>();
    let alike = pieces.windows(2).all(|pair| cut(&pair[0]) == cut(&pair[1]));
    if !alike || !pieces.iter().flatten().all(Piece::is_consistent) {
        return Err(inconsistent());
    }
    Ok(py.detach(|| coalesce(&pieces, missing)).into_pyarray(py))
}

/// A hash of each text.
#[pyfunction(name = "text_numbers")]
fn text_numbers_py<'py>(py: Python<'py>, texts: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let columns = Columns::of(texts)?;
    let texts: Texts = columns.table()?;
    Ok(py.detach(|| text_numbers(&texts)).into_pyarray(py))
}

/// A hash of each target without its query.
#[pyfunction(name = "path_numbers")]
fn path_numbers_py<'py>(py: Python<'py>, texts: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let columns = Columns::of(texts)?;
    let texts: Texts = columns.table()?;
    Ok(py.detach(|| path_numbers(&texts)).into_pyarray(py))
}

/// When servers began to work on requests, and when the first of parallel calls was answered.
#[pyfunction(name = "waits")]
fn waits_py<'py>(
    py: Python<'py>,
    exchanges: &Bound<'py, PyDict>,
    unhurried: f64,
    fewest: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(exchanges)?;
    let exchanges: Waiting = columns.table()?;
    to_dict(py, py.detach(|| waits(&exchanges, unhurried, fewest)))
}

/// The ledger of every span.
#[pyfunction]
fn make_ledger<'py>(
    py: Python<'py>,
    nodes: &Bound<'py, PyDict>,
    silences: &Bound<'py, PyDict>,
    with_windows: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (nodes, silences) = (Columns::of(nodes)?, Columns::of(silences)?);
    let nodes: Nodes = nodes.table()?;
    let silences = Silences {
        long: silences.table()?,
        short: silences.table()?,
    };
    if !silences.is_consistent(nodes.parent.len()) {
        return Err(inconsistent());
    }
    to_dict(py, py.detach(|| share_out(&nodes, &silences, with_windows)))
}

/// Texts end to end: the offset of each, and their bytes.
type TextColumns<'py> = (PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, u8>);

/// One word of each target, by its kind's shape.
#[pyfunction]
fn target_words<'py>(
    py: Python<'py>,
    targets: Vec<TextColumns<'py>>,
    services: PyReadonlyArray1<'py, i32>,
    shapes: Vec<(i32, String, usize)>,
) -> PyResult<(Bound<'py, PyArray1<i32>>, Vec<String>)> {
    let parts: Vec<Texts> = targets
        .iter()
        .map(|(offsets, bytes)| {
            Ok(Texts {
                offsets: offsets.as_slice()?,
                bytes: bytes.as_slice()?,
            })
        })
        .collect::<PyResult<_>>()?;
    let services = services.as_slice()?;
    let count = |texts: &Texts| texts.offsets.len().saturating_sub(1);
    if !parts.iter().all(Texts::is_consistent) || parts.iter().map(count).sum::<usize>() != services.len() {
        return Err(inconsistent());
    }
    let shapes: Vec<Shape> = shapes
        .iter()
        .map(|(kind, prefix, place)| Shape {
            kind: *kind,
            prefix: prefix.as_bytes(),
            place: *place,
        })
        .collect();
    let found = py.detach(|| words(&parts, services, &shapes));
    Ok((found.codes.into_pyarray(py), found.names))
}

/// The row of each id.
#[pyfunction(name = "places")]
fn places_py<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, i64>,
    wanted: Vec<PyReadonlyArray1<'py, i64>>,
    stride_bits: u32,
) -> PyResult<Vec<Bound<'py, PyArray1<i64>>>> {
    let ids = ids.as_slice()?;
    let wanted: Vec<&[i64]> = wanted
        .iter()
        .map(|column| column.as_slice())
        .collect::<Result<_, _>>()?;
    if u32::try_from(ids.len()).is_err() || stride_bits >= 63 {
        return Err(PyValueError::new_err(
            "too many ids, or a stride beyond a number of 64 bits",
        ));
    }
    let found = py.detach(|| places(ids, &wanted, stride_bits));
    Ok(found.into_iter().map(|column| column.into_pyarray(py)).collect())
}
