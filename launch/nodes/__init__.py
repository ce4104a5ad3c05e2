"""What `launch.cluster` needs on each node: the meeting of the nodes, Ray's processes, the token,
the code's print."""
