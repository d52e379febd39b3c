"""Dockerfiles: split into instructions, refused by line, and converted in their order."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsif.builds.converted import Converted
from jaxsif.builds.dockerfile import (
    Instruction,
    check_instructions,
    convert_dockerfile,
    parse_alone,
    split_instructions,
)


def convert(text: str) -> Converted:
    instructions = list(split_instructions(text))
    assert check_instructions(instructions, text) == []
    converted, refused = convert_dockerfile(instructions)
    assert refused == []
    return converted


def refuse(text: str) -> list[tuple[int, str]]:
    """Line and beginning of the reason of what is refused."""
    instructions = list(split_instructions(text))
    refused = check_instructions(instructions, text) or convert_dockerfile(instructions)[1]
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
    ("line", "reason"),
    [
        ("RUN --mount=type=cache,target=/x pip install a", "has an option of Docker's builder, such as --mount"),
        ('RUN ["chmod", "+x", "/a"]', "is a list: write the command as for a shell"),
        ("RUN apt-get update && rm -rf /tmp/* /var/tmp/*", "empties /tmp, which is the host's"),
        ("RUN rm -r /tmp", "empties /tmp"),
        ("RUN echo '{{ x }}'", "has {{, a build argument in definition files"),
        ("COPY --from=build /a /b", "has an option that definition files lack"),
        ("COPY --chown=me a b", "has an option that definition files lack"),
        ('COPY ["a b", "/c"]', "is a list: write the paths with blanks between them"),
        ("COPY a$(b) /c", "has a path with special letters"),
        ("COPY src/* /c", "copies hidden files too in Docker: name the folder"),
        ("COPY <<EOF /c\nx\nEOF", "has a here-document"),
        ("ADD https://example.org/a /b", "adds an address: download it by RUN"),
        ("ADD a.tar.gz /b", "unpacks an archive: write COPY"),
        ("ARG A", "has no value: write NAME=VALUE"),
        ("ENV A one two", "is not NAME=VALUE"),
        ("ENV A=b\\ c", "is not NAME=VALUE"),
        ("ENV A=`b`", "is not NAME=VALUE"),
        ('ENV A="$(b)"', "is not NAME=VALUE"),
        ("ENV A.B=1", "is not NAME=VALUE"),
        ("ENV A= B=1", "is not NAME=VALUE"),
        ("ENV A=x= B=1", "is not NAME=VALUE"),
        ('ENV A=x"y"', "is not NAME=VALUE"),
        ("ENV A=1 B=$A", "refers to a variable that it sets"),
        ("LABEL a=$B", "has a variable: write its value"),
        ('WORKDIR "/a b"', "has a path with special letters"),
        ("USER me", "has no meaning, a container's user is who starts it"),
        ("CMD [python, a]", "is no list of strings"),
        ("CMD [1]", "is no list of strings"),
        ('CMD ["a\\n%setup\\n  touch /tmp/x"]', "has a line break or {{ in a word"),
        ('ENTRYPOINT ["{\\u007bx}}"]', "has a line break or {{ in a word"),
        ("COPY ../../home/u/.ssh/id_rsa /p", "has .. in a path"),
        ('SHELL ["/bin/bash", "-c"]', "changes the shell of what follows"),
        ("ONBUILD RUN a", "is for images on top of this one"),
        ("HEALTHCHECK CMD curl a", "has no meaning without Docker's daemon"),
        ("FROM other", "begins a second stage"),
        ("INSTALL a", "is no instruction of a Dockerfile"),
    ],
)
def test_refused(line: str, reason: str) -> None:
    found = refuse(f"FROM a\n{line}\nRUN true\n")
    assert [number for number, _ in found] == [2]
    assert found[0][1].startswith(reason)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("FROM $A\n", 1, "names the image by a variable"),
        ("FROM --platform=linux/amd64 a\n", 1, "has an option that definition files lack"),
        ("RUN a\n", 1, "has no FROM"),
        ("# escape=`\nFROM a\n", 1, "changes the letter that joins lines"),
    ],
)
def test_refused_heads(text: str, line: int, reason: str) -> None:
    assert refuse(text)[0][0] == line
    assert refuse(text)[0][1].startswith(reason)


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
    assert found.files == (
        ("a.py", "/.jaxsif-copy/6/"),
        ("*.txt", "/.jaxsif-copy/6/"),
        (".", "/.jaxsif-copy/8/"),
    )
    assert found.environment[0] == '    export A="1.2"'
    assert found.notes == ("line 12: EXPOSE is left out: a container has the host's network",)


@pytest.mark.parametrize(
    ("lines", "runscript"),
    [
        ('CMD ["python", "a b.py"]', ["exec python 'a b.py'"]),
        ("CMD python a.py $X", ["exec /bin/sh -c 'python a.py $X'"]),
        ('CMD ["--help"]\nENTRYPOINT ["python", "a.py"]', ["exec python a.py --help"]),
        ('ENTRYPOINT python a.py\nCMD ["--help"]', ["exec /bin/sh -c 'python a.py'"]),
        ('WORKDIR /app\nCMD ["a"]', ['cd "/app"', "exec a"]),
        ("RUN a", []),
    ],
)
def test_what_starts(lines: str, runscript: list[str]) -> None:
    assert [line.strip() for line in convert(f"FROM a\n{lines}\n").runscript] == runscript


def test_labels_and_an_old_pair() -> None:
    found = convert('FROM a\nLABEL org.b.c="x y" d=1\nENV PATH /x:$PATH\n')
    assert found.labels == ("    org.b.c x y", "    d 1")
    assert found.environment == ('    export PATH="/x:$PATH"',)


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


def test_spython_reads_one_instruction() -> None:
    assert parse_alone(Instruction(1, "ENV", 'A="b c" D=e')).environ == ['A="b c"', "D=e"]
