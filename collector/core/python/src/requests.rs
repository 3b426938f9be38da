//! Passes over all requests for the diagnosis: groups of requests, how long servers waited for others, which were late.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_spans::{
    CallTimes, Limits, RequestTimes, Texts, count_bins, count_late, distinct, groups, server_time, sums,
};

use crate::columns::{Columns, inconsistent, to_dict};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(server_time_py, module)?)?;
    module.add_function(wrap_pyfunction!(row_groups, module)?)?;
    module.add_function(wrap_pyfunction!(sum_groups, module)?)?;
    module.add_function(wrap_pyfunction!(distinct_texts, module)?)?;
    module.add_function(wrap_pyfunction!(count_bins_py, module)?)?;
    module.add_function(wrap_pyfunction!(count_late_py, module)?)
}

/// Own time and calls' time of each server until it answered.
#[pyfunction(name = "server_time")]
fn server_time_py<'py>(py: Python<'py>, requests: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(requests)?;
    let asked: CallTimes = columns.table()?;
    to_dict(py, py.detach(|| server_time(&asked)))
}

/// The group of each row, and the first row of each group.
type RowGroups<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<i64>>);

/// Groups of rows with equal codes.
#[pyfunction]
fn row_groups<'py>(py: Python<'py>, codes: Vec<PyReadonlyArray1<'py, i32>>) -> PyResult<RowGroups<'py>> {
    let columns: Vec<&[i32]> = codes.iter().map(|column| column.as_slice()).collect::<Result<_, _>>()?;
    if columns.iter().any(|column| column.len() != columns[0].len()) {
        return Err(inconsistent());
    }
    if columns.iter().any(|column| column.iter().any(|&code| code < -1)) {
        return Err(PyValueError::new_err("a code is less than -1"));
    }
    let found = py.detach(|| groups(&columns));
    let found = found.ok_or_else(|| PyValueError::new_err("more combinations than a number of 64 bits"))?;
    Ok((found.of.into_pyarray(py), found.first.into_pyarray(py)))
}

/// The first row of each group, and sums of columns over it.
type GroupSums<'py> = (Bound<'py, PyArray1<i64>>, Vec<Bound<'py, PyArray1<i64>>>);

/// Sums of columns over rows with equal keys.
#[pyfunction]
fn sum_groups<'py>(
    py: Python<'py>,
    keys: [PyReadonlyArray1<'py, i64>; 3],
    columns: Vec<PyReadonlyArray1<'py, i64>>,
) -> PyResult<GroupSums<'py>> {
    let keys = [keys[0].as_slice()?, keys[1].as_slice()?, keys[2].as_slice()?];
    let columns: Vec<&[i64]> = columns
        .iter()
        .map(|column| column.as_slice())
        .collect::<Result<_, _>>()?;
    if keys.iter().chain(&columns).any(|column| column.len() != keys[0].len()) {
        return Err(inconsistent());
    }
    let found = py.detach(|| sums(keys, &columns));
    let sums = found.columns.into_iter().map(|column| column.into_pyarray(py));
    Ok((found.first.into_pyarray(py), sums.collect()))
}

/// Numbers of the distinct texts of some rows.
#[pyfunction]
fn distinct_texts<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyDict>,
    rows: PyReadonlyArray1<'py, i64>,
) -> PyResult<RowGroups<'py>> {
    let columns = Columns::of(texts)?;
    let texts: Texts = columns.table()?;
    let rows = rows.as_slice()?;
    let count = i64::try_from(texts.rows_count())?;
    if rows.iter().any(|&row| row >= count) {
        return Err(inconsistent());
    }
    let found = py.detach(|| distinct(&texts, rows));
    Ok((found.of.into_pyarray(py), found.first.into_pyarray(py)))
}

/// Histograms of servers' own times by group.
#[pyfunction(name = "count_bins")]
fn count_bins_py<'py>(
    py: Python<'py>,
    group: PyReadonlyArray1<'py, i32>,
    own_ns: PyReadonlyArray1<'py, i64>,
    bins_per_octave: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let (group, own_ns) = (group.as_slice()?, own_ns.as_slice()?);
    if group.len() != own_ns.len() {
        return Err(inconsistent());
    }
    to_dict(py, py.detach(|| count_bins(group, own_ns, bins_per_octave)))
}

/// Late requests counted by pool.
#[pyfunction(name = "count_late")]
fn count_late_py<'py>(
    py: Python<'py>,
    timed: &Bound<'py, PyDict>,
    limit_ns: PyReadonlyArray1<'py, f64>,
    pool: PyReadonlyArray1<'py, i32>,
    moment_ns: i64,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(timed)?;
    let timed: RequestTimes = columns.table()?;
    let pools = pool.as_slice()?;
    let most = |codes: &[i32]| {
        codes
            .iter()
            .max()
            .map_or(0, |&most| usize::try_from(most + 1).unwrap_or(0))
    };
    let limits = Limits {
        limit_ns: limit_ns.as_slice()?,
        pool: pools,
        pools_count: most(pools),
    };
    let known = most(timed.group) <= pools.len() && limits.limit_ns.len() == pools.len();
    if !known || moment_ns <= 0 {
        return Err(inconsistent());
    }
    to_dict(py, py.detach(|| count_late(&timed, &limits, moment_ns)))
}
