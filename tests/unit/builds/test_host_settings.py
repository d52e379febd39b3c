"""The host's settings as a shell in a build sees them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jaxsif.builds.host_settings import host_variables, write_settings

ALWAYS = {"UV_CACHE_DIR": "/mnt/cache/uv", "UV_NO_CONFIG": "1", "UV_LINK_MODE": "symlink"}
WITHOUT_PIP = {"PIP_CONFIG_FILE": os.devnull}  # that is, neither the site's nor the user's files

pytestmark = pytest.mark.starts_processes  # the shell that reads the result


def sourced(tmp_path: Path, environ: dict[str, str]) -> dict[str, str]:
    """The variables that settings.sh sets, as a shell sees them, without the certificates of this machine."""
    folder = tmp_path / "stage"
    folder.mkdir()
    write_settings(folder, host_variables(environ))
    script = f". {folder}/settings.sh; exec env -0"
    shown = subprocess.run(["/bin/sh", "-c", script], env={"PATH": os.defpath}, stdout=subprocess.PIPE, check=True)
    pairs = (entry.partition("=")[::2] for entry in os.fsdecode(shown.stdout).split("\0") if entry)
    return {
        name: value for name, value in pairs if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_", "SSL_CERT_FILE")
    }


def test_settings_of_a_plain_host(tmp_path: Path) -> None:
    assert sourced(tmp_path, {"EDITOR": "vi", **WITHOUT_PIP}) == ALWAYS


def test_proxies_and_indexes_pass_a_shell_unchanged(tmp_path: Path) -> None:
    environ = {
        "https_proxy": "http://user:it's $HOME&more@proxy.example.org:3128",
        "NO_PROXY": "localhost, .example.org",
        "UV_DEFAULT_INDEX": "https://index.example.org/simple",
    }
    assert sourced(tmp_path, {**environ, **WITHOUT_PIP}) == {**ALWAYS, **environ}


@pytest.mark.parametrize(
    ("settings", "environ", "expected"),
    [
        ({"index-url": "https://a.example.org/simple"}, {}, {"UV_DEFAULT_INDEX": "https://a.example.org/simple"}),
        (
            {"extra-index-url": "\n  https://b.example.org/simple\n  https://c.example.org/simple"},
            {},
            {"UV_INDEX": "https://b.example.org/simple https://c.example.org/simple"},
        ),
        (
            {"extra-index-url": "file:///srv/wheels https://b.example.org/it's"},
            {},
            {"UV_INDEX": "https://b.example.org/it's"},
        ),
        ({"timeout": "5"}, {}, {}),
        (
            {"index-url": "https://a.example.org/simple"},
            {"UV_DEFAULT_INDEX": "https://d.example.org/simple"},
            {"UV_DEFAULT_INDEX": "https://d.example.org/simple"},
        ),
        (
            {"index-url": "https://a.example.org/simple"},
            {"PIP_INDEX_URL": "https://e.example.org/simple"},
            {"UV_DEFAULT_INDEX": "https://e.example.org/simple"},
        ),
        (
            {"[install]\nindex-url": "https://f.example.org/100%"},
            {},
            {"UV_DEFAULT_INDEX": "https://f.example.org/100%"},
        ),
    ],
    ids=[
        "one index",
        "two more indexes",
        "a folder and a quote",
        "nothing for a build",
        "uv's own variable first",
        "pip's",
        "of install",
    ],
)
def test_pips_indexes_in_uvs_words(
    tmp_path: Path, settings: dict[str, str], environ: dict[str, str], expected: dict[str, str]
) -> None:
    # Folders, which a build does not see, stand over whatever /etc/pip.conf says.
    all_settings = {"index-url": "file:///none", "extra-index-url": "file:///none", **settings}
    (tmp_path / "pip.conf").write_text(
        "[global]\n" + "".join(f"{key} = {value}\n" for key, value in all_settings.items())
    )
    assert sourced(tmp_path, {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), **environ}) == {**ALWAYS, **expected}


def test_the_users_pip_settings_count_without_pip(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    path = tmp_path / ".config/pip/pip.conf"
    path.write_text("[global]\nindex-url = https://a.example.org/simple\n")
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": "/none"}
    assert host_variables(environ)["UV_DEFAULT_INDEX"] == "https://a.example.org/simple"
    path.write_text("no section")
    assert "UV_DEFAULT_INDEX" not in host_variables({**environ, "PIP_INDEX_URL": "file:///srv"})


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_that_a_variable_names_travel_along(tmp_path: Path, name: str) -> None:
    bundle = tmp_path / "site.pem"
    bundle.write_text("certificates of the site\n")
    write_settings(tmp_path, host_variables({name: str(bundle)}))
    assert (tmp_path / "ca.pem").read_text() == "certificates of the site\n"
    assert "export SSL_CERT_FILE=/mnt/ca.pem\n" in (tmp_path / "settings.sh").read_text()


def test_certificates_that_are_missing_are_passed_over(tmp_path: Path) -> None:
    bundle = tmp_path / "site.pem"
    bundle.write_text("certificates of the site\n")
    write_settings(
        tmp_path, host_variables({"SSL_CERT_FILE": str(tmp_path / "nowhere.pem"), "CURL_CA_BUNDLE": str(bundle)})
    )
    assert (tmp_path / "ca.pem").read_text() == "certificates of the site\n"
