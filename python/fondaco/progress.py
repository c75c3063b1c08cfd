"""Progress of pushes: one line that is updated in a terminal or a notebook, and nothing where no person looks."""

from __future__ import annotations

import html
import importlib
import sys
from collections.abc import Callable
from typing import Any, Union

#: Called with the step (``"note"`` for an event, ``""`` when a step has ended), the fraction that is done, and details.
Progress = Callable[[str, Union[float, None], str], None]

#: How wide the line is at most.
_WIDTH = 100


class Line:
    """Shows progress in one line of the standard error.

    >>> Line.text("writing", 0.25, "1 of 4 records")
    'writing  25 %  1 of 4 records'
    """

    def __init__(self) -> None:
        self._shown = 0

    def __call__(self, step: str, fraction: float | None, details: str) -> None:
        if step == "note":
            self._write("\r" + details.ljust(self._shown) + "\n")
            self._shown = 0
        elif step:
            text = self.text(step, fraction, details)[:_WIDTH]
            self._write("\r" + text.ljust(self._shown))
            self._shown = len(text)
        else:
            self._close()

    @staticmethod
    def text(step: str, fraction: float | None, details: str) -> str:
        """The line."""
        percent = "" if fraction is None else f"{fraction * 100:3.0f} %"
        return "  ".join(part for part in (step, percent, details) if part).replace("   ", "  ")

    def _close(self) -> None:
        """Removes the line."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class Cell:
    """Shows progress below the cell of a notebook: one output with a bar, which is updated, and a line for each note."""

    def __init__(self) -> None:
        self._shown: Any = None

    def __call__(self, step: str, fraction: float | None, details: str) -> None:
        display: Any = importlib.import_module("IPython.display").display

        if step == "note":
            display({"text/plain": details}, raw=True)
            return
        if not step:
            return
        text = Line.text(step, fraction, details)
        value = "" if fraction is None else f' value="{fraction:.3f}"'
        bar = f"<progress{value} style='width: 20em'></progress>"
        shown = {"text/plain": text, "text/html": f"{bar} <code>{html.escape(text)}</code>"}
        if self._shown is None:
            self._shown = display(shown, raw=True, display_id=True)
        else:
            self._shown.update(shown, raw=True)


def in_notebook() -> bool:
    """Whether this process runs the cells of a notebook."""
    kernel: Any = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and bool(kernel.IPKernelApp.initialized())


def is_watched() -> bool:
    """Whether a person sees the standard error: in a terminal, or in a notebook."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def chosen(progress: bool | Progress | None) -> Progress | None:
    """The function to call: the given one, one that shows it, or none. ``None`` shows it where a person sees it."""
    if callable(progress):
        return progress
    shown = is_watched() if progress is None else progress
    if not shown:
        return None
    return Cell() if in_notebook() else Line()
