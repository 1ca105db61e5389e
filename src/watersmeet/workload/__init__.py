"""Streams made to order: seeded, vectorised, the same rows however stream time is cut."""

from watersmeet.workload.arrivals import SECOND, delivery_times, merge_by_time, poisson_arrivals
from watersmeet.workload.auctions import AuctionHouse
from watersmeet.workload.drifting import Drifting
from watersmeet.workload.files import save, save_stream
from watersmeet.workload.nexmark import Nexmark
from watersmeet.workload.punctuated import Punctuated
from watersmeet.workload.scrambled import BURST, DIP, Scrambled, Swing, three_streams
from watersmeet.workload.several import Several
from watersmeet.workload.streams import STREAMS
from watersmeet.workload.tables import ORIGIN, TableStream

__all__ = [
    "BURST",
    "DIP",
    "ORIGIN",
    "SECOND",
    "STREAMS",
    "AuctionHouse",
    "Drifting",
    "Nexmark",
    "Punctuated",
    "Scrambled",
    "Several",
    "Swing",
    "TableStream",
    "delivery_times",
    "merge_by_time",
    "poisson_arrivals",
    "save",
    "save_stream",
    "three_streams",
]
