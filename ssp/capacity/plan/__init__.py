"""What comes of a configuration on so many GPUs, before there is one: the coordinator itself, in a
time that jumps."""
