"""What commands of a script do, as their words tell: all quotes, places and lengths."""

from __future__ import annotations

import time

import pytest

from jaxsif.builds.shell_words import (
    find_emptied,
    installs_for_one_user,
    installs_modules,
    makes_environment,
    split_commands,
    uses_home_of_root,
)


def test_commands() -> None:
    script = "a 'b c' && (d \"e\"; f) | g # h\n#i\n"
    assert list(split_commands(script)) == [["a", "b", "c"], ["d", "e"], ["f"], ["g"]]


@pytest.mark.parametrize(
    "script",
    [
        "apt-get update && rm -rf /tmp/* /var/tmp/*",
        "rm -r /tmp",
        "rm -rf /tmp; echo",
        "(rm -rf /tmp)",
        "rm -rf /tmp&& x",
        "rm -rf /tmp//*",
        'rm -rf "/tmp"/*',
        "rm -rf /tmp/.* /x",
        "rm -rf /tmp/.[!.]*",
        "rm -rf /tmp/{*,.*}",
        "rm -rf ${TMPDIR:-/tmp}/*",
        "cd /tmp && rm -rf *",
        "cd /tmp; x && /bin/rm -rf ./*",
        'cd /tmp && rm -rf "$PWD"/*',
        "find /tmp -mindepth 1 -delete",
        "find /tmp -type f -exec rm {} +",
    ],
)
def test_what_empties_tmp(script: str) -> None:
    assert list(find_emptied(script))


@pytest.mark.parametrize(
    "script",
    [
        "rm -rf /tmp/build /tmp/pip-* && apt-get clean",
        "rm -rf /var/lib/apt/lists/* /tmp/*.deb",
        "rm -rf /tmp/.cache /tmp/{foo,bar}",
        "cd /tmp/build && rm -rf *",
        "cd /tmp && wget x && cd /opt && rm -rf *",
        "find /usr -name '*.pyc' -delete",
        "find /tmp -type f; rm -rf /var/cache/apt",
        "docker run --rm -v /tmp x",
        "x # rm /tmp",
    ],
)
def test_what_leaves_tmp(script: str) -> None:
    assert not list(find_emptied(script))


def test_commands_that_empty_tmp_are_named() -> None:
    script = "rm -rf '/tmp/*' && x; rm -rf /var/lib/apt/lists/* /var/tmp/* /tmp/* /tmp/.*"
    assert list(find_emptied(script)) == [
        ("rm -rf /tmp/*", ["/tmp"]),
        ("rm -rf /var/lib/apt/lists/* /var/tmp/* /tmp/* /tmp/.*", ["/tmp", "/var/tmp"]),
    ]


def test_it_counts_where_a_script_begins() -> None:
    assert list(find_emptied("rm -rf *", "/tmp")) == [("rm -rf *", ["/tmp"])]
    assert list(find_emptied("rm -rf *", "/var/tmp/")) == [("rm -rf *", ["/var/tmp"])]
    assert list(find_emptied("rm -rf *", "/srv")) == []


@pytest.mark.parametrize("words", ["apt install ", "rm ", "cd /tmp && ", "find /tmp ", "pip a ", "/root ", "uv ", "# "])
def test_long_scripts_take_linear_time(words: str) -> None:
    script = "x " + words * (300_000 // len(words))
    begin = time.process_time()
    list(find_emptied(script))
    for ask in (installs_for_one_user, installs_modules, makes_environment, uses_home_of_root):
        ask(script)
    assert time.process_time() - begin < 10  # 0.5 s where nothing else runs
