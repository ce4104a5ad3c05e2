"""`mini`: the protocol of the embedded policy, every word and every tag one token, separated by spaces.

Owns its prompts and tags, as data:
  solver    `<q> e rel ? </q>` → (`<search> e </search>` [information] `<think> e rel o </think>`)*
            `<answer> o </answer>`
  proposer  `<target> t </target>` → searches and quoted facts → `<question> e rel ? </question>`
  verifier  `<information> documents </information> <q> e rel ? </q>` → facts → `<answer> o </answer>` (`none`: no idea)
Refuses to know anything else.
"""

from __future__ import annotations

from ssp.protocols.base import Protocol

MINI = Protocol(
    id="mini",
    kinds=("q", "target", "search", "information", "think", "answer", "question"),
    prompts={
        "proposer": "<target> {target} </target>",
        "solver": "<q> {question} </q>",
        "verifier": "<information> {documents} </information> <q> {question} </q>",
    },
    finals={"proposer": "question", "solver": "answer", "verifier": "answer"},
    search_tag="search",
    observation_tag="information",
    stop_strings=("</search>", "</answer>", "</question>", "<eos>"),
    end="<eos>",
)
