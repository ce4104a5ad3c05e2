"""What `launch.cluster` needs on each node: the meeting of the nodes, Ray's processes and ports, the
code's print."""
