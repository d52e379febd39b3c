"""The host's proxies, package index, Debian mirror and certificate authorities, for a build to use
and to forget.
"""

from __future__ import annotations

import ast
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jaxsif import process

BUILD_FOLDER = "/mnt"  # where a build sees the folder that `write_settings` fills
CACHE_FOLDER = f"{BUILD_FOLDER}/cache"  # where it sees the cache
# Where Debian, Fedora and SUSE keep the bundle, unless a variable names another.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
_PASSED_ON = (
    *(
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
    ),
    *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INSECURE_HOST"),
)
# pip's setting -> uv's variable
_PIP_SETTINGS = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}


def host_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Proxies, package indexes and certificates of this host, as variables of uv and of most other
    programs.
    """
    variables = {name: environ[name] for name in _PASSED_ON if name in environ}
    for name, value in _read_pip_settings().items():
        variables.setdefault(name, value)
    candidates = [environ.get(name, "") for name in _CA_VARIABLES] + list(_CA_BUNDLES)
    bundle = next((path for path in candidates if path and Path(path).is_file()), None)
    if bundle:
        variables["SSL_CERT_FILE"] = bundle
    variables["UV_NO_CONFIG"] = "1"
    return variables


def write_settings(folder: Path, host: Mapping[str, str]) -> None:
    """Write settings.sh, to be sourced in a build, and the certificate bundle, into `folder`.

    `host` is what `host_variables` found.
    """
    variables = dict(host)
    if "SSL_CERT_FILE" in variables:
        shutil.copyfile(variables["SSL_CERT_FILE"], folder / "ca.pem")
        variables["SSL_CERT_FILE"] = f"{BUILD_FOLDER}/ca.pem"
    variables["UV_CACHE_DIR"] = f"{CACHE_FOLDER}/uv"
    variables["UV_LINK_MODE"] = "symlink"  # until `assemble` puts the files in their places
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    (folder / "settings.sh").write_text(text)


def _read_pip_settings() -> dict[str, str]:
    """pip's own index settings in uv's words; indexes in folders of this host cannot be reached
    from a build.
    """
    try:
        listing = process.output(sys.executable, "-m", "pip", "config", "list")
    except (OSError, subprocess.CalledProcessError):
        return {}  # no pip here, so no settings of it
    settings = {}
    for line in listing.splitlines():
        key, _, quoted = line.partition("=")
        variable = _PIP_SETTINGS.get(key.rsplit(".", 1)[-1])
        if not variable:
            continue
        # pip prints Python literals: many indexes come as 'https://a\\nhttps://b'.
        urls = [url for url in ast.literal_eval(quoted).split() if not url.startswith("file:")]
        if urls:
            settings[variable] = " ".join(urls)
    return settings


def apt_mirror() -> str | None:
    """The Debian mirror that this host's own apt uses; None where it uses none."""
    wanted = ["Identifier: Packages", "Origin: Debian", "Label: Debian", "Component: main"]
    found = _apt_output("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).split()
    return found[0].rstrip("/") if found else None


def apt_settings() -> str:
    """How this host's apt fetches (proxies, certificates, checks of dates), as apt.conf text."""
    kept = ("Acquire::Check-", "Acquire::http", "Acquire::https", "Acquire::Retries")
    return "".join(
        f"{line}\n"
        for line in _apt_output("apt-config", "dump").splitlines()
        if line.startswith(kept)
    )


def _apt_output(*argv: str) -> str:
    """Standard output of a command of apt's; '' on a host without apt, or one whose apt tells
    nothing.
    """
    if not shutil.which(argv[0]):
        return ""
    try:
        return process.output(*argv)
    except subprocess.CalledProcessError:
        return ""
