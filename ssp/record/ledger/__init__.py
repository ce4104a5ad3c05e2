"""The ledger (law 3). `Ledger` is the book, `HomeLedger` the one of a run folder."""

from ssp.record.ledger.book import Ledger
from ssp.record.ledger.home import HomeLedger

__all__ = ["HomeLedger", "Ledger"]
