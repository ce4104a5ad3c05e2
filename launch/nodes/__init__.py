"""What `launch.cluster` needs on each node: the nodes' meeting, Ray's processes and ports, and what
must be equal."""
