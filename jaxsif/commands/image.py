"""jaxsif image …: build, sign, download and inspect images."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from jaxsif.commands import JSON, CommandGroup, argument, one_of
from jaxsif.errors import HostError, JaxsifError
from jaxsif.images.diff import compare_images, comparison_as_json, render_comparison
from jaxsif.images.execute import read_sbom
from jaxsif.images.file import digest, find_image
from jaxsif.images.inspect import facts_as_json, inspect_image, inspect_metadata, render_fact
from jaxsif.images.listing import HEADING, find_folder, list_images, render_item
from jaxsif.images.signing import check_key, find_signer, is_fingerprint, sign, verify
from jaxsif.runtime import require_runtime
from jaxsif.screen import note, print_json, print_table, show_progress
from jaxsif.settings.config import resolve_image
from jaxsif.settings.options import COUNT_FROM_0, PATH, Setting
from jaxsif.text import printable

VERBS = CommandGroup()

# Options of several commands.
_IMAGE = argument("image", nargs="?", metavar="IMAGE", help="the image (JAX_IMAGE, else ./jax.sif)")
_SIF = argument("image", metavar="IMAGE", help="a .sif file")
_SOURCE = argument(
    "--source",
    metavar="FOLDER",
    help="the checkout with containers/ (this folder, else this launcher's own files)",
)


@VERBS.verb(
    "build",
    """\
Build an image, unless one built from the same inputs already exists.

examples:
  jaxsif image build
  jaxsif image build --flavour cpu --base docker://python:3.13-slim
""",
    argument(
        "--flavour", default="cuda12", help="a file in containers/flavours, without .args (cuda12)"
    ),
    _SOURCE,
    argument(
        "--output",
        default="build/images",
        metavar="FOLDER",
        help="the folder for finished images (build/images)",
    ),
    argument(
        "--cache",
        default="build/cache",
        metavar="FOLDER",
        help="the folder for base systems and wheels (build/cache)",
    ),
    argument(
        "--base", metavar="ADDRESS", help="build on docker://… or on a local image that has apt"
    ),
    argument("--force", action="store_true", help="build even if no input has changed"),
)
def _build(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    from jaxsif.builds.build import BuildOptions, build_image
    from jaxsif.builds.recipe import choose_source, read_recipe

    recipe = read_recipe(choose_source(arguments.source), arguments.flavour)
    options = BuildOptions(
        runtime=require_runtime(environ),
        output=Path(arguments.output).resolve(),
        cache=Path(arguments.cache).resolve(),
        base=arguments.base,
        force=arguments.force,
    )
    build_image(recipe, options, environ, lambda line: print(line, flush=True))


_PLATFORMS = ("x86_64", "aarch64")


@VERBS.verb(
    "lock",
    """\
Resolve containers/locks/FLAVOUR.in into FLAVOUR.txt (x86_64) and
FLAVOUR-aarch64.txt: every package of the image, with version and hashes.
Locked versions are kept unless you say otherwise.

examples:
  jaxsif image lock --upgrade
        all flavours, to the newest versions
  jaxsif image lock --flavour cuda12 --jax 0.11.0
        a different version of JAX
  jaxsif image lock --check
        check that every lock has what its flavour needs
""",
    argument("--flavour", metavar="NAME", help="a file in containers/locks, without .in (all)"),
    argument("--platform", choices=_PLATFORMS, help="the machine's architecture (both)"),
    argument("--jax", metavar="VERSION", help="this version of JAX"),
    argument("--python", default="3.13", metavar="VERSION", help="the image's Python (3.13)"),
    argument(
        "--upgrade", action="store_true", help="use the newest versions instead of the locked ones"
    ),
    argument(
        "--check", action="store_true", help="change nothing; exit status 1 if a lock would change"
    ),
    JSON,
    _SOURCE,
    epilog="""\
exit status:
    0  done; with --check: no lock would change
    1  with --check: a lock would change
    2  a bad request
  125  a lock cannot be resolved; none is changed
""",
)
def _lock(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from jaxsif.builds.lock import (
        LockOptions,
        resolve_locks,
        select_flavours,
        write_locks,
    )
    from jaxsif.builds.recipe import choose_source

    root = choose_source(arguments.source)
    flavours = select_flavours(root, arguments.flavour)
    platforms = [arguments.platform] if arguments.platform else _PLATFORMS
    options = LockOptions(arguments.upgrade, arguments.jax, arguments.python)
    print(
        f"resolving {', '.join(flavours)} for {', '.join(platforms)}", file=sys.stderr, flush=True
    )
    locks = resolve_locks(root, flavours, platforms, options, environ)
    if arguments.json:
        print_json({"locks": [{"file": lock.path.name, "changed": lock.changed} for lock in locks]})
    else:
        change = "would change" if arguments.check else "changed"
        for lock in locks:
            print(f"{lock.path.name}: {change if lock.changed else 'unchanged'}{lock.note}")
    if arguments.check:
        return int(any(lock.changed for lock in locks))
    write_locks(locks)
    return 0


@VERBS.verb(
    "inspect",
    """\
Show an image's versions, driver, digest, signers and origin. The image may be
a SIF file or an unpacked image, built by jaxsif or not. jaxsif lists
signatures, but does not verify them.

With --definition, print only the definition file that the image was built from.

examples:
  jaxsif image inspect
        the image of the loaded module
  jaxsif image inspect --json ngc-jax.sif
  jaxsif image inspect --definition ngc-jax.sif >ngc-jax.def
""",
    _IMAGE,
    one_of(
        JSON,
        argument(
            "--definition",
            action="store_true",
            help="print the definition file that the image was built from",
        ),
    ),
)
def _inspect(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    image = find_image(resolve_image(arguments.image, environ, note, "IMAGE")).path
    if arguments.definition:
        _print_definition(image, environ)
        return
    facts = inspect_image(image, environ)
    if arguments.json:
        facts += inspect_metadata(image, environ)
        print_json(facts_as_json(facts))
    else:
        print_table(list(map(render_fact, facts)), environ)


def _print_definition(image: str, environ: Mapping[str, str]) -> None:
    """Print the definition with its tabs; raise HostError for an image that has none."""
    from jaxsif.images.spython_client import read_metadata  # spython takes 30 ms

    definition = read_metadata(image, environ).definition
    if not definition:
        raise HostError(f"image has no definition: {image}", hint="jaxsif image inspect --json")
    for line in definition.splitlines():
        print("\t".join(map(printable, line.split("\t"))))


@VERBS.verb(
    "diff",
    """\
Print the differences between two images: packages, labels, and lines of the
definition. Each may be a SIF file or an unpacked image. '-' marks what only A
has, '+' what only B has, and '~' marks names whose values differ.

examples:
  jaxsif image diff old.sif new.sif
  jaxsif image diff --json old.sif sandbox/
""",
    argument("a", metavar="A", help="an image"),
    argument("b", metavar="B", help="another image"),
    JSON,
    epilog="""\
exit status:
  0  no difference     1  a difference
  2  a bad request   125  an image cannot be read
""",
)
def _diff(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    a = find_image(Setting(arguments.a, "A")).path
    b = find_image(Setting(arguments.b, "B")).path
    comparison = compare_images(a, b, require_runtime(environ), environ)
    if arguments.json:
        print_json(comparison_as_json(comparison))
    else:
        for line in render_comparison(comparison):
            print(printable(line))
    return int(not comparison.equal)


@VERBS.verb(
    "convert",
    """\
Convert a Dockerfile into a definition file that builds on an image with JAX
instead of the Dockerfile's own base image. Lines that cannot be converted
faithfully are refused, each with the reason.

examples:
  jaxsif image convert Dockerfile >lab.def
        then: apptainer build lab.sif lab.def
  jaxsif image convert --image jax.sif Dockerfile
""",
    argument("file", metavar="FILE", help="a Dockerfile"),
    argument("--image", metavar="PATH", help="the image to build on (JAX_IMAGE, else ./jax.sif)"),
    argument("--target", metavar="STAGE", default="", help="the stage to convert (the last)"),
    argument(
        "--context",
        metavar="FOLDER",
        default="",
        help="the folder that COPY copies from (FILE's folder)",
    ),
    JSON,
    epilog="""\
exit status:
    0  converted
    2  a line is refused, or a bad request
  125  a file or an image cannot be read
""",
)
def _convert(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from jaxsif.builds.convert import convert_file, refuse
    from jaxsif.builds.definition import converted_as_json

    image = find_image(resolve_image(arguments.image, environ, note))
    found = convert_file(arguments.file, image.path, arguments.target, arguments.context)
    if arguments.json:
        print_json(converted_as_json(*found))
    elif found.definition:
        note(*found.notes())
        print(found.definition, end="")
    if found.refused:
        error = refuse(arguments.file, found.refused)
        if not arguments.json:
            raise error
        return error.exit_code
    return 0


@VERBS.verb(
    "sbom",
    """\
Print the bill of materials of an image (a SIF file, or an unpacked one) as
CycloneDX 1.6: Debian packages, Python, and Python's packages, with versions
and licences. The image's own Python makes the list; it must be 3.8 or later.

examples:
  jaxsif image sbom >sbom.cdx.json
        of the image of the loaded module
  jaxsif image sbom build/images/jax-0.12.0.1-cuda12.sif >sbom.cdx.json
""",
    _IMAGE,
    argument("--json", action="store_true", help="print JSON (the default)"),
)
def _sbom(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    image = find_image(resolve_image(arguments.image, environ, note, "IMAGE"))
    sys.stdout.write(read_sbom(require_runtime(environ), image.path))


@VERBS.verb(
    "list",
    """\
List the images in a folder: flavour, JAX, size, date, and digest if known.

examples:
  jaxsif image list
  jaxsif image list --folder /sw/jaxsif/images
""",
    argument(
        "--folder",
        metavar="FOLDER",
        help="the folder with the images (JAXSIF_IMAGES, else build/images)",
    ),
    JSON,
)
def _list(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    items = list_images(find_folder(arguments.folder, environ), environ)
    for item in items:
        if item.problem:
            note(item.problem)
    if arguments.json:
        print_json([item._asdict() for item in items])
    else:
        print_table(list(map(render_item, items)), environ, HEADING)


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _hexadecimal(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 64 hexadecimal digits")
    return text.lower()


def _digest(text: str) -> str:
    return "sha256:" + _hexadecimal(text[7:] if text.startswith("sha256:") else text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return float(text)


@VERBS.verb(
    "pull",
    """\
Download an image, check it, and move it into place.

After a network error or Ctrl-C, run the same command again to resume the
download.

examples:
  jaxsif image pull https://example.org/jax.sif --digest sha256:35b74ab9…
  jaxsif image pull oras://registry.example.org/images/jax:0.12 --output jax.sif
""",
    argument("url", metavar="URL", help="https://…, http://…, oras://… or docker://…"),
    argument("--output", metavar="PATH", help="the file to write, or its folder (.)"),
    argument(
        "--digest",
        type=_digest,
        metavar="sha256:HEX",
        help="the digest that the image must have; see jaxsif image inspect",
    ),
    argument(
        "--sha256",
        type=_hexadecimal,
        metavar="HEX",
        help="the SHA-256 that the whole file must have",
    ),
    argument("--force", action="store_true", help="replace an existing file"),
    argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long to wait for the server before the next try (30)",
    ),
    JSON,
)
def _pull(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    from jaxsif.images import pull  # requests takes 100 ms
    from jaxsif.images.download import Watch

    url, expected = arguments.url, pull.Expected(arguments.digest, arguments.sha256)
    target = pull.find_target(url, arguments.output)
    found = None if arguments.force else pull.find_there(target, expected)
    if found:
        _print_pulled(arguments.json, target, found, "already exists")
        return
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and expected == pull.ANY:
        print(
            "jaxsif: warning: anyone on the network path can change a download over http; pass"
            " --digest",
            file=sys.stderr,
        )
    if parts.scheme in pull.FROM_REGISTRY:
        found = pull.pull_by_runtime(require_runtime(environ), url, target, expected, environ)
    else:
        with show_progress("jaxsif", environ) as update:
            found = pull.pull_by_http(url, target, expected, Watch(arguments.timeout, note, update))
    _print_pulled(arguments.json, target, found, _PULLED)


_PULLED = "was pulled"


def _print_pulled(as_json: bool, path: str, digest: str, state: str) -> None:
    if as_json:
        print_json({"path": path, "digest": digest, "pulled": state == _PULLED})
    else:
        print(printable(f"{path} {state}, digest {digest}"))


@VERBS.verb(
    "sign",
    """\
Sign an image with a private key, in a PEM file or in the runtime's PGP
keyring. An image already signed with this key is left unchanged.

examples:
  openssl genpkey -algorithm ed25519 -out private.pem
  openssl pkey -in private.pem -pubout -out public.pem
  jaxsif image sign jax.sif --key private.pem
  jaxsif image sign jax.sif --pgp
""",
    _SIF,
    one_of(
        argument("--key", **PATH.argument, metavar="FILE", help="a private key in a PEM file"),
        argument(
            "--pgp",
            action="store_true",
            help="use a key from the runtime's PGP keyring; the runtime may ask which one",
        ),
        required=True,
    ),
    argument(
        "--keyidx",
        type=COUNT_FROM_0.argument["type"],
        metavar="N",
        help="the number of the PGP key in `apptainer key list --secret`",
    ),
)
def _sign(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    if arguments.keyidx is not None and not arguments.pgp:
        raise JaxsifError(
            "--keyidx without --pgp", "--keyidx", "pass --pgp, or --key FILE without --keyidx"
        )
    key_options: list[str] = []  # the runtime then asks for a key from its keyring
    if arguments.key:
        check_key(arguments.key)
        key_options = ["--key", arguments.key]
    elif arguments.keyidx is not None:
        key_options = ["--keyidx", str(arguments.keyidx)]
    find_image(Setting(arguments.image, "IMAGE"))
    signer, already = sign(require_runtime(environ), arguments.image, key_options)
    state = "was already signed" if already else "is signed"
    print(printable(f"{arguments.image} {state} by {signer}"))


def _fingerprint(text: str) -> str:
    if not is_fingerprint(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a fingerprint of 40 hexadecimal digits; see `apptainer key list`"
        )
    return text


@VERBS.verb(
    "verify",
    """\
Verify that one of the given keys has signed the whole image. Print the signer
and the image's digest.

examples:
  jaxsif image verify jax.sif --key public.pem
  jaxsif image verify jax.sif --pgp DE90813DA85423FB5CDF9434F4CBF70844051B26
""",
    _SIF,
    one_of(
        argument("--key", **PATH.argument, metavar="FILE", help="a public key in a PEM file"),
        argument(
            "--pgp",
            action="append",
            type=_fingerprint,
            metavar="FINGERPRINT",
            help="a PGP key in the runtime's keyring; if several are given, one must be the"
            " signer's",
        ),
        required=True,
    ),
    JSON,
    epilog="""\
exit status:
    0  signed
    1  not signed by that key, or changed since
    2  a bad request
  125  the image, a key or the runtime cannot be used
""",
)
def _verify(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    find_image(Setting(arguments.image, "IMAGE"))
    runtime, image = require_runtime(environ), arguments.image
    if arguments.key:
        check_key(arguments.key)
    keys = [arguments.key] if arguments.key else arguments.pgp
    signer = find_signer(image, keys, lambda key: verify(runtime, image, key, environ))
    with show_progress(f"jaxsif: the digest of {image}", environ) as update:
        found = {"signer": signer, "digest": digest(image, progress=update)}
    if arguments.json:
        print_json(found)
    else:
        print(printable(f"signed by {signer}"))
        print(f"digest    {found['digest']}")
