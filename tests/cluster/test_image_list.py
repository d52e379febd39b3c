"""`jaxsif image list` and `remove` where `make install` has put images and modules."""

from __future__ import annotations

import json
import re

from harness import Cluster

LIST = "module load jax/sif && jaxsif image list --folder /sw/jaxsif/images"


def test_list_and_remove(cluster: Cluster) -> None:
    digest = json.loads(cluster.check("module load jax/sif && jaxsif image inspect --json"))["digest"]
    image = cluster.check("module load jax/sif && basename $JAX_IMAGE").strip()
    items = {one["name"]: one for one in json.loads(cluster.check(f"{LIST} --json"))}
    assert items[image]["flavour"] == "cpu"
    assert items[image]["digest"] == digest
    module = items[image]["modules"][0]
    assert cluster.check(f"module use /sw/modulefiles && module load {module} && basename $JAX_IMAGE") == f"{image}\n"
    row = next(line for line in cluster.check(LIST).splitlines() if line.startswith(image))
    assert re.fullmatch(rf"{image} +cpu +[\d.]+ +\d+ MB +\S+ +{digest[7:19]} +{module}.*", row)
    done = cluster.run(f"module load jax/sif && jaxsif image remove --folder /sw/jaxsif/images {image}", user="root")
    assert done.returncode == 2
    assert done.stderr.startswith(f"jaxsif: error: module {module} points to {image}\n  from: /sw/modulefiles/")
    cluster.check(f"test -f /sw/jaxsif/images/{image}")


def test_remove_a_copy(cluster: Cluster, folder: str) -> None:
    remove = f"module load jax/sif && jaxsif image remove --folder {folder} copy other"
    none = f"no other in {folder}: nothing to remove\n"
    cluster.check(f"module load jax/sif && cp $JAX_IMAGE {folder}/copy.sif && touch {folder}/copy.sif.log")
    assert cluster.check(remove) == f"removed {folder}/copy.sif\nremoved {folder}/copy.sif.log\n{none}"
    assert cluster.check(remove) == f"no copy in {folder}: nothing to remove\n{none}"
