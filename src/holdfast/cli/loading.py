"""Load an app from `module:attribute`. Modules are imported from the installation and from `--app-dir` only."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from holdfast.app.app import App
from holdfast.errors import ConfigError, HoldfastError

_EXAMPLE = "for example --app shop.tasks:app"


def load_app(name: str, app_dir: Path | None) -> App:
    """Return the app that `name` refers to; raise `ConfigError` if there is none."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute or module_name.startswith("."):
        message = f"--app {name!r} is not of the form module:attribute: write it like shop.tasks:app"
        raise ConfigError(message)
    if app_dir is not None:
        sys.path.insert(0, str(app_dir.absolute()))
    module = _import(module_name, app_dir)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"module {module_name!r} has no {attribute!r}: {_apps_of(module)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        kind = type(found).__name__
        raise ConfigError(f"{name} has type {kind}, not holdfast.App: {_apps_of(module)}")
    return found


def _import(name: str, app_dir: Path | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except HoldfastError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(_broken(name, error)) from error
        if app_dir is None:
            remedy = "is not installed: if it is in the current directory, add --app-dir ."
        else:
            remedy = f"is neither in {app_dir} nor installed"
        message = f"the module {error.name!r} {remedy}"
        raise ConfigError(message) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(_broken(name, error)) from error


def _broken(name: str, error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"importing {name!r} failed: {type(error).__name__}: {error}{place}\nAdd --debug to see the traceback."


def _apps_of(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if names:
        return f"its apps are {', '.join(f'{module.__name__}:{name}' for name in names)}"
    return f"the module has no app; create one with `app = App()` and name it, {_EXAMPLE}"
