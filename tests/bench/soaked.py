"""`python -m launch.train`, whose actors may start again as often as they die."""

from launch.cli import run
from launch.train import main
from ssp.config.cluster import PlacementConfig

PlacementConfig.restarts = 100_000

if __name__ == "__main__":
    raise SystemExit(run(main))
