"""Where jaxsif finds what comes with it: in a clone, in an installation, and in a wheel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jaxsif import __version__
from jaxsif.errors import HostError
from jaxsif.installation import PACKAGE, find_data, find_share, wheel_share

ROOT = Path(__file__).parents[2]
# Where containers/ is in each, and the package.
PLACES = {
    "clone": ("", "jaxsif"),
    "installation": ("", "lib/jaxsif"),
    "wheel": ("lib/python3/site-packages/jaxsif/share", "lib/python3/site-packages/jaxsif"),
}


@pytest.mark.parametrize("place", PLACES)
def test_data_of_each_place(tmp_path: Path, place: str) -> None:
    share, package = (tmp_path / folder for folder in PLACES[place])
    package.mkdir(parents=True)
    with pytest.raises(HostError, match="no containers/ next to jaxsif"):
        find_share(str(package))
    (share / "containers").mkdir(parents=True)
    (share / "containers/jaxsif.def").touch()
    assert find_share(str(package)) == str(share)
    assert wheel_share(str(package)) == (str(share) if place == "wheel" else None)


def test_data_of_this_clone() -> None:
    assert find_share() == str(ROOT)
    assert os.path.isfile(find_data("containers/sbom.py"))
    assert wheel_share(PACKAGE) is None


def test_citation_names_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
