"""Making a layer: what is read of requirements, of uv's plan, and of files that lie over those of an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxsif.errors import JaxsifError
from jaxsif.layers import inside
from jaxsif.layers.make import _arrange
from jaxsif.layers.resolve import Resolution, explain, parse_plan, read_requirements, write_requirements
from jaxsif.layers.workspace import SEEN_AS

DRY_RUN = """\
Using Python 3.13.5 environment at: /opt/jax
Resolved 29 packages in 491ms
Would download 2 packages
Would uninstall 1 package
Would install 4 packages
 + absl-py==2.5.1
 - numpy==2.5.5
 + numpy==2.4.0
 + mine==1.0+local (from file://{SEEN_AS}/mine-1.0+local-py3-none-any.whl)
 + two @ file:///mnt/two-1.0-py3-none-any.whl
"""


def test_plan_of_uv() -> None:
    assert parse_plan(DRY_RUN.splitlines()) == Resolution(
        {
            "absl-py": "absl-py==2.5.1",
            "numpy": "numpy==2.4.0",
            "mine": "mine @ file://{SEEN_AS}/mine-1.0+local-py3-none-any.whl",
            "two": "two @ file:///mnt/two-1.0-py3-none-any.whl",
        },
        ("numpy",),
    )
    assert parse_plan(["Checked 2 packages in 12ms", "Would make no changes"]) == Resolution({}, ())


@pytest.mark.parametrize("text", ["", "something else", DRY_RUN.replace(" + absl-py==2.5.1", " + absl-py 2.5.1")])
def test_plan_that_cannot_be_read(text: str) -> None:
    with pytest.raises(JaxsifError, match=r"cannot read uv's output"):
        parse_plan(text.splitlines())


def test_packages_of_the_image_in_the_way_are_named() -> None:
    lines = [
        "Using Python 3.13.5 environment at: /opt/jax",
        "error: No solution found when resolving dependencies",
        "  cause: Because needy==1.0 depends on jax>=99 and jax==0.12.0.1, needy==1.0 cannot be used.",
        "         And because you require needy and old-jax==0.1, your requirements are unsatisfiable.",
    ]
    error = explain(lines, {"jax": "0.12.0.1", "numpy": "2.5.5", "old-jax": "0.2"})
    assert error.what == "the requirements conflict with jax 0.12.0.1 of the image:"
    assert error.message.splitlines() == lines[1:]
    assert error.hint.endswith("--allow-replace jax")
    other = explain(lines, {"numpy": "2.5.5"})
    assert (other.exit_code, other.what) == (2, "cannot resolve the requirements:")
    assert other.message.startswith("error: No solution")


@pytest.mark.parametrize(
    ("causes", "status"),
    [
        (("client error (Connect)", "dns error", "error resolving DNS"), 125),
        (("client error (Connect)", "tcp connect error", "Connection refused (os error 111)"), 125),
        (("HTTP status server error (503 Service Unavailable) for url (https://index.example/simple/flax/)",), 125),
        (("operation timed out",), 125),
        (("HTTP status client error (403 Forbidden) for url (https://index.example/simple/flax/)",), 2),
    ],
    ids=["no name service", "nobody listens", "out of order", "too slow", "forbidden"],
)
def test_an_index_that_cannot_be_reached_is_no_fault_of_the_request(causes: tuple[str, ...], status: int) -> None:
    lines = [
        "error: Request failed after 3 retries in 6.7s",
        "  cause: Failed to fetch: https://index.example/simple/flax/",
        *(f"  cause: {cause}" for cause in causes),
    ]
    error = explain(lines, {"jax": "0.12.0.1"})
    assert error.exit_code == status
    assert (error.what == "the package index cannot be reached:") == (status == 125)
    assert error.message.splitlines() == lines


def test_requirements_of_files_and_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(
        "# what we need\n\nflax>=0.10  # nnx\nrich==15.0.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
        "wheels/mine-1.0-py3-none-any.whl\nb @ file:///w/b%201.whl\na @ https://example.org/a#sub-1.0-py3-none-any.whl\n"
    )
    assert read_requirements([str(file)], ["optax", "flax>=0.10"]) == (
        "flax>=0.10",
        "rich==15.0.0 --hash=sha256:00 --hash=sha256:01",
        str(tmp_path / "wheels/mine-1.0-py3-none-any.whl"),
        "/w/b 1.whl",
        "a @ https://example.org/a#sub-1.0-py3-none-any.whl",
        "optax",
    )


@pytest.mark.parametrize("line", ["-r more.txt", "-r sub/more.txt", "--index-url https://example.org", "-e"])
def test_options_in_requirement_files(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"flax\n{line}\n")
    with pytest.raises(JaxsifError, match=f"not a requirement: {line}"):
        read_requirements([str(tmp_path / "r.txt")], [])


def test_bad_requirement_files(tmp_path: Path) -> None:
    with pytest.raises(JaxsifError, match=r"cannot read requirements .*: No such file"):
        read_requirements([str(tmp_path / "r.txt")], [])
    (tmp_path / "r.txt").write_bytes(b"\xff")
    with pytest.raises(JaxsifError, match=r"cannot read requirements .*: it is not text"):
        read_requirements([str(tmp_path / "r.txt")], [])
    with pytest.raises(JaxsifError, match="no requirements"):
        read_requirements([], [])


def test_requirements_as_uv_gets_them(tmp_path: Path) -> None:
    wheel = tmp_path / "mine-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    (tmp_path / "scratch").mkdir()
    write_requirements(["flax", str(wheel), "rich==15.0.0 --hash=sha256:00"], tmp_path / "scratch")
    assert {path.name: path.read_text() for path in (tmp_path / "scratch").iterdir()} == {
        "requirements.txt": f"flax\n{SEEN_AS}/mine-1.0-py3-none-any.whl\nrich==15.0.0 --hash=sha256:00\n",
        "hashes.txt": "rich==15.0.0 --hash=sha256:00\n",
        "mine-1.0-py3-none-any.whl": "wheel",
    }
    with pytest.raises(JaxsifError, match=r"wheel not found: /nowhere/a\.whl"):
        write_requirements(["/nowhere/a.whl"], tmp_path / "scratch")


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_uv_installed_goes_where_the_image_has_such_files(tmp_path: Path) -> None:
    for name in ("lib/python3.13/site-packages/a.py", "bin/a", "share/man/a.1", "lib/python3.13/extra", "lib64/b"):
        write(tmp_path / "prefix" / name)
    paths = {"purelib": "/usr/local/lib/python3.13/dist-packages", "scripts": "/usr/local/bin", "data": "/usr/local"}
    _arrange(tmp_path / "prefix", tmp_path / "tree", {**paths, "platlib": paths["purelib"]})
    assert files(tmp_path / "tree") == [
        "usr/local/bin/a",
        "usr/local/lib/python3.13/dist-packages/a.py",
        "usr/local/lib/python3.13/extra",
        "usr/local/lib64/b",
        "usr/local/share/man/a.1",
    ]


def test_files_of_the_image_that_would_be_hidden(tmp_path: Path) -> None:
    image, tree = tmp_path / "image", tmp_path / "tree"
    write(image / "same.py", "x = 1")
    write(image / "other.py", "x = 1")
    write(image / "real/a.py")
    (image / "link").symlink_to("real")
    for name, text in {"same.py": "x = 1", "other.py": "x = 2", "new/a.py": "", "link/b.py": ""}.items():
        write(Path(f"{tree}{image}") / name, text)
    hidden = {name for name in files(Path(f"{tree}{image}")) if inside.hides(str(tree), f"{image}/{name}")}
    assert hidden == {"other.py", "link/b.py"}


def test_metadata_of_a_replaced_package_goes_whole(tmp_path: Path) -> None:
    tree = str(tmp_path)
    write(tmp_path / "site/b-1.dist-info/METADATA")
    assert inside.outermost("/site/a-1.dist-info/licenses/LICENSE", tree) == "/site/a-1.dist-info"
    assert inside.outermost("/site/b-1.dist-info/RECORD", tree) == "/site/b-1.dist-info/RECORD"
    assert inside.outermost("/site/a/__init__.py", tree) == "/site/a/__init__.py"


def test_modules_of_own_packages_are_marked(tmp_path: Path) -> None:
    site = "/opt/jax/lib/python3.13/site-packages"
    names = ["mylab/__init__.py", "mylab/deep/a.py", "one.py", "__pycache__/one.pyc", "mylab-1.dist-info/RECORD"]
    inside.mark_own("lab", str(tmp_path), [["/opt/jax/bin/mylab", *(f"{site}/{name}" for name in names)]])
    assert files(tmp_path) == ["opt/jaxsif/own/mylab", "opt/jaxsif/own/one.py"]
    assert (tmp_path / "opt/jaxsif/own/mylab").read_text() == "lab"


def test_names_as_indexes_write_them() -> None:
    assert [inside.normalize(name) for name in ("Orbax_Checkpoint", "ruamel.yaml", "a-_.b")] == [
        "orbax-checkpoint",
        "ruamel-yaml",
        "a-b",
    ]
