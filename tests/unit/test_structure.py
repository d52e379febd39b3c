"""The package stays simple: few branches in a function, one meaning for a name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "jaxsif"
MODULES = sorted(PACKAGE.rglob("*.py"))
_BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp)
_MOST_BRANCHES = 12  # in a function


def count_branches(tree: ast.AST) -> int:
    """Conditions, loops, handlers, operands after the first, and parts of comprehensions."""
    branches = 0
    for node in ast.walk(tree):
        branches += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            branches += 1 + len(node.ifs)
    return branches


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_functions_have_few_branches(path: Path) -> None:
    assert [one.name for one in functions(path) if count_branches(one) > _MOST_BRANCHES] == []


def test_public_classes_have_one_meaning() -> None:
    trees = (ast.parse(path.read_text()) for path in MODULES)
    classes = [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert [name for name, times in Counter(classes).items() if times > 1 and name[0] != "_"] == []
