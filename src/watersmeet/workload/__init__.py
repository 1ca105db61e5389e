"""Generated streams: seeded, vectorised, the same rows for any division of stream time into intervals."""

from watersmeet.workload.arrivals import SECOND, delivery_times, merge_by_time, poisson_arrivals
from watersmeet.workload.auctions import AuctionHouse
from watersmeet.workload.catalogue import STREAMS
from watersmeet.workload.drifting_keys import Drifting
from watersmeet.workload.nexmark import Nexmark
from watersmeet.workload.parquet_files import save, save_stream
from watersmeet.workload.punctuated_streams import Punctuated
from watersmeet.workload.scrambled import BURST, DIP, Scrambled, Swing, three_streams
from watersmeet.workload.several import Several
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
