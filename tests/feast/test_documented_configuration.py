"""The configuration of docs/python.md, used as a data scientist does: a folder with definitions, and the program `feast`."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

pytest.importorskip("feast", reason="feast is not installed in this environment")

from feast import FeatureStore  # noqa: E402
from feature_stores import NOW, Drivers  # noqa: E402

DEFINITIONS = """
from datetime import timedelta
from feast import Entity, FeatureView, Field, FileSource, ValueType
from feast.types import Float64, Int64

driver = Entity(name="driver", value_type=ValueType.INT64)
drivers = FeatureView(
    name="drivers", entities=[driver], ttl=timedelta(0), tags={{"fondaco.kind": "batch"}},
    schema=[Field(name="trips", dtype=Int64), Field(name="rate", dtype=Float64)],
    source=FileSource(path={path!r}, timestamp_field="event_timestamp"),
)
"""


def test_the_configuration_of_the_documentation_works_with_the_command_line_of_feast(node, tmp_path):
    text = (ROOT / "docs/python.md").read_text()
    configuration = re.search(r"```yaml\n(project: shop\n.*?)```", text, re.DOTALL)[1]
    configuration = re.sub(r"resp: .*", f"resp: {node.resp}", configuration)
    configuration = re.sub(r"http: .*", f"http: {node.http}", configuration)
    (tmp_path / "data").mkdir()
    source = Drivers(node, tmp_path)
    (tmp_path / "feature_store.yaml").write_text(configuration)
    (tmp_path / "definitions.py").write_text(DEFINITIONS.format(path=source.path))

    def feast(*arguments):
        program = "from feast.cli.cli import cli; cli()"
        command = [sys.executable, "-W", "ignore", "-c", program, "--chdir", str(tmp_path), *arguments]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr

    feast("apply")
    assert node.stores()["shop.drivers"]["kind"] == "batch"
    feast("materialize-incremental", f"{NOW:%Y-%m-%dT23:59:59}")
    assert node.versions("shop.drivers") == [1]
    shop = FeatureStore(repo_path=str(tmp_path))
    assert shop.get_online_features(["drivers:trips"], [{"driver": 1}]).to_dict()["trips"] == [10]
    shop.teardown()
    assert "shop.drivers" not in node.stores()
