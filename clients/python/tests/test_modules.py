"""The modules of the package: imports only go down, even those for types, so that each module can be read without those above it."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "pawl"
MODULES = {path.stem for path in PACKAGE.glob("*.py")}


def imports(module: str) -> set[str]:
    """Returns the modules of the package that a module imports, anywhere in it."""
    out = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "pawl":
            out |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pawl."):
            out.add(node.module.split(".")[1])
    return out & MODULES


def test_imports_run_down_only() -> None:
    graph = {module: imports(module) for module in MODULES}
    assert len(graph) > 25 and "_convert" in graph["_data"]
    order = tuple(graphlib.TopologicalSorter(graph).static_order())  # a CycleError names the cycle
    assert order.index("errors") < order.index("_convert") < order.index("claim") < order.index("app") < order.index("__init__")
