"""Ray is not needed for anything but `--on ray`, which says how to install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_nothing_else_imports_ray() -> None:
    code = "import sys, cbm, cbm.jobs, cbm.cli.main, cbm.discovery.discover, cbm.cli.sweep; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_without_ray_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'ray' else real(name, *a)\n"
        "from cbm.cli.main import main\n"
        f"sys.exit(main(['discover', 'log.npz', '--on', 'ray', '--out', {str(tmp_path / 'run')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and 'pip install "cbm-rl[ray]"' in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_sweep_on_this_machine_does_without_it(tmp_path: Path) -> None:
    """Whoever imports Ray, also in a worker or a run, gets an error."""
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "ray.py").write_text("raise SystemExit('ray was imported')")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(trap), os.environ.get("PYTHONPATH", "")])}
    words = ["sweep", "collect", "contact", "--steps", "20", "--workers", "1", "--quiet", "--out", str(tmp_path / "s")]
    done = subprocess.run([sys.executable, "-m", "cbm.cli", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "1 of 1 run done" in done.stdout, done.stderr
