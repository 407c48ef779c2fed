"""Programs from Debian's packages, unpacked into a cache without root: no service starts, and nothing is installed.

apt downloads into separate directories: it verifies the signature of the index, and each package against
the hash in it. The mirror is that of this machine's own configuration. A package comes with all that it depends on,
down to the C library and its loader, so that it may be of another release than the machine.

`python -m holdfast.testing.debian_packages PACKAGE [SUITE]` fills the cache, unless another process is doing so.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import ConfigError

CACHE_VARIABLE = "HOLDFAST_CACHE"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIST = "packages.txt"  # in each unpacked tree: the files of the packages, with their SHA-256
_NO_APT = "there is no apt on this machine"


def cache_folder() -> Path:
    """Return $HOLDFAST_CACHE, or the usual place: for root one that the user of a server can read."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    if os.getuid() == 0:
        return Path("/var/cache/holdfast")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def cached(package: str) -> Path | None:
    """Return the unpacked tree of a package, if the cache has it."""
    tree = _tree(package)
    return tree if (tree / _LIST).exists() else None


def _tree(package: str) -> Path:
    return cache_folder() / package


def unpacked(package: str, suite: str | None = None) -> Path:
    """Return the tree of a package from the cache, downloaded if need be; waits for a process that is doing so.

    `suite` is a release of Debian, by default that of this machine. Raises `ConfigError`.
    """
    with _alone(package):
        return cached(package) or _fetched(package, suite)


@contextmanager
def _alone(package: str, *, waits: bool = True) -> Generator[None]:
    """Exclude other processes; raises `BlockingIOError` if there is one, unless it waits."""
    folder = cache_folder()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = (folder / f"{package}.lock").open("a")
    except OSError as error:
        reason = f"{folder} cannot be written ({error.strerror}): set ${CACHE_VARIABLE} to another directory"
        raise ConfigError(reason) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _fetched(package: str, suite: str | None) -> Path:
    """Download and unpack beside the tree, and rename at the end: a tree is there as a whole or not at all."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ConfigError(_NO_APT)
    with tempfile.TemporaryDirectory(prefix=f"{package}.", dir=cache_folder()) as work:
        folder = Path(work)
        new = folder / "tree"
        new.mkdir(mode=0o755)
        archives = _downloaded(folder, package, suite)
        for archive in archives:
            _run("dpkg-deb", "--extract", str(archive), str(new))
        listed = _run("sha256sum", *(archive.name for archive in archives), cwd=archives[0].parent)
        (new / _LIST).write_text(listed)
        new.rename(_tree(package))
    return _tree(package)


def _downloaded(folder: Path, package: str, suite: str | None) -> list[Path]:
    """Return the archives of a package and of all that it depends on."""
    (folder / "status").touch()  # as if nothing were installed
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    mirror, own_suite = _mirror()
    trusted = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    (folder / "sources.list").write_text(f"deb {trusted}{mirror} {suite or own_suite} main\n")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Cache::archives": "archives",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "APT::Sandbox::User": "",  # no other user could write here
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",  # the directories are ours alone
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    _run(*apt, "update", "--error-on=any")
    _run(*apt, "install", "--yes", "--download-only", package)
    return sorted((folder / "cache/archives").glob("*.deb"))


def _mirror() -> tuple[str, str]:
    """Return the mirror that this machine is configured for, and the release that it has from there."""
    columns = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    targets = _run("apt-get", "indextargets", "--no-release-info", "--format", columns, "Created-By: Packages")
    found = [line.split()[:2] for line in targets.splitlines() if line.endswith(" main")]
    if not found:
        raise ConfigError("apt is configured for no mirror with a component main")
    mirror, release = min(found, key=lambda each: len(each[1]))  # bookworm, not bookworm-updates
    return mirror, release


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)  # noqa: S603 - our own words
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
        raise ConfigError(f"{command[0]} has failed: {' | '.join(lines[-3:])}")
    return done.stdout


def main() -> None:
    """Fill the cache; another process that is at it needs no help."""
    package, *suite = sys.argv[1:]
    try:
        with _alone(package, waits=False):
            if cached(package) is None:
                _fetched(package, suite[0] if suite else None)
    except BlockingIOError:
        return
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
