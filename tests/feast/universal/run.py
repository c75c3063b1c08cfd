"""Runs Feast's own tests of online stores, from a checkout of feast-dev/feast, against a node of fondaco."""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from conftest import ROOT, started  # noqa: E402

TESTS = [
    "tests/integration/online_store/test_universal_online.py",
    "tests/integration/online_store/test_universal_e2e.py",
    "tests/integration/online_store/test_push_features_to_online_store.py",
    "tests/integration/materialization/test_universal_materialization.py",
]


def main():
    source = pathlib.Path(sys.argv[1]).resolve() / "sdk/python"
    with tempfile.TemporaryDirectory() as directory, started(pathlib.Path(directory)) as node:
        environment = {
            **os.environ,
            "FONDACO_RESP": node.resp,
            "FONDACO_HTTP": node.http,
            "FULL_REPO_CONFIGS_MODULE": "fondaco_universal",
            "FEAST_IS_LOCAL_TEST": "True",
            "PYTHONPATH": f"{ROOT}/.cache/feast/stage:{HERE}:{source}",
        }
        # Those for DynamoDB start it in a container.
        command = [
            "pytest",
            "-q",
            "-W",
            "ignore",
            "--integration",
            "-p",
            "fondaco_universal",
            "-k",
            "not dynamo",
            *TESTS,
        ]
        return subprocess.run([sys.executable, "-m", *command], env=environment, cwd=source, check=False).returncode


sys.exit(main())
