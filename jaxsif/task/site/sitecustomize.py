"""Import jaxsif's task package, then step aside: at its start, Python imports only the first
sitecustomize on its path.

The folder is removed from sys.path, and the image's own sitecustomize, if it has one, runs as if
this one did not exist.
"""

import importlib
import importlib.util
import os
import sys

_site = os.path.dirname(os.path.abspath(__file__))
_task = os.path.dirname(_site)


def _import_task() -> None:
    spec = importlib.util.spec_from_file_location(
        "jaxsif_task", os.path.join(_task, "__init__.py"), submodule_search_locations=[_task]
    )
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["jaxsif_task"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]


def _step_aside() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _site]
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        # The import system expects to find the module that it just loaded.
        sys.modules["sitecustomize"] = this


_import_task()
_step_aside()
