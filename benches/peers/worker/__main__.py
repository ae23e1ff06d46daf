"""Do one contender's part of a case: prepare, say `ready`, then measure once for every line on standard input.

Usage: worker JSON. The JSON names the action and what it needs (see `actions`). Answers go to standard output, one line
of JSON each; whatever a library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Run the action named on the command line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(value: object) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    from actions import ACTIONS  # noqa: PLC0415 - only once nothing can print into the answers

    what = json.loads(sys.argv[1])
    measure = ACTIONS[what.pop("action")](**what)
    answer("ready")
    for _ in sys.stdin:
        answer(measure())


if __name__ == "__main__":  # worker processes of loaders import this module again
    main()
