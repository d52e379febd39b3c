"""The host's proxies, package index, Debian mirror and certificate authorities: a build uses them,
but the image does not keep them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from contextlib import suppress
from pathlib import Path

from jaxsif import process

BUILD_FOLDER = "/mnt"  # the scratch folder in the container of a build or layer
CACHE_FOLDER = f"{BUILD_FOLDER}/cache"  # the cache in that container
# The bundles of Debian, Fedora and SUSE, unless a variable names another.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
_PASSED_ON = (
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INSECURE_HOST"),
)
# pip's setting -> uv's variable
_PIP_SETTINGS = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}


def host_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return proxies, package indexes and certificates of this host, as variables for uv and most
    other programs.
    """
    named = {name: environ[name] for name in _PASSED_ON if name in environ}
    variables = {**_read_pip_settings(environ), **named, "UV_NO_CONFIG": "1"}
    candidates = [*(environ.get(name, "") for name in _CA_VARIABLES), *_CA_BUNDLES]
    bundle = next(filter(os.path.isfile, candidates), "")
    return {**variables, "SSL_CERT_FILE": bundle} if bundle else variables


def copy_certificates(host: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Copy the certificate bundle into `folder`, which is BUILD_FOLDER in the container; return
    `host`, from `host_variables`, with the bundle's path in the container.
    """
    if "SSL_CERT_FILE" not in host:
        return dict(host)
    shutil.copyfile(host["SSL_CERT_FILE"], folder / "ca.pem")
    return {**host, "SSL_CERT_FILE": f"{BUILD_FOLDER}/ca.pem"}


def write_settings(folder: Path, host: Mapping[str, str]) -> None:
    """Write settings.sh, for a build to source, and the certificate bundle into `folder`. `host` is
    from `host_variables`.
    """
    # Links, until `assemble` replaces them with the files.
    places = {"UV_CACHE_DIR": f"{CACHE_FOLDER}/uv", "UV_LINK_MODE": "symlink"}
    variables = {**copy_certificates(host, folder), **places}
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    (folder / "settings.sh").write_text(text)


def _read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the index settings of pip, which need not be installed, as variables for uv, without
    indexes in folders of this host, which a build cannot reach.
    """
    home, given = environ.get("HOME", ""), environ.get("PIP_CONFIG_FILE", "")
    system = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    user = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    folders = (*(f"{one}/pip" for one in system), "/etc", f"{home}/.pip", f"{user}/pip", sys.prefix)
    files = RawConfigParser()
    with suppress(Error, UnicodeDecodeError):
        files.read([] if given == os.devnull else [*(f"{one}/pip.conf" for one in folders), given])
    settings = {}
    for key, name in _PIP_SETTINGS.items():
        in_files = (files.get(section, key, fallback="") for section in ("install", "global"))
        values = (environ.get(f"PIP_{key.upper().replace('-', '_')}"), *in_files)
        urls = [url for url in next(filter(None, values), "").split() if url[:5] != "file:"]
        if urls:
            settings[name] = " ".join(urls)
    return settings


def apt_mirror() -> str | None:
    """Return the Debian mirror of this host's own apt, or None if it has none."""
    wanted = ["Identifier: Packages", "Origin: Debian", "Label: Debian", "Component: main"]
    found = _output("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).split()
    return found[0].rstrip("/") if found else None


def apt_settings() -> str:
    """Return this host's apt settings for downloads (proxies, certificates, date checks) as
    apt.conf text.
    """
    kept = ("Acquire::Check-", "Acquire::http", "Acquire::https", "Acquire::Retries")
    lines = _output("apt-config", "dump").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(kept))


def _output(*argv: str) -> str:
    """Return the standard output of a command, or '' if the host does not have it or it fails."""
    try:
        return process.output(*argv)
    except (OSError, subprocess.CalledProcessError):
        return ""
