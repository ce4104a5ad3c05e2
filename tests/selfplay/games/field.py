"""The games of the field with prompts in the words of the embedded policy."""

from dataclasses import replace

from ssp.game.games import cross_fit, dr_zero, r_zero, searchmaster, spice

RECALL = "<q> {question} </q> <think> </think>"
ASK = "<target> a </target> <information> {document} </information>"

DR_ZERO = replace(dr_zero.AT_ONCE, prompts={"passage": ASK})
DR_ZERO_IN_TURNS = replace(dr_zero.GAME, prompts={"passage": ASK})
SPICE = replace(spice.GAME, prompts={"document": ASK, "recall": RECALL})
R_ZERO = replace(r_zero.GAME, prompts={"free": "<target> a </target>", "recall": RECALL})
SEARCHMASTER = searchmaster.GAME
CROSS_FIT = cross_fit.GAME
