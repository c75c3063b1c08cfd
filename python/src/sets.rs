//! Sets of ids between Python and the crates: queries, their answers, and encoded sets. The nodes compute the queries.

use fondaco_client::{SetAnswer, SetQuery};
use fondaco_ids::IdSet;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::fault::Fault;

/// The query over sets that Python names, with its argument.
pub fn set_query(query: &str, argument: Vec<u64>) -> Result<SetQuery, Fault> {
    Ok(match query {
        "union" => SetQuery::Union,
        "intersection" => SetQuery::Intersection,
        "difference" => SetQuery::Difference,
        "intersects" => SetQuery::Intersects,
        "counts" => SetQuery::Counts,
        "top" => SetQuery::Top(argument.first().copied().unwrap_or(10) as usize),
        "contains" => SetQuery::Contains(argument.into()),
        other => {
            return Err(Fault::bad_input(format!(
                "there is no query {other:?} over sets of ids"
            )));
        }
    })
}

/// The answer of a query as an object of Python.
pub fn set_answer(py: Python<'_>, answer: SetAnswer) -> PyResult<Bound<'_, PyAny>> {
    Ok(match answer {
        SetAnswer::Ids(ids) | SetAnswer::Counts(ids) => ids.into_pyobject(py)?,
        SetAnswer::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        SetAnswer::Top(top) => {
            let pairs: Vec<(u64, u64)> = top.iter().map(|one| (one.id, one.count)).collect();
            pairs.into_pyobject(py)?
        }
        SetAnswer::Contains(flags) => flags.into_pyobject(py)?,
    })
}

/// The ids of an encoded set.
#[pyfunction]
pub fn decode_ids(set: &[u8]) -> PyResult<Vec<u64>> {
    let set = IdSet::parse(set).map_err(|error| Fault::new("WRONGTYPE", error.to_string()))?;
    let mut ids = Vec::new();
    set.decode_into(&mut ids);
    Ok(ids)
}

/// Ids as a store of sets has them.
#[pyfunction]
pub fn encode_ids<'py>(py: Python<'py>, mut ids: Vec<u64>) -> PyResult<Bound<'py, PyBytes>> {
    ids.sort_unstable();
    ids.dedup();
    let set = fondaco_ids::encode(&ids).map_err(|error| Fault::bad_input(error.to_string()))?;
    Ok(PyBytes::new(py, &set))
}
