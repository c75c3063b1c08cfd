"""Graphs: the answers of queries."""

from __future__ import annotations

import importlib
import json
from typing import Any


class QueryResult(dict[str, Any]):
    """The answer of a query: ``columns``, ``rows``, and ``incomplete``, which says why there may be more rows, or is ``None``.

    >>> result = client.store("social").query("MATCH (a {name: 'ann'})-[:KNOWS]-(b) RETURN b.name, b.age")
    >>> result["rows"]
    [['bob', 41]]
    >>> result.to_arrow().column_names
    ['b.name', 'b.age']
    """

    def to_arrow(self) -> Any:
        """A table of pyarrow. Vertices, edges and paths are structs; a column with values of several types is text: JSON."""
        pyarrow: Any = importlib.import_module("pyarrow")

        columns = []
        for number in range(len(self["columns"])):
            values = [row[number] for row in self["rows"]]
            try:
                column = pyarrow.array(values)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
                column = pyarrow.array([None if value is None else json.dumps(value) for value in values], pyarrow.string())
            columns.append(column)
        return pyarrow.table(columns, names=self["columns"])

    def to_pandas(self) -> Any:
        """A DataFrame of pandas. Vertices, edges and paths are dictionaries."""
        pandas: Any = importlib.import_module("pandas")

        return pandas.DataFrame(self["rows"], columns=self["columns"])


__all__ = ["QueryResult"]
