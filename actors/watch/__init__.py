"""What looks after a run while it plays: deaths, waits, pools that change, faults on purpose."""
