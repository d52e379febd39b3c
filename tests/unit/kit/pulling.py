"""A download from the web server of the tests."""

from __future__ import annotations

from pathlib import Path

from kit.webserver import Served

from jaxsif.errors import HostError
from jaxsif.images.download import Watch
from jaxsif.images.pull import ANY, Expected, pull_by_http


class Pull:
    """One call, and what it said."""

    def __init__(self, served: Served, folder: Path, expected: Expected = ANY, timeout: float = 5) -> None:
        self.notes: list[str] = []
        self.counts: list[tuple[int, int | None]] = []
        self.error = ""
        self.target = folder / "jax.sif"

        def count(done: int, total: int | None) -> None:
            self.counts.append((done, total))

        try:
            watch = Watch(timeout, self.notes.append, count)
            pull_by_http(served.address, str(self.target), expected, watch)
        except HostError as error:
            self.error = error.render().replace(served.address, "URL").replace(f"{folder}/", "")
        self.files = sorted(path.name for path in folder.iterdir())
