"""Writes two NumPy files to load: FOLDER/features.npy (10,003 rows of 256 floats) and FOLDER/labels.npy.

Run it once, in one process. The files are written through memory maps, so they may be larger than the memory.
"""

import argparse
import pathlib

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--rows", type=int, default=10_003)  # not divisible: the last batch of an epoch is short
parser.add_argument("--width", type=int, default=256)
args = parser.parse_args()

args.folder.mkdir(parents=True)
create = np.lib.format.open_memmap
features = create(args.folder / "features.npy", "w+", np.float32, (args.rows, args.width))
labels = create(args.folder / "labels.npy", "w+", np.int32, (args.rows,))
rng = np.random.default_rng(0)
for first in range(0, args.rows, 4096):
    part = slice(first, first + 4096)
    features[part] = rng.random(features[part].shape, np.float32)
    labels[part] = rng.integers(10, size=len(labels[part]))
print(f"{args.rows} rows in {args.folder}: {(features.nbytes + labels.nbytes) / 1e6:.1f} MB")
