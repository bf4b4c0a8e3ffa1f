"""Every block of code in README, CONTRIBUTING, ARCHITECTURE and ``docs``, each with a class.

A block is run here unless `CLASSES` says why not. A page whose blocks another test runs is named
with that test, and the name is looked up.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

from tests.support.cli import ROOT

RUN_PAGES: Final = (
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/replay-yesterday.md",
    "docs/how-to/keep-a-year.md",
    "docs/how-to/back-up-and-restore.md",
    "docs/how-to/move-from-kafka.md",
    "docs/how-to/upgrade.md",
    "docs/how-to/test-your-application.md",
    "docs/testing.md",
)
"""Pages whose blocks run here, in their order, in one directory."""

SHELL: Final = "sh"
PYTHON: Final = "python"
SHOWN: Final = "text"

_CLI = "test: tests/integration/cli/test_documentation.py::test_every_command_on_the_page_runs"
_CLIENT = (
    "test: tests/integration/cli/test_documentation.py::test_every_snippet_of_the_clients_page_runs"
)
_SPARK = "test: tests/pipeline/test_documentation.py::"
_TESTING = "test: tests/integration/testing/test_documentation.py::test_the_example_passes"
_RECIPES = "test: tests/integration/cli/test_security_recipes.py::"
_BUCKET = "test: tests/integration/remote/test_documentation.py::"
_SINGLE = "test: tests/integration/documents/test_single_blocks.py::"
_CRASH = "similar: tests/crash/test_documentation.py"
_KAFKA = "test: tests/compat/test_pages_with_kafkas_tools.py::"
_SHOWN = "shown: "

CLASSES: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "make run": "not run: installs into .venv and runs until Ctrl-C; every checkout does it",
        "python -m benchmarks.start": "not run: benchmarks, the last one of 45 minutes",
    },
    "ARCHITECTURE.md": {"values  |  config": _SHOWN + "a picture"},
    "CONTRIBUTING.md": {"make setup": "not run: installs the checkout; every checkout does it"},
    "docs/cli.md": {
        '{"key": "k"': _SINGLE + "test_a_json_line_becomes_the_record",
        "": _CLI,
    },
    "docs/client.md": {
        "from tidelog import Admin": _CLIENT,
        "": _CLIENT,
    },
    "docs/client-telemetry.md": {
        "pip install": _KAFKA + "test_clients_push_what_a_subscription_asks_for"
    },
    "docs/code-in-figures.md": {
        "mkdir /tmp": _SINGLE + "test_the_figures_of_the_old_code_are_counted"
    },
    "docs/console.md": {
        "pip install": _SINGLE + "test_the_console_starts_with_the_command_of_its_page",
        "value.user.id": _SHOWN + "filters",
    },
    "docs/crash-safety.md": {
        "python -m tests.crash": _CRASH,
        "KILL9_CYCLES": _CRASH,
        "SYSCALL_KILLS": _CRASH,
        "TXN_TORTURE_ROUNDS": _CRASH,
    },
    "docs/density.md": {
        "tidelog topic alter": _SINGLE + "test_the_density_of_a_topic_is_changed_and_shown"
    },
    "docs/formats.md": {"magic 2": _SHOWN + "a layout of bytes"},
    "docs/groups.md": {"kafka-configs": _KAFKA + "test_a_setting_of_one_group"},
    "docs/operations.md": {
        "tidelog serve --set workers": _SINGLE + "test_four_workers_serve_four_ports"
    },
    "docs/security.md": {
        "tidelog serve\n": _RECIPES + "test_the_recipe_of_a_laptop",
        "tidelog serve --tls-self-signed\n": _RECIPES + "test_the_recipe_of_a_laptop_with_tls",
        "echo hello": _RECIPES + "test_the_recipe_of_a_laptop_with_tls",
        "tidelog serve --secure --data-dir data --listen 0.0.0.0:9092\n": _RECIPES
        + "test_the_recipes_of_a_service_and_of_an_edge_box",
        "export KAFKA_BOOTSTRAP_SERVERS=localhost:9092\nexport TIDELOG": _RECIPES
        + "test_the_recipes_of_a_service_and_of_an_edge_box",
        "export TIDELOG_COMMAND_CONFIG": _RECIPES
        + "test_the_recipes_of_a_service_and_of_an_edge_box",
        "tidelog certs new": _RECIPES + "test_the_recipe_of_a_container",
        "(umask 077; cut": _RECIPES + "test_the_recipe_of_a_container",
        "config.providers": _SHOWN + "lines of a settings file",
        "kafka-configs.sh": "test: tests/compat/test_security_page.py"
        "::test_kafkas_tool_sets_the_store_of_a_listener",
        "cat > oauth.properties": _RECIPES + "test_the_recipe_of_an_identity_provider",
        "export KAFKA_BOOTSTRAP_SERVERS=localhost:9092\ntidelog topic": _RECIPES
        + "test_the_recipe_of_an_identity_provider",
        "cat > kerberos.properties": "test: tests/kerberos/test_gssapi.py"
        "::test_the_recipe_of_the_documentation",
        "(umask 077; openssl": _RECIPES + "test_the_recipe_of_delegation_tokens",
        "export KAFKA_BOOTSTRAP_SERVERS=localhost:9092 TIDELOG_COMMAND_CONFIG="
        "data/client.properties\ntidelog token": _RECIPES + "test_the_recipe_of_delegation_tokens",
        "tidelog serve --secure --data-dir data --listen 0.0.0.0:9092 --set metrics": _RECIPES
        + "test_the_recipe_of_the_metrics_port",
        "export KAFKA_BOOTSTRAP_SERVERS=localhost:9092 TIDELOG": _RECIPES
        + "test_the_recipe_of_the_metrics_port",
        "/var/log/tidelog": _SHOWN + "a file for logrotate, which needs root",
        "tidelog doctor": _SINGLE + "test_the_doctor_judges_a_secured_directory",
    },
    "docs/share-groups.md": {
        "kafka-configs": _KAFKA + "test_a_share_group_is_set_read_and_described",
        "tidelog share alter": _CLI,
    },
    "docs/spark.md": {
        "pip install": "not run: installs packages",
        "from tidelog import spark\n\nsession": _SPARK
        + "test_the_python_of_the_page_runs_as_written",
        "morning = ": _SPARK + "test_the_python_of_the_page_runs_as_written",
        "broker = ": _SPARK + "test_the_python_of_the_page_runs_as_written",
        'flights = (\n    session.read.format("tidelog")\n'
        '    .option("kafka.bootstrap.servers", "127.0.0.1:9092")\n'
        '    .option("subscribe", "flights")\n    .option("readFrom", "remote")': _SPARK
        + "test_history_from_the_bucket_is_read_as_written",
        "flights = ": _SPARK + "test_the_table_over_topic_and_lake_runs_as_written",
        "from tidelog import spark\n\nflights": _SPARK
        + "test_the_values_of_the_page_are_decoded_and_encoded_as_written",
        "schema = ": _SPARK + "test_the_values_of_the_page_are_decoded_and_encoded_as_written",
        "def warn(": _SPARK + "test_the_python_of_the_page_runs_as_written",
        "export AWS": "test: tests/pipeline/test_object_stores.py"
        "::test_topic_and_lake_are_one_table_and_the_commands_of_the_page_run",
        "tidelog spark bundle": "test: tests/pipeline/test_cluster.py"
        "::test_the_example_of_the_docs_archives_and_restores_on_standalone_workers_out_of_the_zip",
    },
    "docs/testing.md": {
        "DAYS_7_MS": _TESTING,
        "import pytest": _TESTING,
        "from confluent_kafka": _TESTING,
        "curl -X POST": "test: tests/integration/testing/test_faults.py"
        "::test_the_commands_of_the_page_make_faults_and_heal_them",
    },
    "docs/tiered-storage.md": {
        "pip install": _SINGLE + "test_a_topic_is_made_in_a_bucket_and_a_compacted_one",
        "tidelog topic create prices": _SINGLE
        + "test_a_topic_is_made_in_a_bucket_and_a_compacted_one",
        "tidelog serve --set remote.storage.url": _SINGLE + "test_a_standby_follows_a_lease",
        "tidelog serve --data-dir old": _BUCKET + "test_the_recipe_of_a_lost_machine",
        "tidelog serve --data-dir first": _BUCKET + "test_the_recipe_of_a_standby",
        "tidelog tier status": _SINGLE + "test_a_bucket_is_examined",
        "python -m tests.crash": _CRASH,
    },
    "docs/time.md": {
        "offset ": _SHOWN + "a log and its index",
        "curl 'localhost:9464/segments": _SINGLE
        + "test_the_metrics_port_answers_about_segments_and_times",
        "curl 'localhost:9464/histogram": _SINGLE
        + "test_the_metrics_port_answers_about_segments_and_times",
        "curl localhost:9464/clock": _SINGLE + "test_the_clock_is_asked_and_set_over_http",
        '{"wall_ms"': _SHOWN + "an answer",
        "tidelog serve": "test: tests/integration/cli/test_window.py"
        "::test_the_example_of_the_page_on_time",
        "newest timestamp": _SHOWN + "a rule",
    },
    "docs/how-to/move-from-kafka.md": {
        "tidelog import": _SINGLE + "test_a_directory_of_kafka_comes_and_goes",
        "tidelog export-kraft": _SINGLE + "test_a_directory_of_kafka_comes_and_goes",
    },
}
"""Page -> beginning of a block -> why it does not run here.

``test: FILE::NAME`` runs the block; ``similar: PATH`` does what it shows, not by its words; ``not
run: `` and ``shown: `` give a reason. The first beginning that fits counts; "" fits every block of
a page of which another test runs all.
"""


@dataclass(frozen=True)
class Block:
    """One block: its page, the number of its first line, its language ("" if indented)."""

    page: str
    line: int
    language: str
    text: str
    mark: str
    """What a comment ``<!-- block: ... -->`` before it says; "" if there is none."""


def pages() -> list[Path]:
    """The pages that a reader meets, in the order of their names."""
    root = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    return [*root, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> list[Block]:
    """Every block of every page."""
    found = []
    for path in pages():
        mark = ""
        for token in MarkdownIt().parse(path.read_text(encoding="utf-8")):
            if token.type == "html_block":
                said = re.fullmatch(r"<!-- block: (.+?) -->\s*", token.content)
                mark = said[1] if said else ""
            elif token.type in ("fence", "code_block"):
                assert token.map is not None
                found.append(
                    Block(
                        str(path.relative_to(ROOT)),
                        token.map[0] + 1,
                        token.info.strip() if token.type == "fence" else "",
                        token.content,
                        mark,
                    )
                )
                mark = ""
    return found


def verdict(block: Block) -> str:
    """``run``, or the class of a block that does not run here; "" if it has none."""
    for start, reason in CLASSES.get(block.page, {}).items():
        if block.text.startswith(start):
            return reason
    if block.page in RUN_PAGES:
        return f"{_SHOWN}output" if block.language == SHOWN else "run"
    return ""


def wrong_test(reason: str) -> str:
    """What is wrong with the test that a class names, "" if it exists."""
    path, _, name = reason.partition(": ")[2].partition("::")
    if not (ROOT / path).exists():
        return f"{path} does not exist"
    if name and f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8"):
        return f"{path} has no {name}"
    return ""


def commands(page: str, column: int) -> list[str]:
    """The commands in a column of the tables of a page, without those that name a file to give."""
    rows = re.findall(r"^\| (?!what )(.+) \|$", (ROOT / page).read_text(encoding="utf-8"), re.M)
    found = []
    for row in rows:
        cell = re.split(r"(?<!\\) ?\| ?", row)[column].strip()
        if cell.startswith("`") and "FILE" not in cell:
            found.append(cell.strip("`").replace("\\|", "|"))
    return found
