"""Two DAGs for Airflow 3: one builds a version of a store each day and pushes it, the other one rolls a store back.

The tasks run the command line, so a worker needs the program `fondaco` and no Python package. They use

- its exit codes: 1 means that the command failed, and Airflow tries again; 2 means that the command is wrong, and Airflow
  does not try again;
- `--json`, for the numbers of a version and for error messages;
- `--run`, an id of the run. It is made of the DAG and the logical date, and is the same for every try: a try that comes
  after a lost connection or a killed worker joins the push that is under way, or gets the answer that it had.

`FONDACO_HTTP` says where the cluster is, and `FONDACO_TOKEN` is the token of its control port.
"""

import json
import os
import subprocess
from datetime import datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

FONDACO = os.environ.get("FONDACO_BINARY", "fondaco")

# A failed push keeps its run id. This many ids are tried for one logical date before a person has to look.
PUSHES_MAX = 10


class FondacoFailed(Exception):
    """The command failed; another try may succeed. The code says why, if the program could."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def fondaco(*arguments):
    """The result of a command."""
    finished = subprocess.run([FONDACO, *arguments, "--json", "--quiet"], capture_output=True, text=True, check=False)
    if finished.returncode == 0:
        return json.loads(finished.stdout)
    if finished.returncode == 2:
        raise AirflowFailException(finished.stderr)
    try:
        error = json.loads(finished.stderr)["error"]
    except ValueError:
        error = {"code": None, "message": finished.stderr or f"{FONDACO} was ended by signal {-finished.returncode}"}
    raise FondacoFailed(error["code"], error["message"])


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5), "retry_exponential_backoff": True},
    params={
        "store": Param("connections", type="string"),
        "input": Param("/data/connections/{date}/*.parquet", type="string"),
        "key": Param("member", type="string"),
        "versions": Param(
            "/data/versions", type="string", description="a place that all nodes read, also hdfs:// or s3://"
        ),
    },
)
def fondaco_push():
    """Builds and pushes the rows of a day."""

    @task
    def build() -> str:
        context = get_current_context()
        params, run = context["params"], run_id(context)
        # Each try has its own directory: files that a killed one left are not in the way, and are not deployed.
        output = f"{params['versions']}/{params['store']}/{run}.{context['ti'].id}"
        built = fondaco(
            "build", params["store"], params["input"].format(date=f"{context['logical_date']:%Y-%m-%d}"),
            "--key", params["key"], "--compress", "zstd", "--output", output,
        )  # fmt: skip
        print(f"built {built['records']} records into {output}")
        return output

    @task
    def push(output: str) -> int:
        context = get_current_context()
        store, run = context["params"]["store"], run_id(context)
        for number in range(1, PUSHES_MAX + 1):
            # The ids are the same for every try, and a push that failed keeps its id: the first other one is next.
            id = run if number == 1 else f"{run}.{number}"
            try:
                pushed = fondaco("deploy", store, output, "--run", id)
            except FondacoFailed as error:
                if error.code == "run_failed":
                    continue
                raise
            print(f"version {pushed['version']}" + (": pushed by an earlier try" if pushed["repeated"] else ""))
            return pushed["version"]
        raise AirflowFailException(f"{PUSHES_MAX} pushes of {run} failed")

    push(build())


@dag(schedule=None, start_date=datetime(2026, 1, 1), params={"store": Param("connections", type="string")})
def fondaco_rollback():
    """Brings back the version before the current one."""

    @task
    def choose() -> int:
        store = get_current_context()["params"]["store"]
        versions = fondaco("versions", store)["versions"]
        current = max((one["version"] for one in versions if one["current"]), default=0)
        earlier = [one["version"] for one in versions if one["version"] < current and one["state"] != "failed"]
        if not earlier:
            raise AirflowFailException(f"store {store} keeps no version before {current}")
        return max(earlier)

    @task(retries=3)
    def roll_back(version: int) -> int:
        # With a number a second try does nothing, where without one it would go back further.
        store = get_current_context()["params"]["store"]
        fondaco("rollback", store, "--to", str(version))
        return version

    roll_back(choose())


def run_id(context) -> str:
    """The id of the run: the DAG and its logical date, and not the number of the try."""
    return f"{context['dag'].dag_id}-{context['logical_date']:%Y%m%dT%H%M%S}"


push_dag = fondaco_push()
rollback_dag = fondaco_rollback()
