"""What comes of a configuration on so many GPUs, before there is one: the coordinator itself, in a time that jumps.

Owns the simulation. Promises that admission, order of rounds and hand-over are the program's own code, and that the same
configuration gives the same figures. Refuses to start anything, and to know more than its cost model does.
"""
