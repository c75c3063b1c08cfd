"""A fondaco to test against: the real program, on free ports of loopback."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("FONDACO_BINARY", str(ROOT / "target/debug/fondaco"))


def await_that(condition, what, seconds=60):
    """Waits for a condition, and returns what it returned."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"timeout: {what}"
        time.sleep(0.05)
    return result


class Fondaco:
    """A running `fondaco dev`."""

    def __init__(self, process, addresses):
        self.process = process
        self.resp = addresses["resp"]
        self.http = addresses["http"]

    def run(self, *arguments, check=True):
        """Runs a command of the command line against it."""
        command = [BINARY, *arguments, "--http", self.http]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json").stdout)

    def versions(self, store):
        """The numbers of the versions of a store, the current one last."""
        versions = self.json("versions", store)["versions"]
        return [one["version"] for one in sorted(versions, key=lambda one: (one["current"], one["version"]))]

    def stores(self):
        return {store["name"]: store for store in self.json("store", "list")["stores"]}

    def post(self, path):
        subprocess.run(["curl", "-sf", "-X", "POST", f"http://{self.http}{path}"], check=True, capture_output=True)


@contextlib.contextmanager
def started(directory, *options):
    """A `fondaco dev` in this directory, until the end of the block."""
    output = directory / "addresses.json"
    with open(output, "w") as out, open(directory / "log", "w") as log:
        process = subprocess.Popen(
            [BINARY, "dev", "--data", directory / "data", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0",
             "--json", "--log", "error", *options],
            stdout=out, stderr=log,
        )  # fmt: skip
    try:

        def addresses():
            assert process.poll() is None, (directory / "log").read_text()
            text = output.read_text()
            return json.loads(text) if text.endswith("}\n") else None

        yield Fondaco(process, await_that(addresses, "fondaco dev serves"))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """A node by itself, for all tests."""
    with started(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def cluster(tmp_path):
    """A cluster of three nodes, each partition on two of them."""
    with started(tmp_path, "--nodes", "3", "--replicas", "2") as cluster:
        yield cluster
