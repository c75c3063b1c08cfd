"""The configuration with which Feast's own tests of online stores run against fondaco, and a plugin of pytest for them.

Some tests are marked for single stores, and are good for any: those for Redis. So fondaco stands under that name.
"""

import os

import pytest

AVAILABLE_ONLINE_STORES = {
    "redis": (
        {
            "type": "fondaco.feast.FondacoOnlineStore",
            "resp": os.environ["FONDACO_RESP"],
            "http": os.environ["FONDACO_HTTP"],
        },
        None,
    )
}


def __getattr__(name):
    if name == "AVAILABLE_OFFLINE_STORES":
        # Feast's tests can be imported only once pytest has found them.
        from tests.universal.feature_repos.universal.data_sources.file import FileDataSourceCreator

        return [("local", FileDataSourceCreator)]
    raise AttributeError(name)


@pytest.fixture(autouse=True)
def _whole_tests(monkeypatch):
    # With the variable Feast's modules load without the packages of clouds. Some tests end early if it is still set.
    monkeypatch.delenv("FEAST_IS_LOCAL_TEST")
