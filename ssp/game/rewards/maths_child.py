"""The process that compares two mathematical expressions: a JSON line [gold, answer] in, a JSON
line out."""

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
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(
            resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard)
        )
        gold, answer = (
            parse(f"\\boxed{{{text}}}", config, parsing_timeout=None) for text in json.loads(line)
        )
        print(
            json.dumps(verify(gold, answer, timeout_seconds=None) if gold else None),
            file=out,
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
