"""A worker process: started in a contender's environment, ready after its checks, then measured line by line.

Between measurements it is stopped, with all processes that it has started: loaders fill their queues as long as they
can, and would do so while another contender is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benches.environments import clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = Path(__file__).with_name("worker")
PATIENCE = 240.0  # seconds that a worker may take for one answer


class ContenderFailedError(Exception):
    """A worker ended early or gave no answer; the message is the last thing it said."""


class Session:
    """One worker. Use as a context manager, so that it never outlives its case."""

    def __init__(self, python: Path, request: Mapping[str, object]) -> None:
        # An unlinked file, since a pipe that nobody empties would stop a talkative library.
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed in `close`
        self.process = subprocess.Popen(
            [str(python), str(WORKER), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
            env=clean_environment(PYTHONWARNINGS="ignore", TQDM_DISABLE="1", HF_HUB_OFFLINE="1"),
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a worker has no pipes")
        self.asked, self.answers = self.process.stdin, self.process.stdout
        self.pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self) -> None:
        """Wait until the worker has opened and compared what it will measure."""
        self._answer()
        self._signal(signal.SIGSTOP)

    def measure(self) -> dict[str, float]:
        """Let the worker measure once."""
        self._signal(signal.SIGCONT)
        try:
            self.asked.write(b"\n")
            self.asked.flush()
        except OSError:
            self._fail()
        figures = self._answer()
        self._signal(signal.SIGSTOP)
        return figures

    def let_go(self) -> None:
        """Let the worker end, and do not wait."""
        self._signal(signal.SIGCONT)
        with contextlib.suppress(OSError):  # it may have ended already
            self.asked.close()

    def close(self) -> None:
        """Let the worker end; end it when it does not."""
        self.let_go()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.answers.close()
        self.errors.close()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes that it has started, if there are any left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _answer(self) -> dict[str, float]:
        until = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                if not selector.select(max(0.0, until - time.monotonic())):
                    self._signal(signal.SIGKILL)
                    raise ContenderFailedError(f"no answer within {PATIENCE:.0f} s")
                read = os.read(self.answers.fileno(), 65536)
                if not read:
                    self._fail()
                self.pending += read
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def _fail(self) -> None:
        self.process.wait()
        self.errors.seek(0)
        said = [line for line in self.errors.read().splitlines() if line.strip()]
        raise ContenderFailedError(said[-1].strip()[:300] if said else f"ended with status {self.process.returncode}")
