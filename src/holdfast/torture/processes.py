"""The processes of a run other than workers: producers and the outside server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.torture.failure import RunFailed
from holdfast.torture.history import process_name
from holdfast.torture.log import Log
from holdfast.torture.recorder import NAME, ROLE


class ProgramEnded(RunFailed):
    """A program exited unexpectedly."""


class Program:
    """A process, and the lines that it writes."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, output: Path) -> None:
        self.name = name
        self.process = process
        self._output = output
        self._listening: asyncio.Task[None] | None = None

    async def line(self) -> bytes:
        """Return the next line; raises `ProgramEnded` if there is none."""
        found = b"" if self.process.stdout is None else await self.process.stdout.readline()
        if not found:
            await self.process.wait()
            self._refuse()
        return found

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Pass every further line to `take`."""

        async def listen() -> None:
            while self.process.stdout is not None and (line := await self.process.stdout.readline()):
                take(line)

        self._listening = asyncio.create_task(listen())

    async def ended(self) -> int:
        """Wait for the exit, and for the last line."""
        code = await self.process.wait()
        if self._listening is not None:
            await self._listening
        return code

    def require_alive(self) -> None:
        """Raise `ProgramEnded` unless it runs."""
        if self.process.returncode is not None:
            self._refuse()

    def _refuse(self) -> None:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "no output"
        raise ProgramEnded(f"{self.name} exited unexpectedly with code {self.process.returncode}: {reason}")


class Programs:
    """Starts programs, and leaves none behind."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log = log
        self._folder = folder
        self._programs: list[Program] = []

    async def start(self, role: str, name: str, settings: msgspec.Struct, environment: Mapping[str, str]) -> Program:
        """Start a program by its role."""
        output = self._folder / f"{role}-{name}.log"
        module = f"holdfast.torture.programs.{role}"
        with output.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, msgspec.json.encode(settings).decode()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment, ROLE: role, NAME: name},
            )
        program = Program(process_name(role, name, process.pid), process, output)
        self._programs.append(program)
        return program

    def running(self) -> list[Program]:
        """Return the programs that run."""
        return [program for program in self._programs if program.process.returncode is None]

    async def end(self, programs: Iterable[Program], *, within: float) -> int:
        """Ask programs to shut down, wait for them, and record their exits; return how many had to be killed."""
        ending = list(programs)
        for program in ending:
            _send(program, signal.SIGTERM)
        killed = 0
        give_up = asyncio.get_running_loop().time() + within
        for program in ending:
            try:
                async with asyncio.timeout_at(give_up):
                    code = await program.ended()
            except TimeoutError:
                killed += 1
                _send(program, signal.SIGKILL)
                code = await program.process.wait()
            self._log.exited(program.name, code)
        return killed

    async def kill(self) -> None:
        """Kill all programs that still run."""
        for program in self.running():
            _send(program, signal.SIGKILL)
            await program.ended()


def _send(program: Program, number: signal.Signals) -> None:
    if program.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            program.process.send_signal(number)
