"""The process that compares mathematical expressions: it reads JSON lines [gold, answer], and
writes true, false, or null for a gold that cannot be read."""

import json
import logging
import os
import resource
import sys

MEMORY = 2 * 2**30


def main(seconds: int) -> None:
    """Answer line by line. A comparison that takes more than `seconds` of processor time ends the
    process (SIGXCPU)."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not a reply
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from math_verify import LatexExtractionConfig, parse, verify

    # The library's time-outs are signals, which work in a main thread only and interrupt no long
    # arithmetic: None.
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for line in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        gold, answer = (
            parse(f"\\boxed{{{text}}}", config, parsing_timeout=None) for text in json.loads(line)
        )
        equal = verify(gold, answer, timeout_seconds=None) if gold else None
        print(json.dumps(equal), file=out, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
