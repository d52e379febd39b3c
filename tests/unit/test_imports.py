"""Imports point one way; the pure modules stay pure; what runs in the container needs nothing but Python 3.9."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jaxsif"

# From bottom to top: a module imports from its own folder and from places above in this list.
ORDER = (
    *("limits", "text", "errors", "screen", "foreign", "files", "trust", "process", "runtime", "installation", "help"),
    *("job", "settings", "images", "container", "builds", "layers", "layout", "plan", "diagnose", "watch", "history"),
    "launch",
    "doctor",
    *("modules", "bench", "commands", "cli", "__main__"),
)
# They compute values from values, and reach nothing of the system.
PURE = ("limits", "text", "errors", "help", "job", "layout", "plan", "diagnose", "watch", "doctor")
IMPURE = ("layout.topology", "watch.inspector", "doctor.step")  # of pure folders, they reach the system
# On the way of `jaxsif run`, which must start fast, while each of SLOW_MODULES takes a millisecond or more to import
# (dataclasses brings inspect, and writes its methods anew at every start): a function that needs one imports it then.
FAST = (
    *("limits", "text", "errors", "screen", "foreign", "files", "trust", "process", "runtime", "installation", "cli"),
    "commands.run",
    *("job.allocation", "job.counts", "job.nodelist", "job.srun_options", "job.task_env"),
    *("settings.options", "settings.config", "settings.fabric", "settings.read"),
    *("images.sif", "images.file", "container.environment", "container.libraries"),
    *("container.elf", "layers.store", "diagnose.symptoms", "diagnose.reports"),
    *("diagnose.facts", "diagnose.culprit", "diagnose.starts"),
    *("layout.layout", "layout.planner", "layout.topology"),
    *("plan.plan", "plan.host", "plan.host_list", "plan.launcher", "plan.container"),
    *("plan.command", "plan.notes", "plan.map", "launch.probe", "launch.container", "launch.pipeline"),
    "launch.coordinator",
    *("launch.program", "launch.children", "launch.gpus"),
    *("launch.launchers.srun", "launch.launchers.local"),
)
# What anyone may import of the task's package, which itself imports nothing outside of it.
CONTRACT = ("task.contract",)
SLOW_MODULES = {"dataclasses", "pathlib", "shutil", "json", "shlex"}
IMPURE_MODULES = {"subprocess", "os", "shutil", "socket", "pathlib", "tempfile", "sys"}
IMPURE_CALLS = {"print", "open", "input", "exec", "eval"}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py" and not {"task", "node", "inside"}.intersection(path.relative_to(PACKAGE).parts)
}
# What runs on the nodes, by whatever Python is there: in the container, and outside of it.
TASK_FILES = sorted((PACKAGE / "task").rglob("*.py"))
NODE_FILES = sorted((PACKAGE / "node").rglob("*.py"))


def imported(source: str | ast.AST) -> Iterator[str]:
    """Full names of what a source imports, at its top or inside its functions: 'jaxsif.errors', 'os', 'os.path'.

    From `from jaxsif import launch, plan` come 'jaxsif.launch' and 'jaxsif.plan'.
    """
    for node in ast.walk(ast.parse(source) if isinstance(source, str) else source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield from ("." * node.level + (node.module or alias.name) for alias in node.names)
            elif node.module in ("jaxsif", "jaxsif.task"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def place(module: str) -> int:
    """The position in ORDER of 'errors', or of 'images.build'."""
    return ORDER.index(module.split(".")[0])


def backward_imports(module: str, source: str) -> list[str]:
    """The imports of `module` from behind it in ORDER; those within a folder are not judged."""
    inside = [name[len("jaxsif.") :] for name in imported(source) if name.startswith("jaxsif.")]
    free = ("__version__", *CONTRACT)
    others = [name for name in inside if name not in free and name.split(".")[0] != module.split(".")[0]]
    return [name for name in others if name.split(".")[0] == "task" or place(name) >= place(module)]


def impurities(source: str) -> list[str]:
    """What a pure module must not have: imports that reach the system, and calls that speak to it."""
    names = [name for name in imported(source) if name.split(".")[0] in IMPURE_MODULES]
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return names + [call.id for call in calls if isinstance(call, ast.Name) and call.id in IMPURE_CALLS]


def test_every_module_has_a_place_in_the_order() -> None:
    assert {module.split(".")[0] for module in MODULES} == set(ORDER)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    assert backward_imports(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in PURE and name not in IMPURE])
def test_pure_modules_reach_nothing_outside(module: str) -> None:
    assert impurities(MODULES[module].read_text()) == []


def loaded_by(*names: str) -> set[str]:
    """The names of all modules that Python has once it has imported these."""
    imports = "".join(f"import jaxsif.{name}\n" for name in names)
    done = subprocess.run(
        [sys.executable, "-ISc", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{imports}print(*sys.modules)"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return set(done.stdout.split())


@pytest.mark.starts_processes
def test_nothing_slow_is_imported_by_what_they_import() -> None:
    loaded = loaded_by(*FAST)
    assert "jaxsif.launch.pipeline" in loaded
    assert SLOW_MODULES & loaded == set()


@pytest.mark.starts_processes
def test_what_few_runs_need_is_imported_by_those() -> None:
    """A run without --env has no secrets to look for; one without files of settings reads no TOML, nor groups."""
    loaded = loaded_by("launch.pipeline", "commands.run")
    assert "jaxsif.trust" in loaded
    assert {
        "jaxsif.settings.secret",
        "jaxsif.settings.tomlfile",
        "jaxsif.container.policy",
        "grp",
        "pwd",
        "hashlib",
    } & loaded == set()


@pytest.mark.starts_processes
def test_the_history_of_a_run_needs_no_pictures() -> None:
    """The states of tasks are many patterns to compile, for the few runs whose tasks wait."""
    assert {"jaxsif.watch.snapshot", "jaxsif.watch.states"} & loaded_by("history.recorder") == set()


@pytest.mark.starts_processes
def test_what_a_task_of_mpirun_imports_is_little() -> None:
    assert {"typing", "re", "enum"} & loaded_by("job.task_env") == set()


def test_only_process_starts_processes() -> None:
    starts = ("subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_", "os.exec", "os.fork")
    found = {name for name, path in MODULES.items() if any(start in path.read_text() for start in starts)}
    assert found == {"process"}


def test_only_cli_reads_the_environment() -> None:
    found = {name for name, path in MODULES.items() if "os.environ" in path.read_text() or "getenv" in path.read_text()}
    assert found == {"cli"}


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 has no list of its standard library")
@pytest.mark.parametrize("path", TASK_FILES + NODE_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_runs_on_nodes_is_python_3_9_and_the_standard_library(path: Path) -> None:
    source = path.read_text()
    ast.parse(source, feature_version=(3, 9))
    names = {name for name in imported(source) if not name.startswith(".")}
    of_task = {name for name in names if name.startswith("jaxsif.task")}
    assert {name.split(".")[0] for name in names} <= {
        *sys.stdlib_module_names,
        *(["jaxsif"] if path in NODE_FILES else []),
    }
    assert of_task <= {f"jaxsif.{name}" for name in CONTRACT}


def test_what_starts_each_task_imports_little() -> None:
    assert set(imported((PACKAGE / "node/share.py").read_text())) == {
        *("_signal", "_socket", "ctypes", "os", "sys", "time"),
        "collections.abc",  # for the checker of types only
        "jaxsif.node.allowed",  # under a policy
        "jaxsif.node.keeper",  # in the first task of a node, in a process of its own
        "jaxsif.node.stage",  # in a task that goes alone
    }


@pytest.mark.parametrize("module", MODULES)
def test_launcher_is_python_3_9(module: str) -> None:
    ast.parse(MODULES[module].read_text(), feature_version=(3, 9))
