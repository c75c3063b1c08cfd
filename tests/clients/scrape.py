"""Scrapes redis_exporter, and checks that it understood the node's INFO: exits with 1 until it serves."""

import re
import sys
import urllib.request

try:
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=10) as answer:
        text = answer.read().decode()
except OSError:
    sys.exit(1)


def metric(name):
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in:\n{text}"
    return float(found[1])


assert metric("redis_up") == 1
assert metric("redis_uptime_in_seconds") >= 0
assert metric("redis_connected_clients") >= 1
assert metric("redis_memory_used_bytes") > 0
assert metric("redis_commands_processed_total") > 0
assert metric("redis_db_keys") >= 5000
assert metric("redis_exporter_last_scrape_error") == 0
