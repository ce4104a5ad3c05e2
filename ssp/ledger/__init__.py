"""The ledger (law 3). `Ledger` is the book, `HomeLedger` the one of a run folder."""

from ssp.ledger.book import Ledger
from ssp.ledger.home import HomeLedger

__all__ = ["HomeLedger", "Ledger"]
