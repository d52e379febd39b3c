"""Programs whose output must be seen when it is printed: a progress bar, a prompt, many lines.

live.py bar         100 parts of a bar in 3 seconds, as tqdm draws one on standard error
live.py size        the size of the terminal as tqdm sees it on standard output
live.py debug       breakpoint() in a function with a variable `answer`
live.py lines N     N numbered lines, every fourth one on standard error
"""

import os
import sys
import time


def bar():
    for done in range(101):
        print(f"\r{done:3d}%|{'#' * (done // 10):10}|", end="", file=sys.stderr, flush=True)
        time.sleep(0.03)
    print(file=sys.stderr)


def size():
    print("size", *os.get_terminal_size(1), os.environ.get("COLUMNS"))


def debug():
    answer = 6 * 7
    breakpoint()
    print(f"the answer was {answer}")


def lines(count):
    task = os.environ["SLURM_PROCID"]
    for number in range(int(count)):
        stream = sys.stdout if number % 4 else sys.stderr
        print(f"task {task} line {number:06d} {'x' * (number % 60)}.", file=stream)


if __name__ == "__main__":
    {"bar": bar, "size": size, "debug": debug, "lines": lines}[sys.argv[1]](*sys.argv[2:])
