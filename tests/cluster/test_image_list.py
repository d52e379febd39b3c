"""`jaxsif image list` where `make install` has put images."""

from __future__ import annotations

import json
import re

from harness import Cluster

LIST = "module load jax/sif && jaxsif image list --folder /sw/jaxsif/images"


def test_list(cluster: Cluster) -> None:
    digest = json.loads(cluster.check("module load jax/sif && jaxsif image inspect --json"))["digest"]
    image = cluster.check("module load jax/sif && basename $JAX_IMAGE").strip()
    items = {one["name"]: one for one in json.loads(cluster.check(f"{LIST} --json"))}
    assert items[image]["flavour"] == "cpu"
    assert items[image]["digest"] == digest
    row = next(line for line in cluster.check(LIST).splitlines() if line.startswith(image))
    assert re.fullmatch(rf"{image} +cpu +[\d.]+ +\d+ MB +\S+ +{digest[7:19]}", row)
