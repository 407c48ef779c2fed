"""Run a command in a pseudo-terminal and save what its screen shows at the end as an SVG.

`python docs/pictures/demo.py` runs `holdfast demo` and writes `docs/pictures/demo.svg`; `make pictures` calls it.
Any other command: `python docs/pictures/demo.py --width 80 --to list.svg holdfast job list`.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 96
HEIGHT = 200  # higher than any output, so that nothing scrolls away
SEED = 2026  # the outcome of every attempt is the same in every run; the kills and the rates are not
TARGET = Path(__file__).with_name("demo.svg")

# The controls that Rich writes: colours stay in the text, the rest moves the cursor or erases.
CONTROL = re.compile(r"\x1b\[(?P<number>\d*)(?P<verb>[AK])|\x1b\[\?25[lh]|(?P<line>\r?\n)|(?P<return>\r)")

# The frame of Rich without its web fonts: the picture needs nothing from the network.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def screen(output: str) -> list[str]:
    """Return the lines that a terminal shows after this output, with their colours."""
    lines = [""]
    row = 0
    done = 0
    for control in CONTROL.finditer(output):
        lines[row] += output[done : control.start()]
        done = control.end()
        if control["line"]:
            row += 1
            if row == len(lines):
                lines.append("")
        elif control["verb"] == "A":
            row = max(0, row - int(control["number"] or 1))
        elif control["verb"] == "K" or control["return"]:
            lines[row] = ""  # Rich erases a line before it writes it again
    lines[row] += output[done:]
    return lines


def record(command: Sequence[str], folder: Path, width: int = WIDTH, codes: Sequence[int] = (0,)) -> str:
    """Run a command in a pseudo-terminal; return all that it writes; raise if it ends with another exit code."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", HEIGHT, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    with subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    ) as program:
        os.close(theirs)
        output = bytearray()
        while chunk := _read(ours):
            output += chunk
    os.close(ours)
    text = output.decode()
    if program.returncode not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {program.returncode}:\n{text}")
    return text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports the end of the other side as an error
        return b""


def picture(title: str, lines: Sequence[str], width: int = WIDTH) -> str:
    """Return an SVG of a terminal that shows these lines."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        out = Console(file=nowhere, record=True, width=width, force_terminal=True, color_system="truecolor")
        for each in lines:
            out.print(Text.from_ansi(each), no_wrap=True, crop=True)
        return out.export_svg(title=title, theme=MONOKAI, code_format=FRAME, unique_id="demo")


def demo(jobs: int, width: int) -> str:
    """Run the demo in an empty folder, on SQLite; return all that it writes."""
    command = [sys.executable, "-m", "holdfast", "demo", "--jobs", str(jobs), "--seed", str(SEED)]
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        return record([*command, "--url", "sqlite:///demo.db"], Path(folder), width)


def main() -> None:
    """Take a picture of the demo, or of another command."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="of the demo")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--to", type=Path, default=TARGET)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command:
        title, output = " ".join(options.command), record(options.command, Path.cwd(), options.width)
    else:
        title, output = "holdfast demo", demo(options.jobs, options.width)
    options.to.write_text(picture(title, screen(output), options.width), encoding="utf-8")


if __name__ == "__main__":
    main()
