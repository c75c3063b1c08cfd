"""A file system without space: what writes there names it, and leaves nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fondaco
import pytest
from conftest import Cluster

pa = pytest.importorskip("pyarrow")

ROWS = 20_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", directory], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    yield directory
    subprocess.run(["umount", directory], check=True)


def rows() -> Any:
    return pa.table({"k": range(ROWS), "v": [f"{number * 0x9E3779B97F4A7C15:0100x}" for number in range(ROWS)]})


def people() -> tuple[Any, Any]:
    names = [f"{number * 0x9E3779B97F4A7C15:0100x}" for number in range(ROWS)]
    return pa.table({"from": names, "to": names[::-1]}), pa.table({"name": names})


def push(store: fondaco.Store, small: Path) -> None:
    store.push(rows(), key="k", temporary=small, progress=False)


def push_graph(store: fondaco.Store, small: Path) -> None:
    edges, vertices = people()
    store.push_graph({"KNOWS": edges}, {"Person": vertices}, temporary=small, progress=False)


@pytest.mark.parametrize("pushing", [push, push_graph])
def test_a_push_to_a_full_disk_names_it_and_leaves_nothing(
    client: fondaco.Client, batch_name: str, small: Path, pushing: Callable[[fondaco.Store, Path], None]
) -> None:
    client.create_store(batch_name)
    store = client.store(batch_name)
    with pytest.raises(fondaco.FondacoError, match="(?i)no space left|the build needs about .* free space") as caught:
        pushing(store, small)
    assert str(small) in str(caught.value)
    assert list(small.iterdir()) == []
    assert store.versions() == []


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_an_export_to_a_full_disk_names_it_and_leaves_nothing(
    client: fondaco.Client, batch_name: str, small: Path, format: str
) -> None:
    store = client.store(batch_name)
    store.push(rows(), key="k", create=True, progress=False)
    with pytest.raises(fondaco.FondacoError, match="(?i)no space left") as caught:
        store.export(small / "rows", format=format, progress=False)
    assert str(small) in str(caught.value)
    assert list(small.iterdir()) == []


def test_a_follower_with_a_full_disk_names_it_and_leaves_no_version(
    cluster: Cluster, client: fondaco.Client, batch_name: str, small: Path
) -> None:
    client.store(batch_name).push(rows(), key="k", create=True, progress=False)
    with pytest.raises(fondaco.Timeout, match="not enough space in") as caught:
        fondaco.open(batch_name, follow=True, http=cluster.http, directory=small / "d", poll_ms=50, first_version_ms=3000)
    assert str(small) in str(caught.value)
    assert sum(found.stat().st_size for found in small.rglob("*") if found.is_file()) < 10_000
