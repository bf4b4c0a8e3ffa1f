"""The types of the console's scripts: those of their JSDoc and of the browser, by TypeScript."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import toolchains

pytestmark = pytest.mark.browser

SCRIPTS = Path(__file__).parents[2] / "console" / "static"


def _problems(folder: Path, *scripts: Path) -> str:
    """What TypeScript says about `scripts`; the configuration is written into `folder`."""
    options = {
        "allowJs": True,
        "checkJs": True,
        "noEmit": True,
        "target": "es2022",
        "module": "es2022",
        "lib": ["es2023", "dom", "dom.iterable"],
        "moduleDetection": "force",
        "types": [],
    }
    config = folder / "tsconfig.json"
    files = [str(script) for script in scripts]
    config.write_text(json.dumps({"compilerOptions": options, "files": files}))
    folder_of_packages = toolchains.node_modules("typescript@5.9.3")
    compiler = folder_of_packages / "node_modules" / "typescript" / "bin" / "tsc"
    node = toolchains.find_program("node", "install Node.js 20 or newer")
    command = [node, str(compiler), "-p", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    assert (done.returncode == 0) == (done.stdout == "")
    return done.stdout


def test_the_scripts_have_no_type_errors(tmp_path: Path) -> None:
    scripts = sorted(SCRIPTS.glob("*.js"))
    assert len(scripts) > 30
    assert _problems(tmp_path, *scripts) == ""


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.js"
    wrong.write_text('document.querySelector("p").focus(1).nothing;\n')
    assert "error TS" in _problems(tmp_path, wrong)
