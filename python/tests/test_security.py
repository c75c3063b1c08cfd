"""A node with users, a token and TLS: the client, pushes and followers reach it with the right secrets only."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fondaco
import pytest
from conftest import Cluster

pa = pytest.importorskip("pyarrow")

TOKEN = "0123456789abcdef0123456789abcdef"

USERS = f"""token = "{TOKEN}"
[[users]]
name = "ann"
password-sha256 = "{hashlib.sha256(b"secret").hexdigest()}"
stores = ["*"]
[[users]]
name = "reader"
password-sha256 = "{hashlib.sha256(b"other secret").hexdigest()}"
stores = ["none"]
"""


def certificate(directory: Path, name: str) -> Path:
    """Makes `NAME.pem` and `NAME.key`, as docs/operations.md does."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    files: list[str | Path] = ["-keyout", directory / f"{name}.key", "-out", directory / f"{name}.pem"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
    return directory / f"{name}.pem"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, dict[str, Any], Path]]:
    """A node that asks for secrets, the options that have them, and another node's certificate."""
    directory = tmp_path_factory.mktemp("secured")
    ca, other = certificate(directory, "node"), certificate(directory, "other")
    tls = f'[tls]\ncertificate = "{ca}"\nkey = "{directory}/node.key"\n'
    cluster = Cluster(directory, configuration=USERS + tls)
    yield cluster, {"user": "ann", "password": "secret", "token": TOKEN, "ca": ca}, other
    cluster.stop()


def test_client_push_scan_and_follower_reach_a_node_with_a_password_and_tls(
    secured: tuple[Cluster, dict[str, Any], Path], batch_name: str, tmp_path: Path
) -> None:
    cluster, secrets, _ = secured
    with cluster.connect(deadline_ms=10_000, **secrets) as client:
        store = client.store(batch_name)
        pushed = store.push(pa.table({"k": ["a"], "v": ["1"]}), key="k", value="v", create=True)
        assert pushed["version"] == 1
        assert (store.get("a"), store.row("a"), len(store.scan().to_arrow())) == (b"1", "1", 1)
        assert batch_name in [found["name"] for found in client.stores()]
        upload = store.push(pa.table({"k": ["a"], "v": ["2"]}), key="k", value="v", upload=True)
        assert (upload["version"], store.get("a")) == (2, b"2")
        with fondaco.open(
            batch_name, follow=True, http=cluster.http, directory=tmp_path, token=TOKEN, ca=secrets["ca"], poll_ms=50
        ) as reader:
            assert reader.get("a") == b"2"
            store.rollback()
            reader.wait_for(1)
            assert reader.get("a") == b"1"


#: A wrong option, and the exception, its code and its text when the client connects.
CONNECTING: list[tuple[dict[str, Any], type[fondaco.FondacoError], str, str]] = [
    ({"password": "guess"}, fondaco.Refused, "WRONGPASS", "password"),
    ({"user": "nobody"}, fondaco.Refused, "WRONGPASS", "password"),
    ({"user": None, "password": None}, fondaco.Refused, "NOAUTH", "Authentication required"),
    ({"ca": "other"}, fondaco.ConnectionError, "UNAVAILABLE", "certificate"),
    ({"ca": "missing.pem"}, fondaco.BadInput, "BADINPUT", "missing.pem"),
    ({"ca": None}, fondaco.ConnectionError, "UNAVAILABLE", "TLS"),
]


@pytest.mark.parametrize(("wrong", "kind", "code", "text"), CONNECTING)
def test_a_client_with_wrong_secrets_is_told_which(
    secured: tuple[Cluster, dict[str, Any], Path],
    wrong: dict[str, Any],
    kind: type[fondaco.FondacoError],
    code: str,
    text: str,
) -> None:
    cluster, secrets, other = secured
    options = {**secrets, **wrong}
    if options["ca"] == "other":
        options["ca"] = other
    # A refusal needs no wait: another try would have the same answer.
    connect_ms = 60_000 if kind is fondaco.Refused else 3000
    began = time.monotonic()
    with pytest.raises(kind, match=text) as caught:
        cluster.connect(connect_ms=connect_ms, **options)
    assert time.monotonic() - began < 30
    assert (caught.value.code, bool(caught.value.remedy)) == (code, True)


def test_a_refusal_ends_the_connect_though_another_seed_is_unreachable(
    secured: tuple[Cluster, dict[str, Any], Path],
) -> None:
    cluster, secrets, _ = secured
    began = time.monotonic()
    with pytest.raises(fondaco.Refused, match="password"):
        fondaco.connect(cluster.resp, "127.0.0.1:1", http=cluster.http, connect_ms=60_000, **{**secrets, "password": "guess"})
    assert time.monotonic() - began < 30


def test_a_wrong_token_is_refused_by_pushes_scans_and_followers(
    secured: tuple[Cluster, dict[str, Any], Path], batch_name: str, tmp_path: Path
) -> None:
    cluster, secrets, other = secured
    rows = pa.table({"k": ["a"], "v": ["1"]})
    follow: dict[str, Any] = {"follow": True, "http": cluster.http, "directory": tmp_path / "d"}
    with cluster.connect(**{**secrets, "token": TOKEN[::-1]}) as client:
        tries: list[Callable[[], Any]] = [
            lambda: client.store(batch_name).push(rows, key="k", create=True, temporary=tmp_path),
            lambda: client.store(batch_name).scan(),
            client.stores,
            lambda: fondaco.open(batch_name, token=TOKEN[::-1], ca=secrets["ca"], **follow),
        ]
        for attempt in tries:
            with pytest.raises(fondaco.Refused, match="token") as caught:
                attempt()
            assert caught.value.code == "unauthorized"
    # The node may get another certificate: a follower tries until then.
    with pytest.raises(fondaco.Timeout, match="trust it with ca="):
        fondaco.open(batch_name, token=TOKEN, ca=other, first_version_ms=2000, **follow)
    with cluster.connect(**secrets) as client:
        assert batch_name not in [found["name"] for found in client.stores()]
    assert not list(tmp_path.glob("fondaco*"))


def test_a_user_reads_only_its_own_stores(secured: tuple[Cluster, dict[str, Any], Path], batch_name: str) -> None:
    cluster, secrets, _ = secured
    with cluster.connect(deadline_ms=10_000, **secrets) as client:
        client.store(batch_name).push(pa.table({"k": ["a"], "v": ["1"]}), key="k", create=True)
    with cluster.connect(**{**secrets, "user": "reader", "password": "other secret"}) as client:
        # Not even that it exists.
        with pytest.raises(fondaco.NoStore, match=batch_name):
            client.store(batch_name).get("a")
