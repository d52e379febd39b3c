"""Draw results: python plot.py FOLDER. Print the names of the files, or exit with status 3 if there
is no matplotlib.

The plots of a benchmark come from the function draw(header, records) -> {name: figure} in
draw_BENCH.py.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

NO_MATPLOTLIB = 3

try:
    import matplotlib
except ImportError:
    sys.exit(NO_MATPLOTLIB)


def main():
    matplotlib.use("Agg")
    import style

    folder = Path(sys.argv[1])
    header, *records = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    style.apply()
    for name, figure in import_module(f"draw_{header['bench']}").draw(header, records).items():
        figure.suptitle(style.title(header), fontsize=9, color=style.GREY)
        for ending in ("png", "svg"):
            new = folder / f".{name}.new.{ending}"
            figure.savefig(new)
            new.replace(folder / f"{name}.{ending}")
            print(f"{name}.{ending}")


main()
