"""The miniature of a recipe (`ssp train --tiny`): its protocol, algorithm, loss, KL and batch strategy on two CPU cores.

settings.py shrinks the numbers, policy.py makes a model that has learned a protocol's form and nothing else.
"""
