"""What the task package changes of JAX's compile cache, in modules that are built like JAX's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jaxsif

pytestmark = pytest.mark.starts_processes

TASK_FOLDER = Path(jaxsif.__file__).parent / "task"

MODULES = {
    "monitoring": """
listeners, durations = [], []
register_event_listener = listeners.append
register_event_duration_secs_listener = durations.append
""",
    "lru_cache": """
import pathlib
class LRUCache:
    eviction_enabled = False
    def __init__(self, path):
        self.path = pathlib.Path(path)
    def put(self, key, value):
        path = self.path / f"{key}-cache"
        if not path.exists():
            path.write_bytes(value)
""",
    "compilation_cache": """
def get_executable_and_time(cache_key, backend):
    return b"whole", 1
""",
    "cache_key": """
def _hash_devices(hash_obj, devices):
    hash_obj.update(b"kind")
def _hash_accelerator_config(hash_obj, accelerators):
    hash_obj.update(b"topology")
def _hash_serialized_compile_options(hash_obj, options, strip_device_assignment=False):
    hash_obj.update(b"stripped" if strip_device_assignment else b"own")
""",
}
START = f"import sys; sys.path.insert(0, {str(TASK_FOLDER.parent.parent)!r}); sys.path.insert(0, '.')\n" + (
    "import os\nfrom jaxsif.task import compilecache, failure\nos.dup2(1, 2)\n"
    "compilecache.install(failure.reporter({'SLURM_PROCID': '5', 'JAXSIF_REPORT': '4e5f'}))\n"
)


@pytest.fixture
def jax(tmp_path: Path) -> Path:
    """A folder with a package that has JAX's names."""
    (tmp_path / "jax/_src").mkdir(parents=True)
    for name, source in {"../__init__": "", "__init__": "", **MODULES}.items():
        (tmp_path / f"jax/_src/{name}.py").write_text(source)
    return tmp_path


def run(folder: Path, program: str) -> str:
    """Execute a program behind the hook, in `folder`; return what it prints."""
    argv = [sys.executable, "-ISc", START + program]
    return subprocess.run(argv, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout


def test_events_are_counted(jax: Path) -> None:
    program = """
from jax._src import monitoring
for event in ("compile_requests_use_cache", "compile_requests_use_cache", "cache_hits", "cache_misses", "other"):
    monitoring.listeners[0]("/jax/compilation_cache/" + event, more=1)
monitoring.listeners[0]("/jax/other/cache_hits")
monitoring.durations[0]("/jax/compilation_cache/compile_time_saved_sec", 2.5)
monitoring.durations[0]("/jax/compilation_cache/compile_time_saved_sec", -1.0)
if os.fork() == 0:
    sys.exit()
os.wait()
"""
    counts = '"event": "cache", "requests": 2, "hits": 1, "written": 1, "saved": 2.5'
    assert run(jax, program) == f'\x1ejaxsif 4e5f {{"task": 5, "node": "", {counts}}}\n'


def test_half_an_entry_is_never_seen(jax: Path) -> None:
    program = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from jax._src.lru_cache import LRUCache
try:
    LRUCache(".").put("k", bytes(5000))
except OSError as error:
    print(error.errno, os.listdir("."))
"""
    assert run(jax, program) == "27 ['jax']\n"


HASH = """
import types
from jax._src import cache_key
class Hash:
    def __init__(self): self.seen = []
    def update(self, data): self.seen.append(data)
def accelerators(platform, *processes):
    devices = [types.SimpleNamespace(platform=platform, process_index=process) for process in processes]
    found = Hash()
    cache_key._hash_accelerator_config(found, types.SimpleNamespace(flat=devices))
    return found.seen
"""


def test_on_cpus_the_key_is_not_that_of_one_process(jax: Path) -> None:
    program = """
found = Hash()
cache_key._hash_serialized_compile_options(found, None, strip_device_assignment=False)
print(found.seen, accelerators("cpu", 0)[0], len(accelerators("cpu", 0)))
"""
    assert run(jax, HASH + program) == "[b'stripped'] b'kind' 2\n"


def test_on_gpus_of_several_processes_the_key_has_no_fingerprint_of_one(jax: Path) -> None:
    """Nodes whose GPUs are linked in other ways would have other keys, and some processes would compile alone."""
    program = 'print(accelerators("gpu", 0, 1), accelerators("gpu", 1, 1))'
    assert run(jax, HASH + program) == "[b'kind'] [b'topology']\n"


@pytest.mark.parametrize("name", MODULES)
def test_another_jax_is_left_alone(jax: Path, name: str) -> None:
    (jax / f"jax/_src/{name}.py").write_text("answer = 42")
    assert run(jax, f"from jax._src import {name}\nprint({name}.answer)") == "42\n"
