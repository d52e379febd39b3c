"""The folder that a module names as the launcher's, where the launcher came in a wheel."""

from __future__ import annotations

from pathlib import Path

from jaxsif.modules.launcher import is_installed, link_launcher


def test_folder_leads_to_the_wheel(tmp_path: Path) -> None:
    home, share = tmp_path / "sw/jaxsif/0.1.0", tmp_path / "it's/jaxsif/share"
    (share / "slurm/__pycache__").mkdir(parents=True)
    (share / "slurm/a.py").touch()
    for _ in range(2):  # the second time as after another `pip install`
        link_launcher(home, str(share), str(share.parents[1]), "/venv/bin/python")
    assert [path.name for path in (home / "slurm").iterdir()] == ["a.py"]
    assert not (home / "slurm").is_symlink()  # which `cp -r` would copy
    command = (home / "bin/jaxsif").read_text()
    assert command.splitlines()[0] == "#!/venv/bin/python -IS"
    assert repr(str(tmp_path / "it's")) in command
    compile(command, "jaxsif", "exec")
    assert (home / "bin/jaxsif").stat().st_mode & 0o111
    assert not is_installed(home)
