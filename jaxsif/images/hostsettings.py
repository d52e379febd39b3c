"""The host's proxies, package index and certificate authorities, for a build to use and to forget."""

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
# Where Debian, Fedora and SUSE keep the bundle, unless a variable names another.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
_PASSED_ON = (
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INSECURE_HOST"),
)
# pip's setting -> uv's variable
_PIP_SETTINGS = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}


def write_settings(folder: Path, environ: Mapping[str, str]) -> None:
    """Write settings.sh, to be sourced in a build, and the certificate bundle, into `folder`."""
    variables = {name: environ[name] for name in _PASSED_ON if name in environ}
    for name, value in _read_pip_settings().items():
        variables.setdefault(name, value)
    candidates = [environ.get(name, "") for name in _CA_VARIABLES] + list(_CA_BUNDLES)
    bundle = next((path for path in candidates if path and Path(path).is_file()), None)
    if bundle:
        shutil.copyfile(bundle, folder / "ca.pem")
        variables["SSL_CERT_FILE"] = f"{BUILD_FOLDER}/ca.pem"
    variables["UV_CACHE_DIR"] = f"{BUILD_FOLDER}/cache"
    variables["UV_NO_CONFIG"] = "1"
    # Never checked against the source again: a read-only image cannot change, and a start reads half the files.
    variables["PYC_INVALIDATION_MODE"] = "UNCHECKED_HASH"
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    (folder / "settings.sh").write_text(text)


def _read_pip_settings() -> dict[str, str]:
    """pip's own index settings in uv's words; indexes in folders of this host cannot be reached from a build."""
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
