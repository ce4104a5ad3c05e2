"""The ledger (law 3). `Ledger` is the whole public surface."""

from ssp.ledger.book import Ledger

__all__ = ["Ledger"]
