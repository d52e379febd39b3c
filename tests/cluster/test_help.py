"""Examples of --help, run as they stand there, but for names of images and sizes; those of jupyter: test_jupyter.py."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builds import REPOSITORY
from harness import Cluster
from kit.webserver import serve
from test_image_look import TOOLS
from wheels import put_wheel

from jaxsif.images.file import digest

Bash = Callable[[str], str]  # runs a script that must succeed -> its standard output
TRAIN = "import jax\njax.distributed.initialize()\nprint('of', jax.process_count())\n"
NOTHING = r"\A\Z"
MODULE = "0.12.0.1-cuda12-sif"  # that of the examples; and, of an image, jax-0.12.0.1-cuda12


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> Iterator[str]:
    """A home of the user's own, with the files that the examples name."""
    path = cluster.check("mktemp -d ~/help.XXXXXX").strip()
    for name in ("train", "test", "query"):
        cluster.write(f"{path}/{name}.py", TRAIN)
    wheel = put_wheel(cluster, path, "hello", "1.0", {"hello.py": ""})
    cluster.write(f"{path}/requirements.txt", f"{wheel}\n")
    cluster.check(f"""set -e
        cd {path}
        module load jax/sif
        cp $JAXSIF_HOME/slurm/allreduce.py .
        cp $JAX_IMAGE jax.sif
        ln -s jax.sif old.sif
        ln -s jax.sif new.sif
        openssl genpkey -algorithm ed25519 -out private.pem
        openssl pkey -in private.pem -pubout -out public.pem""")
    yield path
    cluster.check(f"scancel --me && rm -rf {path}")


@pytest.fixture
def bash(cluster: Cluster, home: str) -> Bash:
    """A script in that home, where the module is loaded."""
    return lambda script: cluster.check(f"export HOME={home} && cd && module load jax/sif && {script}", timeout=300)


@pytest.fixture
def ours(cluster: Cluster) -> Callable[[str], str]:
    """An example of an image or a module -> one of what the cluster has."""
    image = cluster.check("module load jax/sif && basename $JAX_IMAGE .sif").strip()
    return lambda example: example.replace(MODULE, image[4:] + "-sif").replace(f"jax-{MODULE[:-4]}", image)


@pytest.mark.parametrize(
    ("example", "shown"),
    [
        ("jaxsif run --nodes=2 --gpus-per-node=4 -- python allreduce.py", r"(y=\[8\.\](.|\n)*){8}"),
        ("jaxsif run --launcher local --gpus-per-node=4 -- python query.py", r"(of 4\n(.|\n)*){4}"),
        ("jaxsif run -N 2 -n 8 -G 8 -t 5 --qos=normal -- python allreduce.py", r"(y=\[8\.\](.|\n)*){8}"),
        ("jaxsif help run", r"^usage: jaxsif run "),
        ("jaxsif version --verbose", r"^  image +JAX \S+, cpu, "),
        (
            "jaxsif submit --dry-run --gpus-per-node=4 -- python train.py",
            r"\A#!/bin/bash\n(.|\n)*\n    python train.py\n",
        ),
        ("jaxsif submit --wait --gpus-per-node=1 -- python test.py", r"\A\d+\n\Z"),
        ("echo hostname | " + "jaxsif shell --gpus-per-node=1 --time=1:00:00", r"\Anode\d\n\Z"),
        ("jaxsif config", r"^run\.image +\S+ +JAX_IMAGE"),
        ("jaxsif config run.stage", r"\Arun\.stage .*\n\Z"),
        ("jaxsif config profile.ib", r"\A(profile\.ib\..*\n)+\Z"),
        ("jaxsif image inspect", r"^flavour +cpu$"),
        ("jaxsif image diff old.sif new.sif", NOTHING),
        ("jaxsif image list", r"^jax-\S+-cpu\.sif "),
        ("jaxsif image list --folder /sw/jaxsif/images", r"^jax-\S+-cpu\.sif "),
        ("jaxsif image sign jax.sif --key private.pem", r"signed"),
        ("jaxsif image verify jax.sif --key public.pem", r"SHA256:"),
        ("jaxsif layer create -r requirements.txt my-layer", NOTHING),
        ("jaxsif layer list", r"^my-layer "),
        ("jaxsif layer show my-layer", r"^status +ok$"),
        ("jaxsif layer update my-layer", ""),
        ("jaxsif layer remove my-layer && ! jaxsif layer show my-layer && echo none", r"\Anone\n\Z"),
        ("source <(jaxsif completion bash) && complete -p jaxsif", r"\Acomplete .* jaxsif\n\Z"),
    ],
)
def test_examples(bash: Bash, example: str, shown: str) -> None:
    """In this order: layers are made, shown and removed."""
    out = bash(example)
    assert re.search(shown, out, re.MULTILINE), out


def test_sbom(bash: Bash, ours: Callable[[str], str]) -> None:
    example = ours("jaxsif image sbom build/images/jax-0.12.0.1-cuda12.sif >sbom.cdx.json")
    bash(f"mkdir -p build && ln -sfn /sw/jaxsif/images build/images && {example}")
    assert '"CycloneDX"' in bash("cat sbom.cdx.json")


def test_modules(bash: Bash, ours: Callable[[str], str]) -> None:
    """Below a prefix of the user's own, where the launcher is."""
    install = "mkdir -p sw/jaxsif && cp -r $JAXSIF_HOME sw/jaxsif && sed -i s:/sw/:$HOME/sw/: sw/jaxsif/*/bin/jaxsif"
    install += " && export PATH=$(echo ~/sw/jaxsif/*/bin):$PATH"
    name = ours(f"jax/{MODULE}")
    script = [
        install,
        ours("jaxsif module add /sw/jaxsif/images/jax-0.12.0.1-cuda12.sif"),
        ours("jaxsif module default jax/0.12.0.1-cuda12-sif"),
        "jaxsif module list",
        ours("jaxsif module remove jax/0.12.0.1-cuda12-sif"),
    ]
    out = bash(" && ".join(script))
    assert out.startswith(f"{name}\n")
    assert re.search(rf"^\* +{name} ", out, re.MULTILINE), out


def test_benchmarks(cluster: Cluster, folder: str, layer: str) -> None:
    """In less time; the results of two of them are compared, and drawn."""
    load = f"cd {folder} && module load jax/sif"
    collectives = "jaxsif bench collectives -N 2 --gpus-per-node=4 --operations all-reduce"
    collectives += " --sizes 1MiB-2MiB"
    first, second = "bench-collectives-20260102", "bench-collectives-20260203"
    for output in (first, second):
        cluster.check(f"{load} && {collectives} --seconds=0.1 --output={output}")
    compared = cluster.run(f"{load} && jaxsif bench compare bench-collectives-20260102 bench-collectives-20260203")
    assert re.search(r"figures (is|are) worse", compared.stdout), compared.stderr
    plot = "jaxsif bench plot --layer bench bench-collectives-20260102".replace("bench b", f"{layer} b")
    cluster.check(f"{load} && {plot}")
    assert "bandwidth.svg" in cluster.check(f"ls {folder}/{first}")
    train = "jaxsif bench train --layer ml --scaling --width=32 --depth=1 --batch=8 --steps=3"
    assert "sharded" in cluster.check(f"{load} && {train} --nodes=2 --gpus-per-node=1", timeout=300)
    startup = "jaxsif bench startup --variants=node,stage --rounds=3".replace("rounds=3", "rounds=1")
    assert re.search("^stage ", cluster.check(f"{load} && salloc --nodes=1 --gpus-per-node=2 {startup}"), re.MULTILINE)


def on_this_machine(script: str, folder: Path = REPOSITORY) -> str:
    """Run a script in the clone, with its jaxsif on the PATH; return its standard output."""
    environ = {**os.environ, "PATH": f"{TOOLS}{REPOSITORY}/build/venv/bin:{os.environ['PATH']}"}
    environ["NO_PROXY"] = f"127.0.0.1,{os.environ.get('NO_PROXY', '')}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(1800)
def test_the_default_image_is_built() -> None:
    """That of `make image`: CUDA, with NCCL and all that JAX loads of it, checked by the build."""
    on_this_machine("jaxsif image build")
    assert "cuda12" in on_this_machine("jaxsif image inspect build/images/jax-*-cuda12.sif")
    assert "is up to date" in on_this_machine("jaxsif image build")


def test_cuda_without_one_of_its_libraries(work: Path) -> None:
    """JAX loads it by its name, and says nothing when it cannot."""
    image = next((REPOSITORY / "build/images").glob("jax-*-cuda12.sif"))
    folder = "/opt/jax/lib/python3.13/site-packages/nvidia/cufft/lib"
    (work / "empty").mkdir()
    said = on_this_machine(f"! apptainer --quiet test --bind {work}/empty:{folder} {image} 2>&1")
    assert f"JAX cannot load a library: {folder}/libcufft.so.11: " in said
    assert re.search(r"nvidia/cufft/lib/libcufft\.so\.11 of nvidia_cufft_cu12-\S+ is not there", said)


def test_locks_are_checked() -> None:
    lines = on_this_machine("jaxsif image lock --check").splitlines()
    locks = {file.stem for file in (REPOSITORY / "containers/locks").glob("*.txt")} - {"launcher"}  # no image's
    assert {f"{name}.txt: unchanged" for name in locks} <= set(lines)


def test_an_image_is_pulled(work: Path) -> None:
    image = next((REPOSITORY / "build/images").glob("jax-*-cpu.sif"))
    example = "jaxsif image pull https://example.org/jax.sif --digest sha256:35b74ab9…"
    with serve(image.read_bytes()) as served:
        example = example.replace("https://example.org/jax.sif", served.address)
        on_this_machine(example.replace("sha256:35b74ab9…", digest(str(image))), work)
    assert next(work.glob("*.sif")).read_bytes() == image.read_bytes()
