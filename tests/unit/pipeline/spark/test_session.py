"""Which Python Spark starts for its workers, and what is done about a wrong one."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")

from pipeline.errors import BadOptions
from pipeline.spark.session import _check_python


def session_of(master: str, program: str) -> Any:
    return SimpleNamespace(_sc=SimpleNamespace(master=master, pythonExec=program))


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def link_to(folder: Path, program: str) -> str:
    """A Python of the same name elsewhere, which has other packages."""
    path = folder / "python3"
    path.symlink_to(program)
    return str(path)


def test_a_local_session_gets_the_python_that_it_runs_in(tmp_path: Path) -> None:
    """Without an activated environment it is the machine's, which knows no tidelog."""
    for program in (link_to(tmp_path, os.path.realpath(sys.executable)), "python-of-nowhere"):
        session = session_of("local[2]", program)
        _check_python(session)
        assert session._sc.pythonExec == sys.executable


def test_a_cluster_whose_python_lacks_the_package_is_refused_with_the_cure(tmp_path: Path) -> None:
    for program in (link_to(tmp_path, os.path.realpath(sys.executable)), "python-of-nowhere"):
        session = session_of("spark://host:7077", program)
        with pytest.raises(BadOptions, match=f"set PYSPARK_PYTHON={sys.executable}"):
            _check_python(session)
        assert session._sc.pythonExec == program


def test_a_python_that_was_named_is_not_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = link_to(tmp_path, os.path.realpath(sys.executable))
    monkeypatch.setenv("PYSPARK_PYTHON", program)
    with pytest.raises(BadOptions, match=f"Spark starts {program}"):
        _check_python(session_of("local[2]", program))


def test_another_python_that_has_the_package_is_left_alone(tmp_path: Path) -> None:
    wrapper = tmp_path / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    session = session_of("spark://host:7077", str(wrapper))
    _check_python(session)
    _check_python(session_of("local[2]", sys.executable))
    assert session._sc.pythonExec == str(wrapper)


def test_a_session_of_spark_connect_is_the_servers_business() -> None:
    _check_python(cast("Any", SimpleNamespace()))
