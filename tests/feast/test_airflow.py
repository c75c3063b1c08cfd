"""The worked example for Airflow, run by Airflow: `dag.test()` executes tasks with their retries, as a worker does."""

import itertools
import os
import pathlib
import sys
from datetime import datetime, timedelta, timezone

import pytest
from conftest import BINARY, ROOT

airflow = pytest.importorskip("airflow", reason="apache-airflow is not installed in this environment")

sys.path.insert(0, str(ROOT / "python/examples"))
os.environ["FONDACO_BINARY"] = BINARY
import airflow_push  # noqa: E402

numbers = itertools.count()


@pytest.fixture
def day(node, tmp_path, monkeypatch):
    """A run of the DAG for a store, with a file of rows, and no pause before retries."""
    monkeypatch.setenv("FONDACO_HTTP", node.http)
    store = f"day-{next(numbers)}"
    node.run("store", "create", store, "--backups", "3")
    for task in airflow_push.push_dag.tasks:
        monkeypatch.setattr(task, "retry_delay", timedelta(0))
        monkeypatch.setattr(task, "retry_exponential_backoff", 0)
        monkeypatch.setattr(task, "retries", 1)
    return Day(node, store, tmp_path)


class Day:
    def __init__(self, node, store, directory):
        self.node, self.store, self.directory = node, store, directory

    def write(self, rows, day=1):
        lines = ["member,candidates", *(f"{key},{value}" for key, value in rows)]
        (self.directory / f"2026-11-{day:02}.csv").write_text("\n".join(lines) + "\n")

    def run(self, day=1):
        """Runs the DAG; the states of its tasks."""
        run = airflow_push.push_dag.test(
            logical_date=datetime(2026, 11, day, tzinfo=timezone.utc),
            run_conf={
                "store": self.store,
                "input": str(self.directory / "{date}.csv"),
                "key": "member",
                "versions": str(self.directory / "versions"),
            },
        )
        return {task.task_id: str(task.state) for task in run.get_task_instances()}

    def get(self, key):
        return self.node.run("get", f"{self.store}:{key}").stdout.strip()


def test_the_first_run_builds_and_pushes_a_version(day):
    day.write([("m1", "a"), ("m2", "b")])
    assert day.run() == {"build": "success", "push": "success"}
    assert day.node.versions(day.store) == [1]
    assert day.get("m1") == '{"candidates":"a"}'


def test_a_retry_of_a_run_joins_its_push(day):
    day.write([("m1", "a")])
    day.run()
    # The data changed meanwhile, so that another push would make another version.
    day.write([("m1", "b")])
    assert day.run() == {"build": "success", "push": "success"}
    assert day.node.versions(day.store) == [1]
    assert day.get("m1") == '{"candidates":"a"}'
    day.write([("m1", "b")], day=2)
    day.run(day=2)
    assert day.node.versions(day.store) == [1, 2]


def test_a_lost_answer_is_asked_for_again_and_nothing_is_pushed_twice(day, monkeypatch):
    day.write([("m1", "a")])
    run, lost = airflow_push.fondaco, []

    def loses_the_first_answer(command, *arguments):
        result = run(command, *arguments)
        if command == "deploy" and not lost:
            lost.append(result["version"])
            raise airflow_push.FondacoFailed("the worker lost its connection")
        return result

    monkeypatch.setattr(airflow_push, "fondaco", loses_the_first_answer)
    assert day.run() == {"build": "success", "push": "success"}
    assert lost == day.node.versions(day.store) == [1]


def test_a_failed_build_fails_the_run_and_deploys_nothing(day):
    day.write([("m1", "a")])
    day.run()
    day.write([("m1", "b"), ("m1", "c")], day=2)
    states = day.run(day=2)
    assert states == {"build": "failed", "push": "upstream_failed"}
    assert day.node.versions(day.store) == [1]
    assert day.get("m1") == '{"candidates":"a"}'


def test_a_wrong_command_is_not_tried_again(day, monkeypatch):
    day.write([("m1", "a")])
    calls = []
    run = airflow_push.subprocess.run

    def counted(command, **options):
        calls.append(command)
        return run([*command, "--no-such-option"], **options)

    monkeypatch.setattr(airflow_push.subprocess, "run", counted)
    assert day.run()["build"] == "failed"
    assert len(calls) == 1


def test_a_push_that_failed_is_tried_again_under_another_id(day, monkeypatch):
    day.write([("m1", "a")])
    run, damaged = airflow_push.fondaco, []

    def damages_the_first_build(command, *arguments):
        if command == "deploy" and not damaged:
            path = next(pathlib.Path(arguments[1]).glob("*.data"))
            content = path.read_bytes()
            damaged.append((path, content))
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        elif command == "deploy":
            damaged[0][0].write_bytes(damaged[0][1])
        return run(command, *arguments)

    monkeypatch.setattr(airflow_push, "fondaco", damages_the_first_build)
    assert day.run() == {"build": "success", "push": "success"}
    assert day.get("m1") == '{"candidates":"a"}'


def test_the_rollback_brings_back_the_version_before(day):
    for number, value in enumerate("ab", 1):
        day.write([("m1", value)], day=number)
        day.run(day=number)
    run = airflow_push.rollback_dag.test(run_conf={"store": day.store})
    assert str(run.state) == "success"
    assert day.node.versions(day.store) == [2, 1]
    assert day.get("m1") == '{"candidates":"a"}'


def test_a_rollback_without_an_earlier_version_fails_and_changes_nothing(day):
    day.write([("m1", "a")])
    day.run()
    run = airflow_push.rollback_dag.test(run_conf={"store": day.store})
    assert str(run.state) == "failed"
    assert day.node.versions(day.store) == [1]
