"""Children of every start method work, fail and end as they do elsewhere; handlers run in order."""

import atexit
import concurrent.futures
import multiprocessing
import subprocess
import sys


def square(number: int) -> int:
    return number * number


def fail() -> None:
    sys.exit(9)


if __name__ == "__main__":
    atexit.register(print, "first registered, last run")
    atexit.register(print, "last registered, first run")
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, pool.map(square, range(4)))
        child = context.Process(target=fail)
        child.start()
        child.join()
        print(method, "child ended with", child.exitcode)
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        print("executor", list(executor.map(square, range(3))))
    done = subprocess.run([sys.executable, "-c", "raise SystemExit(4)"], check=False)
    print("python in python ended with", done.returncode)
    try:
        sys.exit(5)
    except SystemExit as error:
        print("caught", error.code)
