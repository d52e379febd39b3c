"""Facts of a node: probes that fail or hang, the first node and another one, files that nodes share."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from jaxsif.node import node_facts, nvml
from jaxsif.node.node_facts import (
    digest_ends,
    find_problem,
    find_there,
    leave_mark,
    marked,
    probe_network,
    run_probes,
)

MARK = "jaxsif-doctor-0123"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_probe_that_hangs_or_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "_PATIENCE", 0.2)
    begin = time.monotonic()
    found = run_probes(
        {"one": lambda: {"a": 1}, "two": lambda: {"b": 1 // 0}, "three": lambda: threading.Event().wait(60) or {}}
    )
    assert time.monotonic() - begin < 5
    assert found["a"] == 1
    assert dict(found["failed"]) == {"two": "integer division or modulo by zero", "three": "no answer within 0 s"}


def test_two_nodes(tmp_path: Path) -> None:
    """The second one reaches the first, sees its file, and measures clock and rate."""
    port, folders = free_port(), [str(tmp_path), "/proc/none"]
    first: dict[str, object] = {}
    server = threading.Thread(target=lambda: first.update(probe_network([], 0, 2, port, MARK, folders)))
    server.start()
    found = probe_network(["127.0.0.1"], 1, 2, port, MARK, folders)
    server.join()
    assert "reason" not in found
    assert abs(found["skew"]) < 0.5
    assert found["rate"] > 0
    assert found["folders"] == [[folders[0], ""], [folders[1], "not the same folder as on the first node"]]
    assert first["reason"] == ""
    assert first["folders"] == [[folders[0], ""], [folders[1], "cannot write in /proc: No such file or directory"]]
    assert os.listdir(tmp_path) == []


def test_a_folder_that_the_program_makes_is_checked_above(tmp_path: Path) -> None:
    assert find_there(f"{tmp_path}/runs/1") == str(tmp_path)
    (tmp_path / "runs").touch()
    assert find_there(f"{tmp_path}/runs") == f"{tmp_path}/runs"


def test_a_large_step_measures_no_rates() -> None:
    port = free_port()
    server = threading.Thread(target=probe_network, args=([], 0, 2, port, MARK, []))
    server.start()
    found = probe_network(["127.0.0.1"], 1, 129, port, MARK, [])
    server.join()
    assert found.keys() == {"skew", "folders"}


def test_a_node_that_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "_CONNECT", 0.2)
    port = free_port()
    assert probe_network(["127.0.0.1"], 1, 2, port, MARK, []) == {
        "reason": f"127.0.0.1:{port}: Connection refused",
    }
    assert probe_network([], 1, 2, port, MARK, [])["reason"].startswith(f"no address:{port}: ")


def test_addresses_of_the_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried, and all are named if none answers."""
    monkeypatch.setattr(node_facts, "_CONNECT", 0.3)
    port = free_port()
    server = threading.Thread(target=probe_network, args=([], 0, 2, port, MARK, []))
    server.start()
    assert "reason" not in probe_network(["255.255.255.255", "127.0.0.1"], 1, 2, port, MARK, [])
    server.join()
    reason = probe_network(["::1", "127.0.0.1"], 1, 2, port, MARK, [])["reason"]
    assert reason.startswith(f"::1,127.0.0.1:{port}: ")


def test_rotated_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [("10.0.0.2", "fd00::1", "10.0.0.1"), ("10.0.0.1", "10.0.0.2", "fd00::1")]
    rows = [[(0, 0, 0, "", (address, 0)) for address in (*answer, answer[0])] for answer in answers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows.pop())
    found = [node_facts.find_addresses("%N-ib", "n1"), node_facts.find_addresses("%N-ib", "n1")]
    assert found == [list(answers[1]), list(answers[0])]


def test_another_program_at_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer() -> None:
            with other.accept()[0] as client:
                client.recv(100)
                client.sendall(b"SSH-2.0-OpenSSH\r\n")

        stranger = threading.Thread(target=answer)
        stranger.start()
        found = probe_network(["127.0.0.1"], 1, 2, port, MARK, [])
        stranger.join()
        reason = f"127.0.0.1:{port}: connected, but another program answers, or none"
        assert found == {"reason": reason}
        assert "is not free" in probe_network([], 0, 2, port, MARK, [])["reason"]


def test_a_stranger_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "_CONNECT", 1.0)
    port = free_port()
    server = threading.Thread(target=probe_network, args=([], 0, 2, port, MARK, []))
    server.start()
    with node_facts.connect(["127.0.0.1"], port) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        client.settimeout(5)
        assert client.recv(100) == b""
    server.join()


def test_a_first_node_that_is_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers late, and not the large messages: it is reached, at an unknown rate."""
    monkeypatch.setattr(node_facts, "_CONNECT", 2.0)

    def answer(server: socket.socket) -> None:
        with server.accept()[0] as client, client.makefile("rwb") as stream:
            assert stream.readline() == f"{MARK}\n".encode()
            time.sleep(1.2)
            for _ in range(3):
                stream.write(f"{time.time()}\n".encode() + stream.readline())
                stream.flush()
            time.sleep(2.5)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        found = probe_network(["127.0.0.1"], 1, 100, server.getsockname()[1], MARK, [])
        thread.join()
    assert found == {"skew": found["skew"], "folders": []}


def test_a_first_node_without_descriptors() -> None:
    """It answers when there are some again; the stranger before does not count as the other node."""
    port, first = free_port(), []
    server = threading.Thread(target=lambda: first.append(probe_network([], 0, 2, port, MARK, [])))
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        server.start()
        with node_facts.connect(["127.0.0.1"], port) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(100) == b""
        with suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        os.close(held.pop())
        with node_facts.connect(["127.0.0.1"], port) as client, client.makefile("rwb") as stream:
            time.sleep(0.1)
            os.close(held.pop())
            assert node_facts.measure(stream, MARK)["rate"] > 0
        server.join()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)
    assert [one["reason"] for one in first] == [""]


def test_marks(tmp_path: Path) -> None:
    with marked([str(tmp_path)], MARK) as problems:
        assert problems == [[str(tmp_path), ""]]
        assert find_problem(str(tmp_path), MARK) == ""
        assert find_problem(str(tmp_path), "other") == "not the same folder as on the first node"
    assert leave_mark("/proc/x").startswith("cannot write in /proc: ")


def test_an_image(tmp_path: Path) -> None:
    image = tmp_path / "jax.sif"
    assert digest_ends(str(image)) == "missing"
    assert digest_ends(str(tmp_path)) == digest_ends("") == ""
    image.write_bytes(b"x" * (3 << 20))
    first = digest_ends(str(image))
    image.write_bytes(b"x" * (3 << 20) + b"y")
    assert digest_ends(str(image)) != first


@pytest.mark.parametrize(
    ("environ", "numbers"),
    [
        ({}, [0, 1, 2, 3]),
        ({"SLURM_STEP_GPUS": "2,3"}, [2, 3]),  # those of other jobs are visible
        ({"SLURM_STEP_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "1"}, [1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"SLURM_STEP_GPUS": "4,5,6,7", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [0, 1, 2, 3]),  # ConstrainDevices
        ({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, [0, 1, 2, 3]),  # one is lost
    ],
)
def test_gpus_of_the_step(environ: dict[str, str], numbers: list[int]) -> None:
    assert [row[0] for row in nvml.select_gpus([[number] for number in range(4)], environ)] == numbers


USED = ((3, 0), (70_000, 0), (80_000, 1), (-1, -1))  # MiB, and whether MIG is on


@pytest.mark.parametrize(
    ("visible", "memory"), [("0,1", 70_000), ("0", 3), ("", 70_000), ("2", 0), ("3", 0), ("0,3", 3)]
)
def test_the_memory_of_gpus(monkeypatch: pytest.MonkeyPatch, visible: str, memory: int) -> None:
    """That of the step's own GPUs; not of one with MIG, or that is lost."""
    rows = [[number, "GPU", used, 0, 0, 0, 0, 0, mig, 700, 700] for number, (used, mig) in enumerate(USED)]
    monkeypatch.setattr(nvml, "read_driver", lambda: {"driver": "580", "gpus": rows})
    assert nvml.read_memory({"CUDA_VISIBLE_DEVICES": visible}) == memory


def test_without_a_driver_the_memory_of_gpus_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnone.so.1")
    assert nvml.read_memory({}) == 0


@pytest.mark.parametrize(
    "text", ["oom-kill:task=python,pid=7,uid={}", "Out of memory: Killed process 7 (a), UID {}, b"]
)
def test_kills_of_the_kernel(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this user, not too long ago."""
    monkeypatch.setattr(node_facts, "_OLDEST", 10.0)
    own, other = text.format(os.getuid()), text.format(os.getuid() + 1)
    now = time.monotonic()
    assert node_facts.find_notable(f"4,1,{now * 1e6:.0f},-;{own}") == own
    assert node_facts.find_notable(f"4,1,{(now - 20) * 1e6:.0f},-;{own}") == ""
    assert node_facts.find_notable(f"4,1,{now * 1e6:.0f},-;{other}") == ""
    assert node_facts.find_notable("NVRM: Xid (PCI:0000:01:00): 79") == ""  # no line of the log
