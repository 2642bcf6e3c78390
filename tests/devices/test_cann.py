"""Where CANN is, from folders and variables as CANN's installer leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph2torch.devices import cann


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No variable, and a home folder without anything."""
    for name in cann.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cann, "USUAL", ("~/Ascend/ascend-toolkit",))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_cann(nowhere: Path) -> None:
    found = cann.find()
    assert (found.home, found.version, found.set_env, found.active) == ("", "", "", False)
    assert not found.variables


def test_installed_but_not_sourced(nowhere: Path) -> None:
    folder = nowhere / "Ascend" / "ascend-toolkit"
    (folder / "latest").mkdir(parents=True)
    (folder / "set_env.sh").touch()
    (folder / "latest" / "version.cfg").write_text("# version: 1.0\nruntime_running_version=[7.5.0.1.129:8.0.RC3]\n")
    found = cann.find()
    assert found.home == str(folder) and found.set_env == str(folder / "set_env.sh") and not found.active
    assert found.version


def test_sourced(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = nowhere / "latest"
    (home / "x86_64-linux").mkdir(parents=True)
    (nowhere / "set_env.sh").touch()
    (home / "x86_64-linux" / "ascend_toolkit_install.info").write_text("package_name=Ascend-cann-toolkit\nversion=8.1.RC1\n")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(home))
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0\x1b[31m")
    found = cann.find()
    assert found.active and found.version == "8.1.RC1" and found.set_env == str(nowhere / "set_env.sh")
    assert found.variables["ASCEND_RT_VISIBLE_DEVICES"] == "0\\x1b[31m"
