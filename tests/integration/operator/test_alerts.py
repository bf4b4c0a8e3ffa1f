"""Alerts from the broker to the person who is called: rules, Prometheus, Alertmanager.

What needs their programs is skipped without them (`make alerts` installs Debian's).
"""

import asyncio
import json
import re
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.broker import running_broker
from tests.support.kafka_peer import free_ports

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
ALERTMANAGER = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
TESTED = yaml.safe_load((DEPLOY / "prometheus/alerts.test.yml").read_text())["tests"]

MANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")


def checked(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_connects_prometheus_to_alertmanager() -> None:
    (manager,) = PROMETHEUS["alerting"]["alertmanagers"]
    ((host, port),) = (
        target.split(":") for group in manager["static_configs"] for target in group["targets"]
    )
    assert COMPOSE[host]["image"].startswith("prom/alertmanager:v")
    assert any(each.endswith(f":{port}") for each in COMPOSE[host]["ports"])
    assert all(each.startswith("127.0.0.1:") for each in COMPOSE[host]["ports"])
    sources = [each.split(":")[0] for name in COMPOSE for each in COMPOSE[name].get("volumes", ())]
    files = [ROOT / each for each in sources if each.startswith("./")]
    assert len(files) >= 4
    assert [path for path in files if not path.is_dir()] == []


def test_every_severity_has_a_receiver() -> None:
    receivers = {each["name"] for each in ALERTMANAGER["receivers"]}
    routes = [ALERTMANAGER["route"], *ALERTMANAGER["route"]["routes"]]
    assert {route["receiver"] for route in routes} == receivers
    severities = {rule["labels"]["severity"] for rule in RULES}
    assert severities == {"page", "warn"} == receivers
    named = re.findall(r'Tidelog\w+(?=")', str(ALERTMANAGER["inhibit_rules"]))
    assert set(named) <= {rule["alert"] for rule in RULES}


def test_when_each_alert_fires_is_tested() -> None:
    fires = {
        case["alertname"]
        for test in TESTED
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fires == {rule["alert"] for rule in RULES}


@pytest.mark.alerts
def test_prometheus_and_alertmanager_take_the_files(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    rules = tmp_path / "deploy" / "prometheus"
    checked("promtool", "check", "config", "prometheus.yml", folder=rules)
    checked("promtool", "test", "rules", "alerts.test.yml", folder=rules)
    checked("amtool", "check-config", "../alertmanager/alertmanager.yml", folder=rules)


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook's address, and what was sent to it."""
    sent: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", sent
    server.shutdown()
    server.server_close()


@contextmanager
def program(folder: Path, *command: str) -> Iterator[None]:
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def states_of(sent: list[dict[str, Any]], name: str) -> list[str]:
    """What was said of one alert; others may fire beside it on a slow machine."""
    alerts = (alert for call in sent for alert in call["alerts"])
    return [alert["status"] for alert in alerts if alert["labels"]["alertname"] == name]


async def until(condition: Any, what: str, log: Path) -> None:
    for _ in range(300):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{what} did not come; {log.read_text()[-2000:]}")


@pytest.mark.alerts
async def test_a_broker_that_goes_calls_a_person_and_one_that_is_back_takes_it_back(
    tmp_path: Path,
) -> None:
    """The files of `deploy`, with other addresses and without their pauses."""
    scraped, served, manager = free_ports(3)
    rules = (DEPLOY / "prometheus/alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(re.sub(r"for: \d+[sm]", "for: 0s", rules))
    prometheus = json.loads(json.dumps(PROMETHEUS).replace("broker:9464", f"127.0.0.1:{scraped}"))
    prometheus = json.loads(
        json.dumps(prometheus).replace("alertmanager:9093", f"127.0.0.1:{manager}")
    )
    prometheus["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(prometheus))
    with receiver() as (url, sent):
        config = json.loads(json.dumps(ALERTMANAGER))
        config["route"] |= {"group_wait": "100ms", "group_interval": "500ms"}
        for each in config["receivers"]:
            each["webhook_configs"] = [{"url": url + each["name"]}]
        (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(config))
        managing = program(
            tmp_path, str(MANAGER), "--config.file=alertmanager.yml", "--storage.path=am",
            f"--web.listen-address=127.0.0.1:{manager}", "--cluster.listen-address=",
        )  # fmt: skip
        watching = program(
            tmp_path, "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
            f"--web.listen-address=127.0.0.1:{served}",
        )  # fmt: skip
        port = f"127.0.0.1:{scraped}"

        def is_up() -> bool:
            target = f"http://127.0.0.1:{served}/api/v1/query?query=up"
            try:
                with urllib.request.urlopen(target, timeout=5) as answer:
                    result = json.load(answer)["data"]["result"]
            except OSError:
                return False
            return [sample["value"][1] for sample in result] == ["1"]

        log = tmp_path / "log"
        with managing, watching:
            async with running_broker(tmp_path / "data", metrics_listener=port):
                await until(is_up, "the first scrape", log)
                assert sent == []
            await until(lambda: bool(sent), "a call", log)
            call = sent[0]
            assert (call["status"], call["receiver"]) == ("firing", "page")
            assert call["commonLabels"]["alertname"] == "TidelogDown"
            summary = f"127.0.0.1:{scraped} does not answer"
            assert call["commonAnnotations"]["summary"] == summary
            async with running_broker(tmp_path / "data", metrics_listener=port):

                def is_over() -> bool:
                    return states_of(sent, "TidelogDown")[-1] == "resolved"

                await until(is_over, "the all-clear", log)
