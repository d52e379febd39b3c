"""Run slurm/train/train.py, and print its report as a record: python training.py FOLDER-OF-TRAIN.PY
--mode MODE ...
"""

import argparse
import sys

sys.path.insert(0, sys.argv.pop(1))

import train
from common import emit, node_names, tell_system


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode")
    options = train.parse_options(parser)
    training = train.Training(options)
    for _ in range(options.steps):
        training.advance()
    found = train.report(training)
    tell_system(node_names())
    emit("run", **found)


main()
