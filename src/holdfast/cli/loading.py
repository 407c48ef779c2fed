"""Load an app from `module:attribute`: from `--app-dir`, or else from the current directory or the installation.

The current directory is searched only if it is safe: see `docs/decisions/0019-apps-in-the-current-directory.md`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import stat
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from holdfast.app.app import App
from holdfast.errors import ConfigError, HoldfastError
from holdfast.runtime.hidden_modules import hidden_file, hiding_files, rename

_EXAMPLE = "for example --app shop.tasks:app"
_ROOT = 0


def load_app(name: str, app_dir: Path | None) -> App:
    """Return the app that `name` refers to; raise `ConfigError` if there is none."""
    module_name, attribute = _parts(name)
    refusal = None
    if app_dir is None:
        refusal = _refusal_of_current()
    if refusal is None:
        place = str(Path.cwd() if app_dir is None else app_dir.absolute())
        if sys.path[:1] != [place]:
            sys.path.insert(0, place)  # it stays: handlers may import later, and job children receive the same path
    module = _import(module_name, app_dir, refusal)
    if refusal is None:
        _refuse_hidden(module_name, module, sys.path[0])
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"module {module_name!r} has no {attribute!r}: {_apps_of(module)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        kind = type(found).__name__
        raise ConfigError(f"{name} has type {kind}, not holdfast.App: {_apps_of(module)}")
    return found


def _parts(name: str) -> tuple[str, str]:
    """Return the module and the attribute; raise `ConfigError` if the name does not have this form."""
    module_name, _, attribute = name.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
        message = f"{name!r} names a file: name the module and its app, as in {dotted}:{attribute or 'app'}"
        raise ConfigError(message)
    if not module_name or not attribute or module_name.startswith("."):
        example = "shop.tasks:app" if not module_name.replace(".", "_").isidentifier() else f"{module_name}:app"
        raise ConfigError(f"the app {name!r} is not of the form module:attribute: write it like {example}")
    return module_name, attribute


def _refusal_of_current() -> str | None:
    """Return why the app is not looked up in the current directory; None if it is safe."""
    try:
        found = Path.cwd().stat()
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if sys.flags.safe_path:
        return "Python runs with -P or $PYTHONSAFEPATH"
    if found.st_mode & stat.S_IWOTH:
        return "every user can write to it"
    if found.st_uid not in {os.geteuid(), _ROOT}:
        return "it belongs to another user"
    return None


def _import(name: str, app_dir: Path | None, refusal: str | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except HoldfastError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(_broken(name, error)) from error
        raise ConfigError(_missing(error.name, app_dir, refusal)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(_broken(name, error)) from error


def _refuse_hidden(name: str, module: ModuleType, place: str) -> None:
    """Raise `ConfigError` if a module elsewhere was imported instead of the one in the app's directory."""
    hidden = hidden_file(name, place)
    if hidden is None:
        return
    if name.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(rename(hidden))
    message = f"{name!r} was imported from {module.__file__}, not from {place}: rename one of the two"
    raise ConfigError(message)


def _missing(name: str, app_dir: Path | None, refusal: str | None) -> str:
    if refusal is not None:
        return (
            f"the module {name!r} is not installed, and the current directory was not searched: {refusal}\n"
            "If you trust what is in it, add --app-dir ."
        )
    place = Path.cwd() if app_dir is None else app_dir
    where = f"the current directory ({place})" if app_dir is None else str(app_dir)
    message = f"the module {name!r} is neither in {where} nor installed"
    near = _near(name, place)
    if near:
        return f"{message}: did you mean {' or '.join(near)}?"
    return f"{message}\nPass the directory that contains it with --app-dir, or install it."


def _near(name: str, place: Path) -> list[str]:
    """Return modules with names like `name`, beside it or one directory below, the most similar first."""
    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    places = [place.joinpath(*package.split("."))] if parent is None else [Path(path) for path in parent.__path__]
    prefix = f"{package}." if package else ""
    beside = {module for folder in places for module in _modules_in(folder)}
    below = {f"{prefix}{path.parent.name}.{last}" for folder in places for path in folder.glob(f"*/{last}.py")}
    return [*(f"{prefix}{module}" for module in difflib.get_close_matches(last, beside)), *sorted(below)]


def _modules_in(folder: Path) -> Iterator[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:  # it does not exist, or may not be read: then it offers nothing
        return
    for entry in entries:
        is_module = entry.suffix == ".py" or (entry.is_dir() and next(entry.glob("*.py"), None) is not None)
        if is_module and entry.stem.isidentifier() and not entry.stem.startswith("__"):
            yield entry.stem


def _broken(name: str, error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    hiding = [f"{rename(file)}." for file in hiding_files(sys.path[0])]
    failure = f"importing {name!r} failed: {type(error).__name__}: {error}{place}"
    return "\n".join([failure, *hiding, "Add --debug to see the traceback."])


def _apps_of(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if names:
        return f"its apps are {', '.join(f'{module.__name__}:{name}' for name in names)}"
    return f"the module has no app; create one with `app = App()` and name it, {_EXAMPLE}"
