"""A notebook, run by a real kernel: the progress of a push, and the button that interrupts a cell, which sends SIGINT."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fondaco
import pytest
from conftest import Cluster, await_that

pa = pytest.importorskip("pyarrow")
jupyter_client = pytest.importorskip("jupyter_client")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

#: How soon an interrupted cell ends.
INTERRUPT_SECONDS_MAX = 10.0


class Kernel:
    """A kernel, as a notebook starts one."""

    def __init__(self) -> None:
        self._manager = jupyter_client.KernelManager(kernel_name="python3")
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def begin(self, code: str) -> None:
        """Runs a cell, and does not wait for its end."""
        self._client.execute(code)

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def printed(self, text: str) -> None:
        """Waits until a cell prints this."""
        while text not in self._next()["content"].get("text", ""):
            pass

    def end(self) -> tuple[str, str]:
        """Waits for the end of a cell: the name and text of its exception, or nothing twice, and what it printed."""
        found, text = "", ""
        while True:
            message = self._next()
            content = message["content"]
            if message["msg_type"] == "error":
                found = f"{content['ename']}: {content['evalue']}"
            text += content.get("text", "")
            if content.get("execution_state") == "idle":
                return found, text

    def run(self, code: str) -> tuple[str, str]:
        self.begin(code)
        return self.end()

    def _next(self) -> dict[str, Any]:
        try:
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=60)
        except queue.Empty:
            raise AssertionError("the kernel says nothing") from None
        return message

    def stop(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.stop()


def connect(cluster: Cluster, store: str) -> str:
    return (
        "import fondaco, pyarrow as pa\n"
        f"client = fondaco.connect({cluster.resp!r}, http={cluster.http!r}, deadline_ms=60_000)\n"
        f"store = client.store({store!r})"
    )


ENDLESS = """
schema = pa.schema({"k": pa.int64(), "v": pa.string()})
def batches():
    start = 0
    while True:
        yield pa.record_batch({"k": range(start, start + 1000), "v": ["x" * 100] * 1000}, schema)
        start += 1000
def report(step, fraction, details):
    print(step, flush=True)
rows = pa.RecordBatchReader.from_batches(schema, batches())
"""


def test_an_interrupted_push_is_cancelled_and_leaves_nothing(
    kernel: Kernel, cluster: Cluster, batch_name: str, tmp_path: Path
) -> None:
    assert kernel.run(connect(cluster, batch_name) + ENDLESS) == ("", "")
    kernel.begin(f"store.push(rows, key='k', create=True, temporary={str(tmp_path)!r}, progress=report)")
    kernel.printed("reading")
    began = time.monotonic()
    kernel.interrupt()
    assert kernel.end()[0].startswith("KeyboardInterrupt")
    assert time.monotonic() - began < INTERRUPT_SECONDS_MAX
    assert os.listdir(tmp_path) == []
    again = "store.push(pa.table({'k': ['a'], 'v': ['1']}), key='k', value='v', create=True, progress=False)['version']"
    assert kernel.run(f"print({again}, store.get('a'))") == ("", "1 b'1'\n")


def test_an_interrupted_push_that_nodes_fetch_is_cancelled_there(
    kernel: Kernel, client: fondaco.Client, cluster: Cluster, batch_name: str
) -> None:
    rate = "fetch-rate-bytes-per-second"
    before = client.control("GET", "/v1/settings")
    client.control("PATCH", "/v1/settings", {rate: 1000})
    try:
        rows = "pa.table({'k': range(20_000), 'v': ['x' * 100] * 20_000})"
        push = f"store.push({rows}, key='k', value='v', create=True, progress=lambda step, *_: print(step, flush=True))"
        assert kernel.run(connect(cluster, batch_name)) == ("", "")
        kernel.begin(push)
        kernel.printed("fetching")
        began = time.monotonic()
        kernel.interrupt()
        assert kernel.end()[0].startswith("KeyboardInterrupt")
        assert time.monotonic() - began < INTERRUPT_SECONDS_MAX
    finally:
        client.control("PATCH", "/v1/settings", {rate: value_of(before, rate)})
    store = client.store(batch_name)
    await_that("the push is over", lambda: not client.control("GET", f"/v1/stores/{batch_name}/versions")["push"])
    assert [version for version in store.versions() if version.get("current")] == []
    failed, printed = kernel.run(push)
    assert (failed, "fetching" in printed) == ("", True)
    assert len(store.scan().to_arrow()) == 20_000


def value_of(settings: Any, name: str) -> Any:
    """The value of a setting in the answer of the control port."""
    found = settings.get("settings", settings)
    if isinstance(found, list):
        found = {one["name"]: one for one in found}
    value = found[name]
    return value["value"] if isinstance(value, dict) else value


def test_an_interrupted_scan_and_get_end_and_later_ones_work(
    kernel: Kernel, client: fondaco.Client, cluster: Cluster, batch_name: str
) -> None:
    client.store(batch_name).push(pa.table({"k": range(50_000), "v": range(50_000)}), key="k", value="v", create=True)
    assert kernel.run(connect(cluster, batch_name) + "\nprint(store.get(7))") == ("", "b'7'\n")
    calls = ["store.get(7)", "store.scan().to_arrow()", "[len(batch) for batch in store.scan().to_batches()]"]
    for call in calls:
        # The node answers nothing, so each call waits.
        cluster.process.send_signal(signal.SIGSTOP)
        try:
            kernel.begin(f"print('begun', flush=True)\n{call}")
            kernel.printed("begun")
            began = time.monotonic()
            kernel.interrupt()
            assert kernel.end()[0].startswith("KeyboardInterrupt"), call
            assert time.monotonic() - began < INTERRUPT_SECONDS_MAX
        finally:
            cluster.process.send_signal(signal.SIGCONT)
    assert kernel.run("print(store.get(7), len(store.scan().to_arrow()))") == ("", "b'7' 50000\n")


def test_a_scan_continues_after_an_interrupt_with_every_row_once(
    kernel: Kernel, client: fondaco.Client, cluster: Cluster, batch_name: str
) -> None:
    rows = pa.table({"k": range(200_000), "v": ["x" * 200] * 200_000})
    client.store(batch_name).push(rows, key="k", value="v", create=True, progress=False)
    begin = "\nbatches = iter(store.scan().to_batches())\nread = [next(batches)]"
    assert kernel.run(connect(cluster, batch_name) + begin) == ("", "")
    cluster.process.send_signal(signal.SIGSTOP)
    try:
        # What was on the way arrives; then each batch waits.
        kernel.begin("print('begun', flush=True)\nfor batch in batches:\n    read.append(batch)")
        kernel.printed("begun")
        began = time.monotonic()
        kernel.interrupt()
        assert kernel.end()[0].startswith("KeyboardInterrupt")
        assert time.monotonic() - began < INTERRUPT_SECONDS_MAX
    finally:
        cluster.process.send_signal(signal.SIGCONT)
    continued = "before = len(read)\nread.extend(batches)\nassert before < len(read)\n"
    keys = "print(sorted(key for batch in read for key in pa.record_batch(batch)['k'].to_pylist()) == list(range(200_000)))"
    assert kernel.run(continued + keys) == ("", "True\n")


def test_a_push_shows_one_output_that_is_updated(cluster: Cluster, batch_name: str, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook()
    push = "pushed = store.push(pa.table({'k': range(50_000), 'v': range(50_000)}), key='k', value='v', create=True)"
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in (connect(cluster, batch_name), push, "store.get(7)")]
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [output for output in notebook.cells[1].outputs if "text/html" in output.get("data", {})]
    others = [output for output in notebook.cells[1].outputs if output not in shown]
    assert len(shown) == 1, shown
    assert shown[0]["data"]["text/plain"].startswith("fetching  100 %"), shown
    assert "<progress value=\"1.000\"" in shown[0]["data"]["text/html"]
    assert [output["data"] for output in others] == [{"text/plain": f"created store {batch_name}"}]
    assert notebook.cells[2].outputs[0]["data"]["text/plain"] == "b'7'"
