//! Passes over all requests for the diagnosis: groups of requests, how long servers waited for others, which were late.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_spans::{Asked, Limits, Texts, Timed, count_bins, count_late, distinct, groups, sums, took};

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(took_py, module)?)?;
    module.add_function(wrap_pyfunction!(row_groups, module)?)?;
    module.add_function(wrap_pyfunction!(sum_groups, module)?)?;
    module.add_function(wrap_pyfunction!(distinct_texts, module)?)?;
    module.add_function(wrap_pyfunction!(count_bins_py, module)?)?;
    module.add_function(wrap_pyfunction!(count_late_py, module)?)
}

/// What servers did until they answered; see `collector/_core.pyi`.
#[pyfunction(name = "took")]
fn took_py<'py>(py: Python<'py>, requests: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let long = |name: &str| column::<i64>(requests, name);
    let (parent, began, ended) = (long("parent")?, long("began_ns")?, long("ended_ns")?);
    let (heard, answered) = (long("heard_ns")?, long("answered_ns")?);
    let asked = Asked {
        parent: parent.as_slice()?,
        began_ns: began.as_slice()?,
        ended_ns: ended.as_slice()?,
        heard_ns: heard.as_slice()?,
        answered_ns: answered.as_slice()?,
    };
    if !asked.is_consistent() {
        return Err(differ());
    }
    let found = py.detach(|| took(&asked));
    let columns = PyDict::new(py);
    columns.set_item("asking_ns", found.asking_ns.into_pyarray(py))?;
    columns.set_item("own_ns", found.own_ns.into_pyarray(py))?;
    Ok(columns)
}

/// The group of each row, and the first row of each group.
type RowGroups<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<i64>>);

/// Rows numbered by their codes; see `collector/_core.pyi`.
#[pyfunction]
fn row_groups<'py>(py: Python<'py>, codes: Vec<PyReadonlyArray1<'py, i32>>) -> PyResult<RowGroups<'py>> {
    let columns: Vec<&[i32]> = codes.iter().map(|column| column.as_slice()).collect::<Result<_, _>>()?;
    if columns.iter().any(|column| column.len() != columns[0].len()) {
        return Err(differ());
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

/// Columns added up over rows that are alike; see `collector/_core.pyi`.
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
        return Err(differ());
    }
    let found = py.detach(|| sums(keys, &columns));
    let sums = found.columns.into_iter().map(|column| column.into_pyarray(py));
    Ok((found.first.into_pyarray(py), sums.collect()))
}

/// Texts of some rows, numbered; see `collector/_core.pyi`.
#[pyfunction]
fn distinct_texts<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyDict>,
    rows: PyReadonlyArray1<'py, i64>,
) -> PyResult<RowGroups<'py>> {
    let (offsets, bytes) = (column::<i32>(texts, "offsets")?, column::<u8>(texts, "bytes")?);
    let texts = Texts {
        offsets: offsets.as_slice()?,
        bytes: bytes.as_slice()?,
    };
    let rows = rows.as_slice()?;
    let count = i64::try_from(texts.offsets.len())? - 1;
    if !texts.is_consistent() || rows.iter().any(|&row| row >= count) {
        return Err(differ());
    }
    let found = py.detach(|| distinct(&texts, rows));
    Ok((found.of.into_pyarray(py), found.first.into_pyarray(py)))
}

/// What requests took, counted by group; see `collector/_core.pyi`.
#[pyfunction(name = "count_bins")]
fn count_bins_py<'py>(
    py: Python<'py>,
    group: PyReadonlyArray1<'py, i32>,
    own_ns: PyReadonlyArray1<'py, i64>,
    bins_per_octave: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let (group, own_ns) = (group.as_slice()?, own_ns.as_slice()?);
    if group.len() != own_ns.len() {
        return Err(differ());
    }
    let bins = py.detach(|| count_bins(group, own_ns, bins_per_octave));
    let columns = PyDict::new(py);
    columns.set_item("group", bins.group.into_pyarray(py))?;
    columns.set_item("bin", bins.bin.into_pyarray(py))?;
    columns.set_item("count", bins.count.into_pyarray(py))?;
    Ok(columns)
}

/// Late requests, counted by pool; see `collector/_core.pyi`.
#[pyfunction(name = "count_late")]
fn count_late_py<'py>(
    py: Python<'py>,
    timed: &Bound<'py, PyDict>,
    limit_ns: PyReadonlyArray1<'py, f64>,
    pool: PyReadonlyArray1<'py, i32>,
    moment_ns: i64,
) -> PyResult<Bound<'py, PyDict>> {
    let group = column::<i32>(timed, "group")?;
    let long = |name: &str| column::<i64>(timed, name);
    let (own, critical) = (long("own_ns")?, long("critical_ns")?);
    let (asked, answered) = (long("asked_ns")?, long("answered_ns")?);
    let timed = Timed {
        group: group.as_slice()?,
        own_ns: own.as_slice()?,
        critical_ns: critical.as_slice()?,
        asked_ns: asked.as_slice()?,
        answered_ns: answered.as_slice()?,
    };
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
    if !timed.is_consistent() || !known || moment_ns <= 0 {
        return Err(differ());
    }
    let late = py.detach(|| count_late(&timed, &limits, moment_ns));
    let columns = PyDict::new(py);
    columns.set_item("late_count", late.late_count.into_pyarray(py))?;
    columns.set_item("moments", late.moments.into_pyarray(py))?;
    columns.set_item("late_moments", late.late_moments.into_pyarray(py))?;
    columns.set_item("took", late.took_ns.into_pyarray(py))?;
    columns.set_item("usual", late.usual_ns.into_pyarray(py))?;
    columns.set_item("cost_ns", late.cost_ns.into_pyarray(py))?;
    columns.set_item("from_trace_ns", late.from_ns.into_pyarray(py))?;
    columns.set_item("to_trace_ns", late.to_ns.into_pyarray(py))?;
    columns.set_item("slowest", late.slowest.into_pyarray(py))?;
    Ok(columns)
}

fn differ() -> PyErr {
    PyValueError::new_err("columns differ in length, or codes lead nowhere")
}
