"""What is refused of a Dockerfile, line by line, and what is remarked on."""

from __future__ import annotations

import pytest

from jaxsif.builds.dockerfile_rules import find_reason, find_remarks

UNFIT = "has a line break, an invisible character or {{ in a word"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("RUN --mount=type=bind,target=/x pip install a", "uses --mount: remove it, and COPY"),
        ("RUN --network=none --mount=type=secret,id=a pip install a", "needs a secret, which stays out of images"),
        ("RUN --network=none pip install a", "uses an option of Docker's builder: remove it"),
        ('RUN ["chmod", "+x", "/a"]', "is a list: write the command as you would in a shell"),
        ("RUN pip3 install --user six", "installs for one user"),
        ("RUN pip install --prefix=/install -r a.txt", "installs where python does not look: leave --prefix out"),
        ("RUN cd a && python -m pip install --prefix /b .", "installs where python does not look"),
        ("ADD A.TGZ /b", "unpacks an archive: use COPY"),
        ("FOO", "is not a Dockerfile instruction"),
        ("CMD", "is empty"),
        ("COPY serve.sh /root/", "is in root's home"),
        ("WORKDIR /root", "is in root's home"),
        ("RUN echo '{{ x }}'", "has {{, which marks a build argument in definition files"),
        ("COPY --parents a/b /c", "has an option that definition files lack"),
        ("COPY --chmod=u+x a b", "has a mode that is not three or four octal digits: use RUN chmod"),
        ("COPY ['a', '/c']", "is not a list of strings: write it as JSON"),
        ('COPY ["a b", "/c"]', "has a path with special characters: rename it"),
        ("COPY a$(b) /c", "has a path with special characters"),
        ("COPY */a /c", "in Docker, also copies hidden files: name the folder instead"),
        ("COPY a b?/* /c", "in Docker, also copies hidden files: name the folder instead"),
        ("COPY /usr/lib/python3.11/site-packages /c", "copies packages for another Python: install them"),
        ("COPY a /usr/lib/python3/dist-packages/", "copies packages for another Python: install them"),
        ("FROM a AS b/c", "names no image"),
        ("FROM a AS 1", "names no image"),
        ("ARG A=`b`", "is not NAME=VALUE"),
        ("ARG A=1 B.C", "is not NAME=VALUE"),
        ("LABEL a `b`", "is not NAME=VALUE"),
        ("LABEL a $(b)", "is not NAME=VALUE"),
        ("COPY <<EOF /c\nx\nEOF", "has a here-document: put its text into a file"),
        ("ADD https://example.org/ /b", "adds a URL that is no plain file: download it with RUN"),
        ("ADD https://example.org/a.git /b", "adds a URL that is no plain file: download it with RUN"),
        ("ADD https://example.org/a.git?ref=b/c /d", "adds a URL that is no plain file: download it with RUN"),
        ("ADD https://example.org/a$(b) /b", "adds a URL that is no plain file: download it with RUN"),
        ("ADD https://example.org/a%20b /b", "adds a URL that is no plain file: download it with RUN"),
        ("ADD https://example.org/a b /c", "adds a URL that is no plain file: download it with RUN"),
        ("ADD --checksum=sha256:1 https://example.org/a /b", "has an option that definition files lack: remove it"),
        ("ADD --chmod=u+x a /b", "has a mode that is not three or four octal digits: use RUN chmod"),
        ("COPY a", "names no place to copy to"),
        ("ADD a", "names no place to copy to"),
        ("ENV A='b $C'", "is not NAME=VALUE"),
        ("ADD a.tar.gz /b", "unpacks an archive: use COPY"),
        ("ADD a.tar* /b", "unpacks an archive: use COPY"),
        ("ENV A one two", "is not NAME=VALUE"),
        ("ENV A=b\\ c", "is not NAME=VALUE"),
        ("ENV A=`b`", "is not NAME=VALUE"),
        ('ENV A="$(b)"', "is not NAME=VALUE"),
        ("ENV A.B=1", "is not NAME=VALUE"),
        ("ENV A=x= B=1", "is not NAME=VALUE"),
        ('ENV A=x"y"', "is not NAME=VALUE"),
        ("LABEL a=$(B)", "is not NAME=VALUE"),
        ('ENV A "b" c', "is not NAME=VALUE"),
        ('WORKDIR "/a b"', "has a path with special characters"),
        ("CMD [python, a]", "is not a list of strings"),
        ("CMD [1]", "is not a list of strings"),
        ('CMD ["a\\n%setup\\n  touch /tmp/x"]', UNFIT),
        ('CMD ["a\\u2028%pre\\u2028touch /tmp/x\\u2028%help\\u2028"]', UNFIT),
        ('ENTRYPOINT ["a", "\\u0085%pre"]', UNFIT),
        ('CMD ["a\\u00a0b"]', UNFIT),
        ('CMD ["a\\ud800b"]', UNFIT),
        ('ENTRYPOINT ["{\\u007bx}}"]', UNFIT),
        ("COPY .* /p", "has a pattern that also matches '..'"),
        ("COPY a/..*/b /p", "has a pattern that also matches '..'"),
        ("COPY ../../home/u/.ssh/id_rsa /p", "has .. in a path"),
        ("SHELL /bin/bash -c", "is not a list with a shell and its options"),
        ("SHELL []", "is not a list with a shell and its options"),
        ('SHELL ["/bin/bash\\n%pre", "-c"]', UNFIT),
        ("ONBUILD RUN a", "runs in what is built on this stage: write it there, after FROM, or remove it"),
        ("FROM --platform=x", "names no image"),
        ("INSTALL a", "is not a Dockerfile instruction"),
    ],
)
def test_refused(line: str, reason: str) -> None:
    word, _, text = line.partition(" ")
    assert find_reason(word, text).startswith(reason)


@pytest.mark.parametrize(
    "line",
    [
        "RUN [ -d x ] || a",
        "RUN pip install --user-agent x",
        "ADD a.tar.md data.tar.d /b/",
        "COPY a.py poetry.lock* ./",
        "COPY . /rooted",
        "ADD data.csv /b",
        "ADD https://example.org:80/v$A/b-${C}.tar.gz?d=e&f=%20 /b/",
        "FROM --platform=linux/amd64 $BASE AS one",
        "ARG A",
        'CMD ["a\\tb", "\u00e9"]',
        "RUN pip install user --upgrade",
        "RUN ./configure --prefix=/usr && pip install a",
        "RUN pip install --target=/x a",
        'SHELL ["/bin/bash", "-c"]',
        "COPY src/* * a ./* /c",
        "COPY $A/b ${C}* /c",
        "COPY a /opt/jax/lib/python3.13/site-packages/",
        "ARG A=1  # why (this)",
        "ARG A= B C='d e'",
        'LABEL org.a.b = "c d"',
        'LABEL a="b:${C}"',
        'ENV A "${B}:/c d"',
    ],
)
def test_not_refused(line: str) -> None:
    word, _, text = line.partition(" ")
    assert find_reason(word, text) == ""


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("RUN apt-get install -y git python3-numpy", "python is the image's own, which does not see"),
        ("RUN apt-get install -y git python3-pip python3-venv", ""),
        ("RUN python3 -m venv /venv", "a separate environment"),
        ("RUN uv sync --frozen", "a separate environment"),
        ("RUN pip install uv && rsync a b", ""),
        ("RUN uv pip install -U 'jax[cuda12]'", "pip may replace the image's JAX"),
        ("RUN conda env create -f a.yml", "a separate environment"),
        ("ENV PATH=/root/.local/bin:$PATH", "/root is hidden"),
        ("ENV PATH=/opt/root:$PATH", ""),
        ("RUN rm -rf /root/.cache/pip", ""),
        ("RUN cp /root-ca.pem /etc/", ""),
        ("RUN apt-get install -y python-is-python3", ""),
        ("RUN pip uninstall virtualenv", ""),
        ("RUN mkdir -p /tmp/models", "what is in /tmp or /var/tmp will not be in the image"),
        ("RUN mkdir -p /tmp/a && cd /tmp/a && make install && rm -r '/tmp/a'", ""),
        ("RUN mkdir -p /tmp/a/b /tmp/c/ && rm -r /tmp/a /tmp/c", ""),
        ("RUN mkdir -p /tmp/a/b && rm -r /tmp/a/b/c /tmp/aa", "what is in /tmp or /var/tmp will not be in the image"),
        ("RUN mkdir /opt/tmp/models && rm /tmp/a", ""),
        ("RUN poetry install --no-root --sync", "poetry removes packages that its lock file lacks"),
        ("RUN poetry config virtualenvs.create false && poetry install", ""),
        ('CMD ["/root/a"]', "/root is hidden"),
    ],
)
def test_remarks(line: str, remark: str) -> None:
    word, _, text = line.partition(" ")
    found = list(find_remarks(word, text))
    assert len(found) == bool(remark)
    assert "".join(found).startswith(remark)
