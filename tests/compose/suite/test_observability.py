"""Prometheus scrapes the broker over the network, and the dashboard asks only for what is there."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DASHBOARD = Path("/deploy/grafana/dashboards/tidelog.json")
ALERTS = Path("/deploy/prometheus/alerts.yml")
PROMETHEUS = "http://127.0.0.1:9090"
# Empty until something of the kind has happened, which a healthy broker may never see; a
# slope needs three samples of a group that is behind.
QUIET = (
    "tidelog_appends_rejected",
    "tidelog_segments_deleted",
    "tidelog_job_failures",
    "tidelog_partition_offline",
    "tidelog_group_lag_seconds_slope",
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, metrics_url: str) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prometheus")
    target = urllib.parse.urlparse(metrics_url).netloc
    (home / "alerts.yml").write_text(ALERTS.read_text())
    (home / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        "rule_files: [alerts.yml]\n"
        "scrape_configs:\n"
        f"  - {{job_name: tidelog, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'data'}",
            "--web.listen-address=127.0.0.1:9090",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not _query("tidelog_connections") and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(8)
    yield PROMETHEUS
    process.terminate()
    process.wait(30)


def _get(path: str) -> Any:
    try:
        with urllib.request.urlopen(f"{PROMETHEUS}{path}", timeout=5) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def _query(expression: str) -> list[Any]:
    data = _get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    return list(data["result"]) if data else []


def _expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        target["expr"].replace("$__rate_interval", "30s").replace("$instance", ".*")
        for panel in panels
        for target in panel["targets"]
    ]


def test_the_target_is_up(prometheus: str) -> None:
    assert [sample["value"][1] for sample in _query('up{job="tidelog"}')] == ["1"]


def test_every_query_of_the_dashboard_returns_data(prometheus: str) -> None:
    empty = [
        expression
        for expression in _expressions()
        if not any(name in expression for name in QUIET) and not _query(expression)
    ]
    assert empty == []


def test_every_metric_of_the_dashboard_and_the_alerts_exists(
    prometheus: str, metrics_url: str
) -> None:
    with urllib.request.urlopen(f"{metrics_url}/metrics", timeout=10) as answer:
        families = set(re.findall(r"^# TYPE (\S+)", answer.read().decode(), re.M))
    text = "\n".join([*_expressions(), ALERTS.read_text()])
    asked = set(re.findall(r"\b(?:tidelog|process)_\w+", text))
    unknown = {
        name
        for name in asked
        if name not in families and re.sub(r"_(bucket|sum|count)$", "", name) not in families
    }
    assert unknown == set()


def test_the_alert_rules_load_and_none_fires(prometheus: str) -> None:
    rules = [rule for group in _get("/api/v1/rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 7
    assert [rule["name"] for rule in rules if rule.get("lastError")] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


@pytest.mark.parametrize(
    "command",
    [
        ["promtool", "check", "config", "/deploy/prometheus/prometheus.yml"],
        ["promtool", "test", "rules", "/deploy/prometheus/alerts.test.yml"],
        ["amtool", "check-config", "/deploy/alertmanager/alertmanager.yml"],
    ],
    ids=" ".join,
)
def test_the_files_beside_compose_are_taken(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
