"""The import graph stays a plan that one can read: no circles, few floors, folders of a size."""

from tests.tidy.imports import children, circles, floors, import_graph, modules_per_folder
from tests.tidy.tree import PACKAGES, python_files, source

STORAGE_FLOORS_MAX = 7
MODULES_MAX = 16
CROWDED = {  # one module for each API
    "protocol/api": 76,
    "broker/handlers": 76,
}
DENSITY_MODULES = {  # the whole kind of auxiliary index
    "storage/segment/density.py",
    "storage/audit/density.py",
}
DENSITY_LINES = {  # where it is registered: its file suffix, its setting, an import and an entry
    "storage/disk/file_names.py": 2,
    "config/topic_keys.py": 2,
    "storage/log/auxiliary_indexes.py": 2,
    "storage/audit/auxiliary.py": 4,
}


def test_no_module_imports_itself_through_others() -> None:
    assert circles(import_graph()) == []


def test_no_sub_package_imports_itself_through_others() -> None:
    graph = import_graph()
    packages = {name.rpartition(".")[0] for name in graph} - {""}
    found = {package: circles(children(graph, package)) for package in sorted(packages)}
    assert found.keys() >= {"broker", "broker.security", "cli", "storage"}
    assert {package: circle for package, circle in found.items() if circle} == {}


def test_storage_has_few_floors() -> None:
    assert floors(children(import_graph(), "storage")) <= STORAGE_FLOORS_MAX


def test_a_circle_would_be_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [["a", "b", "c"]]
    assert floors({"a": {"b"}, "b": set(), "c": {"a"}}) == 3


def test_folders_can_be_taken_in_at_a_glance() -> None:
    crowded = {
        folder: count
        for folder, count in modules_per_folder().items()
        if count > CROWDED.get(folder, MODULES_MAX)
    }
    assert crowded == {}


def test_the_rest_of_the_code_reaches_density_indexes_through_their_interface() -> None:
    lines = {
        str(path): sum("density" in line.lower() for line in source(path).splitlines())
        for path in python_files(*PACKAGES)
    }
    knowing = {path: count for path, count in lines.items() if count}
    assert knowing.keys() >= DENSITY_MODULES
    assert {p: n for p, n in knowing.items() if p not in DENSITY_MODULES} == DENSITY_LINES
