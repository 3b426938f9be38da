//! `build_exchanges`: columns of hops, heads and connections in, columns of exchanges out; `rows_behind`: head-of-line
//! blocking.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_exchanges::{Connections, Crossings, Heads, Hops, Pauses, ServerTimes, build};

use crate::columns::{Columns, inconsistent};
use crate::exchange_table::{Ends, Table, hop_exchange, put_silences, put_streams};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_exchanges_py, module)?)?;
    module.add_function(wrap_pyfunction!(rows_behind, module)?)
}

/// Divide connections into exchanges; the columns are declared in `collector/_core.pyi`.
#[pyfunction(name = "build_exchanges")]
fn build_exchanges_py<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    heads: &Bound<'py, PyDict>,
    connections: &Bound<'py, PyDict>,
    pauses: &Bound<'py, PyDict>,
    crossings: &Bound<'py, PyDict>,
    first_id: i64,
) -> PyResult<Bound<'py, PyDict>> {
    let (hops, heads) = (Columns::of(hops)?, Columns::of(heads)?);
    let (connections, pauses) = (Columns::of(connections)?, Columns::of(pauses)?);
    let (hops, heads): (Hops, Heads) = (hops.table()?, heads.table()?);
    let ends: Ends = connections.table()?;
    let connections: Connections = connections.table()?;
    let pauses: Pauses = pauses.table()?;
    let crossings = Columns::of(crossings)?;
    let crossings: Crossings = crossings.table()?;
    let (built, table, hop_exchange) = py.detach(|| {
        let built = build(&hops, &heads, &connections, &pauses, &crossings);
        let table = Table::of(&built, &heads, &connections, &ends);
        let hop_exchange = hop_exchange(&built, first_id);
        (built, table, hop_exchange)
    });
    let columns = PyDict::new(py);
    table.put(&columns)?;
    put_silences(&built, first_id, &columns)?;
    put_streams(&built, &connections, &columns)?;
    hop_exchange.put(&columns, "hop_exchange")?;
    Ok(columns)
}

/// Rows of requests that waited, and of the exchanges that they waited for.
type RowsBehind<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// Requests that waited for the answer to the previous one on their connection.
#[pyfunction]
fn rows_behind<'py>(
    py: Python<'py>,
    connection_id: PyReadonlyArray1<'py, i64>,
    came_ns: PyReadonlyArray1<'py, i64>,
    free_ns: PyReadonlyArray1<'py, i64>,
    least_ns: i64,
) -> PyResult<RowsBehind<'py>> {
    let exchanges = ServerTimes {
        connection_id: connection_id.as_slice()?,
        came_ns: came_ns.as_slice()?,
        free_ns: free_ns.as_slice()?,
    };
    if !exchanges.is_consistent() {
        return Err(inconsistent());
    }
    let (waiting, answered) = py.detach(|| twintap_exchanges::rows_behind(&exchanges, least_ns));
    Ok((waiting.into_pyarray(py), answered.into_pyarray(py)))
}
