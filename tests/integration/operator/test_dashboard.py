"""The dashboard and the alerts: valid for Grafana, for any data source, about metrics that exist.

Grafana's own schema is in its foundation SDK: what the models do not know is lost when a document
goes through them, and so a misspelt key is found.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.operator.test_metrics import get
from tests.support.broker import running_broker

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/tidelog.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def lost(given: Any, back: Any, path: str = "") -> list[str]:
    """The places of `given` that are not the same in `back`, which may have more."""
    if isinstance(given, dict):
        return [
            place
            for key, value in given.items()
            for place in (
                lost(value, back[key], f"{path}.{key}")
                if isinstance(back, dict) and key in back
                else [f"{path}.{key}"]
            )
        ]
    if isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        pairs = enumerate(zip(given, back, strict=True))
        return [place for n, (one, two) in pairs for place in lost(one, two, f"{path}[{n}]")]
    return [] if given == back else [path]


def through_the_schema(document: dict[str, Any]) -> Any:
    """What Grafana's models keep of a dashboard."""
    dashboard = pytest.importorskip("grafana_foundation_sdk.models.dashboard").Dashboard
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder").JSONEncoder
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    return json.loads(encoder().encode(dashboard.from_json(document)))


def test_the_dashboard_is_one_by_grafanas_schema() -> None:
    assert lost(DASHBOARD, through_the_schema(DASHBOARD)) == []


@pytest.mark.parametrize(
    ("place", "key"),
    [(("fieldConfig", "defaults"), "unti"), (("options",), "colourMode"), ((), "gridpos")],
)
def test_a_misspelt_key_would_be_found(place: tuple[str, ...], key: str) -> None:
    document = json.loads(json.dumps(DASHBOARD))
    part = document["panels"][0]
    for name in place:
        part = part[name]
    part[key] = "x"
    path = ".".join((".panels[0]", *place, key))
    assert lost(document, through_the_schema(document)) == [path]


def test_panels_have_their_own_place_on_the_grid_of_24_columns() -> None:
    cells = [
        (x, y)
        for panel in PANELS
        for x, y in itertools.product(
            range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"]),
            range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"]),
        )
    ]
    assert len(cells) == len(set(cells)) > 100
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_dashboard_asks_the_data_source_that_its_reader_chooses() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    sources = [panel["datasource"] for panel in PANELS]
    sources += [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert all(source == chosen for source in sources)
    (variable,) = (it for it in DASHBOARD["templating"]["list"] if it["name"] == "datasource")
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")


def test_the_dashboard_shows_the_brokers_that_its_reader_chooses() -> None:
    for expression in expressions():
        metrics = re.findall(r"\b(?:tidelog|process)_\w+(.{23})", expression)
        assert metrics
        assert set(metrics) == {'{instance=~"$instance"}'}, expression
    (variable,) = (it for it in DASHBOARD["templating"]["list"] if it["name"] == "instance")
    assert variable["query"]["query"] == "label_values(tidelog_build_info, instance)"
    assert variable["multi"]
    assert variable["includeAll"]
    assert "allValue" not in variable, "process_... of other jobs would be shown"


async def test_every_metric_of_the_dashboard_and_the_alerts_is_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as broker:
        _, body = await get(broker, "/metrics")
    families = set(re.findall(r"^# TYPE (\S+)", body.decode(), re.M))
    asked_in = "\n".join([*expressions(), (DEPLOY / "prometheus/alerts.yml").read_text()])
    asked = set(re.findall(r"\b(?:tidelog|process)_\w+", asked_in))
    assert len(asked) > 30
    unknown = {
        name
        for name in asked
        if name not in families and re.sub(r"_(bucket|sum|count)$", "", name) not in families
    }
    assert unknown == set()
