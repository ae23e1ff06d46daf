"""Exit codes, and what each exception is for the person at the keyboard."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Any

from dataset_rt.errors import (
    CacheIOError,
    CacheLockedError,
    DatasetRTError,
    InternalError,
    InterruptedReadError,
    InvalidCacheError,
)

__all__ = ["Exit", "Refused", "as_document", "exit_code", "sentence"]


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    DIFFERENT = 1
    """Findings, differences, or a question that was answered with no."""
    USAGE = 2
    """A wrong argument: an unknown option, column, sample id or condition."""
    UNUSABLE = 3
    """A cache that is missing, damaged or too new."""
    SYSTEM = 4
    """What the operating system refused, or another process has locked."""
    DEFECT = 70
    """A fault of this program."""
    INTERRUPTED = 130
    """Ctrl-C."""
    PIPE = 141
    """Whoever read the output went away."""


class Refused(Exception):  # noqa: N818 (a reason to stop, not a fault)
    """A command that cannot go on, and why."""

    def __init__(self, message: str, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: BaseException) -> Exit:
    """Return the exit code for an exception."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, InternalError | InterruptedReadError):
        return Exit.DEFECT
    if isinstance(error, InvalidCacheError):
        return Exit.UNUSABLE
    if isinstance(error, CacheIOError | CacheLockedError | OSError | MemoryError):
        return Exit.SYSTEM
    # Polars and Pydantic are looked at by name: both may not even be loaded.
    origin = type(error).__module__.partition(".")[0]
    if isinstance(error, DatasetRTError | ModuleNotFoundError) or origin in ("polars", "pydantic", "pydantic_core"):
        return Exit.USAGE
    return Exit.DEFECT


def sentence(error: BaseException) -> str:
    """Return the message of an exception, in words that say what to do where that is not obvious."""
    text = str(error).strip() or type(error).__name__
    if exit_code(error) is Exit.DEFECT:
        advice = "this is a defect of dataset-rt; run it again with --traceback and report it"
        return f"{type(error).__name__}: {text}\n{advice}"
    if isinstance(error, MemoryError):
        return f"out of memory: {text}"
    return text


def as_document(error: BaseException) -> dict[str, Any]:
    """Return an exception as JSON has it: its class, message, exit code, and the facts it carries."""
    fields = getattr(error, "_fields", {})
    facts = {name: f"{fact}" if isinstance(fact, Path) else fact for name, fact in fields.items()}
    return {"kind": type(error).__name__, "message": sentence(error), "exit_code": int(exit_code(error)), **facts}
