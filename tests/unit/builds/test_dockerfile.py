"""Dockerfiles: split into instructions, refused by line, and converted in their order."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.builds.definition import Converted
from jaxsif.builds.dockerfile import (
    _DOWNLOAD,
    Instruction,
    check_instructions,
    convert_instructions,
    expand,
    read_arguments,
    split_instructions,
)


def convert(text: str) -> Converted:
    instructions = list(split_instructions(text))
    assert check_instructions(instructions, text) == []
    converted, refused = convert_instructions(instructions)
    assert refused == []
    return converted


def refuse(text: str) -> list[tuple[int, str]]:
    """Line and beginning of the reason of what is refused."""
    instructions = list(split_instructions(text))
    refused = check_instructions(instructions, text) or convert_instructions(instructions)[1]
    return [(one.line, one.reason) for one in refused]


def test_continued_lines_and_comments() -> None:
    text = "# syntax=docker/dockerfile:1\nfrom a\nRUN one && \\\n  # why\n\n  two # not a comment\n\nEnv A=1 \\\n"
    assert list(split_instructions(text)) == [
        Instruction(2, "FROM", "a"),
        Instruction(3, "RUN", "one &&   two # not a comment"),
        Instruction(8, "ENV", "A=1"),
    ]


def test_here_document_is_skipped() -> None:
    text = 'FROM a\nRUN <<"EOF" bash\nFROM b\nHEALTHCHECK x\nEOF\nRUN echo $((1 << 2)) <<<x\n'
    assert [one.word for one in split_instructions(text)] == ["FROM", "RUN", "RUN"]
    assert refuse(text) == [(2, "has a here-document: write the commands with && and \\")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("RUN a\n", 1, "has no FROM"),
        ("RUN a\nFROM b\n", 1, "comes before FROM"),
        ("FROM\n", 1, "is empty"),
        ("FROM a\nCMD\n", 2, "is empty"),
        ("FROM a\nENV A=1 B=$A\n", 2, "refers to a variable that it sets"),
        ("# escape=`\nFROM a\n", 1, "changes the line-continuation character"),
        ("# syntax=a\n# escape=`\nFROM a\nRUN b `\n && c\n", 2, "changes the line-continuation character"),
        ("FROM a\nRUN echo b\xa0c\n", 2, "has an invisible character (U+00A0): remove it"),
        ("FROM a\nRUN b && \\\n  echo \u3000\n", 3, "has an invisible character (U+3000)"),
        ("FROM a\nRUN echo b\ufffdc\n", 2, "has an invisible character (U+FFFD)"),
        ("FROM a\nRUN echo b\u2028ENV C=1\n", 2, "has an invisible character (U+2028)"),
        ("FROM a\nRUN\x1cb\n", 2, "has an invisible character (U+001C)"),
        ("FROM a\nRUN b \\\x0b\n c\n", 2, "has an invisible character (U+000B)"),
        ("FROM a\nRUN b \\\n\x1c# c\n", 3, "has an invisible character (U+001C)"),
        ("FROM a\nRUN b\rENV C=1\n", 2, "has an invisible character (U+000D)"),
        ("FROM a\nENV B='\u200d'\n", 2, "has an invisible character (U+200D)"),
    ],
)
def test_refused_heads(text: str, line: int, reason: str) -> None:
    assert refuse(text)[0][0] == line
    assert refuse(text)[0][1].startswith(reason)


def test_comments_have_any_characters() -> None:
    found = convert("# a\xa0b\u2028RUN c\nFROM a\nRUN b && \\\n  # \u200d\x85\n  c\td\n")
    assert found.post == ("    /bin/sh -c " + shlex.quote("b &&   c\td"),)


def test_line_ends_of_other_systems() -> None:
    text = "FROM a\nRUN b && \\\n  c\nCMD d\n"
    assert convert(text.replace("\n", "\r\n")) == convert(text)
    assert convert(text.replace("\n", "\r\n")[:-1]) == convert(text)


def test_what_changes_nothing_in_an_image_is_left_out() -> None:
    found = convert(
        "FROM python:3\n"
        "RUN --mount=type=cache,target=/root/.cache --mount=type=cache,target=/var pip install --link flax\n"
        "COPY --link --chown=me:me a.py ./\nUSER me\nUSER root:root\nRUN pip install 'jax[cuda12]' flax\n"
    )
    assert found.post == (
        "    /bin/sh -c 'pip install --link flax'",
        '    copy /.jaxsif-copy/3 "./"',
        "    /bin/sh -c " + shlex.quote("pip install 'jax[cuda12]' flax"),
    )
    assert [note.partition(": ")[2] for note in found.notes[1:]] == [
        "--mount=type=cache,target=/root/.cache --mount=type=cache,target=/var is left out: it changes nothing here",
        "--link --chown=me:me is left out: it changes nothing here",
        "USER me is left out: a container runs as whoever starts it",
        "pip may replace the image's JAX, which matches its CUDA and NCCL: leave out jax and jaxlib",
    ]


def test_what_is_lost_below_tmp_is_noted() -> None:
    found = convert(
        "FROM a\nWORKDIR /tmp\nCOPY a b/\nWORKDIR /tmpl\nCOPY a b/\nCOPY a /var/tmp/\nRUN mkdir /var/tmp/c\n"
    )
    lost = "what is in /tmp or /var/tmp will not be in the image"
    assert found.notes[1:] == tuple(f"line {number}: {lost}" for number in (2, 3, 6, 7))


def test_modes_of_copies() -> None:
    """Those of --chmod, wherever the option is; the text of a refusal has it, too."""
    found = convert("FROM a\nCOPY --chown=me --chmod=0755 a b* ./\nCOPY --chmod=644 src/* /c\nADD --chmod=700 d /e/\n")
    assert found.post == (
        '    copy /.jaxsif-copy/2 "./" 0755',
        '    copy /.jaxsif-copy/3/src "/c" 644',
        '    copy /.jaxsif-copy/3 "/c" 644',
        '    copy /.jaxsif-copy/4 "/e/" 700',
    )
    assert [note for note in found.notes if "root" in note] == [
        "line 4: only root can read these files, and users are not root"
    ]
    text = "FROM a\nCOPY --chmod=755 --from=b /c /root\n"
    assert check_instructions(list(split_instructions(text)), text)[0].text == "COPY --from=b --chmod=755 /c /root"


def test_order_and_quotes() -> None:
    found = convert(
        "FROM python:3 AS base\nARG V=1.2\nENV A=$V B='x y' \\\n  C=\"$HOME/z\"\nWORKDIR app\n"
        "COPY a.py *.txt ./\nRUN echo 'it' \"$V\" && cd /x\nCOPY . .\nENV V=2\nENV D=$V\nUSER root\nEXPOSE 80\n"
    )
    assert found.base == "python:3"
    assert found.post == (
        '    export V="1.2"',
        '    export A="1.2"',
        '    export B="x y"',
        '    export C="$HOME/z"',
        '    mkdir -p "/app" && cd "/app"',
        '    copy /.jaxsif-copy/6 "./"',
        "    /bin/sh -c " + shlex.quote("echo 'it' \"$V\" && cd /x"),
        '    copy /.jaxsif-copy/8 "."',
        '    export V="2"',
        '    export D="$V"',
    )
    assert found.files == (("a.py", "/.jaxsif-copy/6/"), ("*.txt", "/.jaxsif-copy/6/"), (".", "/.jaxsif-copy/8/"))
    assert found.environment[0] == '    export A="1.2"'
    assert found.notes == (
        "line 1: FROM python:3 is replaced by Debian with its own Python and packages",
        "line 12: EXPOSE is left out: a container uses the host's network",
    )


@pytest.mark.parametrize(
    ("lines", "runscript"),
    [
        ('CMD ["python", "a b.py"]', ["exec python 'a b.py'"]),
        ("CMD python a.py $X", ["exec /bin/sh -c 'python a.py $X'"]),
        ('CMD ["--help"]\nENTRYPOINT ["python", "a.py"]', ["exec python a.py --help"]),
        ('ENTRYPOINT python a.py\nCMD ["--help"]', ["exec /bin/sh -c 'python a.py'"]),
        ('WORKDIR /app\nCMD ["a"]', ['cd "/app" || exit', "exec a"]),
        ('SHELL ["/bin/bash", "-c"]\nCMD a $X', ["exec /bin/bash -c 'a $X'"]),
        ('SHELL ["/bin/bash", "-c"]\nCMD ["a"]', ["exec a"]),
        ("RUN a", []),
    ],
)
def test_what_starts(lines: str, runscript: list[str]) -> None:
    assert [line.strip() for line in convert(f"FROM a\n{lines}\n").runscript] == runscript


def test_labels_and_an_old_pair() -> None:
    found = convert('FROM a\nLABEL org.b.c="x y" d=1\nLABEL e = "f g"\nENV PATH /x:$PATH\nENV B "$PATH:/c d"\n')
    assert found.labels == ("    org.b.c x y", "    d 1", "    e = f g")
    assert found.environment == ('    export PATH="/x:$PATH"', '    export B="$PATH:/c d"')


def test_labels_have_values() -> None:
    found = convert('FROM a\nARG A="b c"\nENV D=e\nARG F\nLABEL g="$A:${D}" h=$F\nLABEL i j $A "$D"\n')
    assert found.labels == ("    g b c:e", "    h ", "    i j b c e")
    assert refuse("FROM a\nLABEL b=1 c=$D\n") == [(2, "uses D, which has no value: give it one with ARG D=VALUE")]


def test_an_empty_value_and_paths_in_a_list() -> None:
    found = convert('FROM a\nENV B= C=1 D=""\nCOPY --chown=e:f ["g.txt", "h", "/i/"]\n')
    assert found.environment == ('    export B=""', '    export C="1"', '    export D=""')
    assert [source for source, _ in found.files] == ["g.txt", "h"]


def test_home_is_for_the_build_alone() -> None:
    """Whoever starts a container has a home of their own."""
    found = convert("FROM a\nENV U=me HOME=/home/me\nENV PATH=$HOME/bin:$PATH\n")
    assert [line.strip() for line in found.post] == [
        'export U="me"',
        'export HOME="/home/me"',
        'export PATH="/home/me/bin:$PATH"',
    ]
    assert [line.strip() for line in found.environment] == ['export U="me"', 'export PATH="/home/me/bin:$PATH"']
    assert found.notes[1:] == ("line 2: ENV HOME is left out: a container has the user's own home",)


_PLAIN = st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters="\"'\\`$"), max_size=12)


@pytest.mark.starts_processes
def test_values_are_what_docker_makes_of_them() -> None:
    """Many values in one shell: each between double quotes as it is, with the variables of before."""
    pairs: list[str] = []

    @given(_PLAIN, st.sampled_from(['"{}"', "'{}'"]))
    def collect(value: str, quotes: str) -> None:
        pairs.append(quotes.format(value))

    collect()
    names = [f"V{number}" for number in range(len(pairs))]
    text = "".join(f"ENV {name}={pair}\n" for name, pair in zip(names, pairs) if "{{" not in pair)
    found = convert(f"FROM a\n{text}")
    script = "\n".join([*found.environment, *(f'printf "%s\\n" "${name}"' for name in names if f"ENV {name}=" in text)])
    done = subprocess.run(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == [pair[1:-1] for pair in pairs if "{{" not in pair]


def test_args_have_the_values_of_docker() -> None:
    """Those before FROM are for FROM, and for ARG without a value; ENV wins."""
    found = convert("ARG A=1\nARG B=2\nFROM --platform=x $B AS c\nARG A\nARG D\nENV E=1\nARG E=2\nENV F=$E G=$A\n")
    assert found.base == "2"
    assert [line.strip() for line in found.post] == ['export A="1"', 'export E="1"', 'export F="$E"', 'export G="1"']
    assert found.notes[0] == "line 3: --platform=x is left out: the image is for this machine"
    assert found.notes[2:] == ("line 5: ARG D has no value", "line 7: ARG E is left out: ENV already sets it")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$V${E}${U}", "v${U}"),
        ("${V:-w}${E:-w}${U:-w}", "vww"),
        ("${V-w}${E-w}${U-w}", "vw"),
        ("a_${V:+w}${E:+w}${U:+w}", "a_w"),
        ("${V+w}${E+w}_a${U+w}", "ww_a"),
        ("${U:-${V}x$V}-${U:-}", "vxv-"),
        ("${V%x}${V/x/y}$(V)", "${V%x}${V/x/y}$(V)"),
    ],
)
def test_forms_of_variables(text: str, expanded: str) -> None:
    assert expand(text, {"V": "v", "E": ""}) == expanded


def test_forms_of_variables_in_values() -> None:
    """The shell knows those of ENV and of the base; others have the value that Docker gives them."""
    text = (
        "FROM a\nARG V\nARG W=w\n"
        'ENV LD_LIBRARY_PATH=/x:${LD_LIBRARY_PATH:-} PYTHONPATH="/y y${PYTHONPATH:+:$PYTHONPATH}"\n'
        "ENV A=${V:-d}${W:-e} B=${C:-${D:-$W}} G=${V-d}${V+e}\n"
        "WORKDIR ${V:-/opt}/$W\n"
        "COPY a ${E:-/srv}/${A+c}/\n"
        "LABEL a=${W:-b}${A:-q}${N:-n}\n"
        "ARG Q=${W:-1}${Z:-$W}\n"
        "ENV C=${V:-${A:-d}}${W:+${PATH:-/bin}} CUDA=${CUDA:-/cuda}\n"
        "ARG F=${A:-f}${Z-z}\n"
        "ENV Z=prod\n"
        "ENV M=$F\n"
        "WORKDIR $F\n"
    )
    found = convert(text)
    assert [line.strip() for line in found.post] == [
        'export W="w"',
        'export LD_LIBRARY_PATH="/x:${LD_LIBRARY_PATH:-}"',
        'export PYTHONPATH="/y y${PYTHONPATH:+:$PYTHONPATH}"',
        'export A="dw"',
        'export B="w"',
        'export G="d"',
        'mkdir -p "/opt/w" && cd "/opt/w"',
        'copy /.jaxsif-copy/7 "/srv/c/"',
        'export Q="ww"',
        'export C="${A:-d}${PATH:-/bin}"',
        'export CUDA="/cuda"',
        'export F="${A:-f}z"',
        'export Z="prod"',
        'export M="dwz"',
        'mkdir -p "/opt/w/dwz" && cd "/opt/w/dwz"',
    ]
    assert [line.strip() for line in found.labels] == ["a wdwn"]
    assert refuse("FROM a\nENV S=1 T=${U:-$S}\n")[0][1].startswith("refers to a variable that it sets itself")
    assert refuse("FROM a\nWORKDIR /a/${U:-$S}\n")[0][1].startswith("uses S, which has no value")
    assert "is not NAME=VALUE" in refuse("FROM a\nENV A=${B:-`id`}\n")[0][1]
    text = "FROM a\nARG B=/x${PATH:+:$PATH} H=${HOME:-/h}\nENV PATH=$B\nENV H2=$H\n"
    assert [line.strip() for line in convert(text).environment] == ['export PATH="/x${PATH:+:$PATH}"', 'export H2="/h"']
    late = convert("FROM a\nARG A\nARG B=p$A\nENV A=7\nENV C=$B\nWORKDIR /d/$B\n")
    assert [line.strip() for line in late.environment] == ['export A="7"', 'export C="p"']
    assert late.post[-1].strip().startswith('mkdir -p "/d/p"')
    text = "FROM rust\nLABEL v=$V w=${W:-1}\nARG U\nENV HOME=${CARGO_HOME:-/opt}\nWORKDIR $HOME/${U:-u}\n"
    pulled, refused = convert_instructions(list(split_instructions(text)), is_pulled=True)
    assert refused == []
    assert pulled.post[-1].strip().startswith('mkdir -p "${CARGO_HOME:-/opt}/u"')


def test_a_long_value_is_judged_in_linear_time() -> None:
    value = ":".join(f"$LONG_NAME_OF_A_FOLDER_{number}/bin" for number in range(500))
    assert "is not NAME=VALUE" in refuse(f"FROM a\nENV A={value} B=`id`\n")[0][1]


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("ppc64le", "ppc64le")])
def test_platform_is_known(machine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stage after ARG, and in FROM without one; a default of ARG wins."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    found = convert("FROM a-$TARGETARCH\nARG TARGETPLATFORM\nARG TARGETOS=b\nCOPY $TARGETPLATFORM $TARGETOS/\n")
    assert found.base == f"a-{name}"
    assert (found.files[0][0], found.post[-1]) == (f"linux/{name}", '    copy /.jaxsif-copy/4 "b/"')
    assert refuse("FROM a\nCOPY $TARGETARCH /b\n")[0][1].startswith("uses TARGETARCH, which has no value")
    assert read_arguments([Instruction(1, "ARG", "A=$BUILDOS")])["A"] == "linux"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('ARG A="q;do(id>/tmp/x);done;# z"\nCOPY a /x$A\n', 3),
        ('ARG A="../../secret /b"\nCOPY a $A\n', 3),
        ('ARG A="b c"\nCOPY a /x/$A/\n', 3),
        ("ARG D=/root\nCOPY a $D/\n", 3),
        ("ARG D=/root\nWORKDIR $D\n", 3),
        ("WORKDIR /tmp\nRUN rm -rf *\n", 3),
        ("ENV D=/root\nWORKDIR $D\n", 3),
        ("ARG D=\nWORKDIR $D\n", 3),
    ],
)
def test_what_becomes_of_a_line_is_judged(text: str, line: int) -> None:
    assert [number for number, _ in refuse(f"FROM a\n{text}")] == [line]


@pytest.mark.parametrize("line", ["WORKDIR {}", "COPY a {}/", "ADD a b {}"])
@pytest.mark.parametrize(
    ("begin", "path", "reason"),
    [
        ("RUN a", "${HOME}/b", "is in root's home"),
        ("ARG U", "/home/$U", "uses U, which has no value: give it one with ARG U=VALUE"),
        ("RUN a", "$B/c", "uses B, which has no value"),
        ("ENV B=$C/d", "$B", "uses C, which has no value"),
        ("ARG U\nENV U=$U HOME=/home/$U", "$HOME", "uses U, which has no value"),
    ],
)
def test_refused_places(line: str, begin: str, path: str, reason: str) -> None:
    found = refuse(f"FROM a\n{begin}\n{line.format(path)}\n")
    assert [(number, one[: len(reason)]) for number, one in found] == [(3 + begin.count("\n"), reason)]


def test_places_have_the_values_of_docker() -> None:
    """The file's own HOME is not root's. A pulled image has variables that only its shell knows."""
    text = "FROM a\nARG U=me\nENV HOME /home/$U\nWORKDIR $HOME\nCOPY a ${HOME}/b/\nARG E=\nWORKDIR c$E\n"
    assert [line.strip() for line in convert(text).post if "/home/me" in line and "export" not in line] == [
        'mkdir -p "/home/me" && cd "/home/me"',
        'copy /.jaxsif-copy/5 "/home/me/b/"',
        'mkdir -p "/home/me/c" && cd "/home/me/c"',
    ]
    instructions = list(split_instructions("FROM golang\nARG U\nWORKDIR $GOPATH/src\nWORKDIR $U\n"))
    converted, refused = convert_instructions(instructions, is_pulled=True)
    assert converted.post[0] == '    mkdir -p "$GOPATH/src" && cd "$GOPATH/src"'
    assert [one.line for one in refused] == [4]


@pytest.mark.parametrize(
    ("text", "exports"),
    [
        ('ARG A="b c"\nENV B=$A\n', ['A="b c"', 'B="b c"']),
        ("ARG A=1\nARG A\nENV B=$A\n", ['A="1"', 'A="1"', 'B="1"']),
        ("ARG A\nENV B=$A\n", ['B=""']),
        ("ARG A\nENV A=$A HOME=/$A\nENV B=$A\n", ['A=""', 'HOME="/"', 'B="$A"']),
        ("ARG A\nENV HOME=/$A\nENV B=$HOME\n", ['HOME="/"', 'B="/"']),
        ("ARG A=\nENV B=$A\n", ['A=""', 'B=""']),
        ("ARG A=1 B C='x y'  # why D=2\n", ['A="1"', 'C="x y"']),
    ],
)
def test_values_of_args(text: str, exports: list[str]) -> None:
    assert [line.strip() for line in convert(f"FROM a\n{text}").post] == [f"export {one}" for one in exports]


def test_shell_of_run() -> None:
    found = convert('FROM a\nRUN b\nSHELL ["/bin/bash", "-o", "pipefail", "-c"]\nRUN c | d\n')
    assert [line.strip() for line in found.post] == ["/bin/sh -c b", "/bin/bash -o pipefail -c 'c | d'"]


@pytest.mark.parametrize(
    ("line", "files", "copies"),
    [
        ("COPY $E/x ${A}y* /d", ["v/w/x", "1y*"], ["2"]),
        ("COPY src/* /d", ["src"], ["2/src", "2"]),
        ("COPY a ./* /d", ["a", "."], ["2/all", "2"]),
        ("ADD a/b/** /d", ["a/b"], ["2/b", "2"]),
    ],
)
def test_paths_to_copy_from(line: str, files: list[str], copies: list[str]) -> None:
    """Values of ARG and ENV; and all of a folder, with what is hidden."""
    found = convert(f"FROM a\n{line}\n" if "$" not in line else f"FROM a\nARG A=1\nENV E=v\nENV E=$E/w\n{line}\n")
    place = "/.jaxsif-copy/5" if "$" in line else "/.jaxsif-copy/2"
    assert found.files == tuple((path, f"{place}/") for path in files)
    places = [copied.replace("2", place, 1) for copied in copies]
    assert [one.strip() for one in found.post if "copy" in one] == [f'copy {one} "/d"' for one in places]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("COPY $A /d", "uses A, which has no value: give it one with ARG A=VALUE"),
        ("ENV A=$HOME/b\nCOPY $A /d", "uses HOME, which has no value"),
        ("ARG A=../../b\nCOPY $A /d", "has .. in a path"),
        ('ARG A="x;id"\nCOPY $A /d', "has a path with special characters"),
        ("ARG A=\nCOPY $A /d", "copies nothing"),
        ("ARG A\nCOPY $A /d", "uses A, which has no value"),
        ("ARG A=b.tar.gz\nADD $A /d", "unpacks an archive"),
        ("ARG A=https://b\nADD $A /d", "adds a URL"),
    ],
)
def test_paths_to_copy_from_are_judged_by_their_value(lines: str, reason: str) -> None:
    assert [one.startswith(reason) for _, one in refuse(f"FROM a\n{lines}\n")] == [True]


def test_downloads() -> None:
    """By Python, under the name that is in the address, and then copied as a file."""
    text = "FROM a\nARG V=1\nENV W=https://b/w\nADD --chmod=755 https://b/v$V/c-${V}.tgz?d=e /opt/\nADD $W d\n"
    assert [line.strip().partition("sys.argv[1:])' ")[2] or line.strip() for line in convert(text).post[2:]] == [
        '"https://b/v1/c-1.tgz?d=e" /.jaxsif-copy/4/c-1.tgz',
        'copy /.jaxsif-copy/4 "/opt/" 755',
        '"https://b/w" /.jaxsif-copy/5/w',
        'copy /.jaxsif-copy/5 "d"',
    ]
    assert refuse("FROM a\nADD https://b/$C /root\n") == [
        (2, "is in root's home, which is hidden in a container: name a folder such as /opt"),
        (2, "uses C, which has no value: give it one with ARG C=VALUE"),
    ]
    pulled = convert_instructions(list(split_instructions("FROM a\nADD https://b/c /d\n")), is_pulled=True)
    assert [one.reason for one in pulled[1]] == ["adds a URL in a pulled stage: download it with RUN"]


@pytest.mark.starts_processes
def test_a_download_is_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("b")
    script = _DOWNLOAD.replace("/opt/jax/bin/python", sys.executable)
    subprocess.run(["sh", "-c", f'{script} "file://{tmp_path}/a" c'], cwd=tmp_path, check=True)
    assert (tmp_path / "c").read_text() == "b"


@pytest.mark.parametrize("text", ["true", "1", "{}", "null"])
def test_commands_that_are_json_too(text: str) -> None:
    assert convert(f"FROM a\nCMD {text}\n").runscript == (f"    exec /bin/sh -c {shlex.quote(text)}",)
