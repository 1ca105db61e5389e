"""NEXMark's joins: each as a query of Watersmeet, of Spark's own join, and as a batch in DuckDB.

Streams are `persons`, `auctions` and `bids` of `watersmeet.workload.Nexmark`; bids with `closed` are punctuations.
Results have whole numbers and texts only, so that rows can be compared as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import watersmeet as wm
from watersmeet.spark.streams import Stream

DELAY = "1 second"
WINDOW_SECONDS = 30  # of the auction query; the paper's 12 hours
TUMBLING_SECONDS = 10  # of q8
LOCAL = "state IN ('OR', 'ID', 'CA')"
CLOSES_AUCTION = wm.when("closed", on="auction_id")
#: Prices, then earliness, then bidders, as texts of fixed width: the largest is the winning bid.
RANK = "concat(lpad(price, 9, '0'), lpad(9000000000000000 - unix_micros(bid_at), 16, '0'), lpad(bidder, 10, '0'))"
WINNER = {
    "price": "bigint(substring(winner, 1, 9))",
    "bid_at": "9000000000000000 - bigint(substring(winner, 10, 16))",
    "bidder": "bigint(substring(winner, 26, 10))",
}


@dataclass(frozen=True)
class Streams:
    persons: DataFrame
    auctions: DataFrame
    bids: DataFrame
    longest: str  # the longest auction, a parameter of Spark's own join


@dataclass(frozen=True)
class Query:
    name: str
    about: str
    ours: Callable[[Streams], DataFrame]
    native: Callable[[Streams], DataFrame]
    native_lacks: str
    batch: str  # DuckDB's SQL over persons, auctions and bids
    inputs: tuple[str, ...] = ("auctions", "bids")


def _stream(df: DataFrame, time: str, name: str, punctuation: object = None, window: str | None = None) -> Stream:
    return wm.stream(df, time=time, delay=DELAY, name=name, punctuation=punctuation, window=window)


def _marked(df: DataFrame, time: str) -> DataFrame:
    return df.withWatermark(time, DELAY)


# ---------------------------------------------------------------- q3: who sells what near here


def q3_ours(s: Streams) -> DataFrame:
    """People elsewhere are punctuations: their ids do not come any more, so their auctions are not kept."""
    known = [wm.unique("person_id"), wm.when(f"NOT ({LOCAL})", on="person_id")]
    persons = _stream(s.persons, "registered_at", "persons", known)
    auctions = _stream(s.auctions.where("category = 10"), "opened_at", "auctions")
    joined = wm.join(persons, auctions, on="persons.person_id = auctions.seller", allow_unbounded=True)
    return joined.df.select("name", "city", "state", "auction_id")


def q3_native(s: Streams) -> DataFrame:
    persons = _marked(s.persons.where(LOCAL), "registered_at")
    auctions = _marked(s.auctions.where("category = 10"), "opened_at")
    return persons.join(auctions, sf.expr("person_id = seller")).select("name", "city", "state", "auction_id")


# ---------------------------------------------------------------- q4, q9, the auction query: groups of bids


def _bids_of_auctions(s: Streams, window: str | None = None) -> wm.Joined:
    auctions = _stream(s.auctions, "opened_at", "auctions", wm.unique("auction_id"), window)
    bids = _stream(s.bids.withColumn("rank", sf.expr(RANK)), "bid_at", "bids", CLOSES_AUCTION, window)
    return wm.join(auctions, bids, on="auction_id")


def _native_bids(s: Streams, longest: str) -> DataFrame:
    """Grouped by the auction's opening as well: Spark emits a group by event time, so the group needs one."""
    auctions = _marked(s.auctions, "opened_at").alias("a")
    bids = _marked(s.bids.where("NOT closed").withColumn("rank", sf.expr(RANK)), "bid_at").alias("b")
    near = f"a.auction_id = b.auction_id AND bid_at BETWEEN opened_at AND opened_at + interval {longest}"
    joined = auctions.join(bids, sf.expr(near)).drop(sf.col("b.auction_id"))
    return joined.withColumn("bid_at", sf.expr("bid_at + interval 0 seconds"))


def q4_ours(s: Streams) -> DataFrame:
    return _bids_of_auctions(s).group_by("auction_id", "category").agg(final=wm.max("price")).df


def q4_native(s: Streams) -> DataFrame:
    groups = _native_bids(s, s.longest).groupBy("auction_id", "category", "opened_at")
    return groups.agg(sf.max("price").alias("final")).drop("opened_at")


def q9_ours(s: Streams) -> DataFrame:
    groups = _bids_of_auctions(s).group_by("auction_id", "seller").agg(winner=wm.max("rank"))
    return groups.df.select("auction_id", "seller", *(sf.expr(e).alias(n) for n, e in WINNER.items()))


def q9_native(s: Streams) -> DataFrame:
    groups = _native_bids(s, s.longest).groupBy("auction_id", "seller", "opened_at").agg(sf.max("rank").alias("winner"))
    return groups.select("auction_id", "seller", *(sf.expr(e).alias(n) for n, e in WINNER.items()))


def auction_ours(s: Streams) -> DataFrame:
    joined = _bids_of_auctions(s, f"{WINDOW_SECONDS} seconds")
    return joined.group_by("auction_id").agg(bids=wm.count(), best=wm.max("price")).df


def auction_native(s: Streams) -> DataFrame:
    groups = _native_bids(s, f"{WINDOW_SECONDS} seconds").groupBy("auction_id", "opened_at")
    return groups.agg(sf.count("*").alias("bids"), sf.max("price").alias("best")).drop("opened_at")


# ---------------------------------------------------------------- q8: new people who sell at once


def q8_ours(s: Streams) -> DataFrame:
    """People are unique, so auctions of sellers already registered are not kept; the interval is a condition."""
    window, start = f"{TUMBLING_SECONDS} seconds", f"div {TUMBLING_SECONDS} * {TUMBLING_SECONDS}"
    persons = s.persons.withColumn("starts", sf.expr(f"unix_seconds(registered_at) {start}"))
    auctions = s.auctions.selectExpr("seller", "opened_at", f"unix_seconds(opened_at) {start} AS opened_in")
    joined = wm.join(
        _stream(persons, "registered_at", "persons", wm.unique("person_id"), window),
        _stream(auctions, "opened_at", "auctions", window=window),
        on="persons.person_id = auctions.seller",
        where="starts = opened_in",
        how="semi",
    )
    return joined.df.select("person_id", "name", "starts")


def q8_native(s: Streams) -> DataFrame:
    span = f"{TUMBLING_SECONDS} seconds"
    persons = _marked(s.persons, "registered_at").withColumn("p_span", sf.window("registered_at", span))
    auctions = _marked(s.auctions, "opened_at").select("seller", sf.window("opened_at", span).alias("a_span"))
    joined = persons.join(auctions, sf.expr("person_id = seller AND p_span = a_span"), "left_semi")
    return joined.select("person_id", "name", sf.unix_seconds("p_span.start").alias("starts"))


# ---------------------------------------------------------------- q20: bids with their auctions


def q20_ours(s: Streams) -> DataFrame:
    """Auctions of other categories are punctuations: bids for them are not kept."""
    known = [wm.unique("auction_id"), wm.when("category <> 10", on="auction_id")]
    auctions = _stream(s.auctions, "opened_at", "auctions", known)
    bids = _stream(s.bids, "bid_at", "bids", CLOSES_AUCTION)
    return wm.join(auctions, bids, on="auction_id").df.select(*Q20, sf.unix_micros("bid_at").alias("bid_at"))


def q20_native(s: Streams) -> DataFrame:
    auctions = _marked(s.auctions.where("category = 10"), "opened_at").alias("a")
    bids = _marked(s.bids.where("NOT closed"), "bid_at").alias("b")
    near = f"a.auction_id = b.auction_id AND bid_at BETWEEN opened_at AND opened_at + interval {s.longest}"
    joined = auctions.join(bids, sf.expr(near)).drop(sf.col("b.auction_id"))
    return joined.select(*Q20, sf.unix_micros("bid_at").alias("bid_at"))


Q20 = ("auction_id", "item_name", "seller", "bidder", "price")
WITHOUT_PUNCTUATIONS = (
    "It has no punctuations. It needs the length of the longest auction, keeps every auction, and the "
    "bids of as much time, for that long"
)
QUERIES = {
    query.name: query
    for query in (
        Query(
            "q3",
            "people of three states and what they put up in category 10, at any time",
            q3_ours,
            q3_native,
            "It has no bound, and keeps all people and all auctions of these filters for ever",
            "SELECT name, city, state, auction_id FROM persons JOIN auctions ON person_id = seller "
            f"WHERE category = 10 AND {LOCAL}",
            ("persons", "auctions"),
        ),
        Query(
            "q4",
            "the final price of each auction (their average by category, which is never final, is taken on reading)",
            q4_ours,
            q4_native,
            f"{WITHOUT_PUNCTUATIONS}; only then does a price come out",
            "SELECT auction_id, category, max(price) AS final FROM auctions JOIN bids USING (auction_id) "
            "WHERE NOT closed AND bid_at BETWEEN opened_at AND expires_at GROUP BY ALL",
        ),
        Query(
            "q8",
            f"people who register and open an auction within the same {TUMBLING_SECONDS} seconds",
            q8_ours,
            q8_native,
            "It can express all of it",
            "SELECT DISTINCT person_id, name, epoch_us(registered_at) // 10000000 * 10 AS starts "
            "FROM persons JOIN auctions ON person_id = seller "
            "AND epoch_us(registered_at) // 10000000 = epoch_us(opened_at) // 10000000",
            ("persons", "auctions"),
        ),
        Query(
            "q9",
            "the winning bid of each auction: the highest, of equal ones the first",
            q9_ours,
            q9_native,
            f"{WITHOUT_PUNCTUATIONS}; only then does a winner come out",
            "SELECT auction_id, seller, price, epoch_us(bid_at) AS bid_at, bidder "
            "FROM auctions JOIN bids USING (auction_id) WHERE NOT closed AND bid_at BETWEEN opened_at AND expires_at "
            "QUALIFY row_number() OVER (PARTITION BY auction_id ORDER BY price DESC, bids.bid_at, bidder DESC) = 1",
        ),
        Query(
            "q20",
            "bids for auctions of category 10, with the auction",
            q20_ours,
            q20_native,
            WITHOUT_PUNCTUATIONS,
            "SELECT auction_id, item_name, seller, bidder, price, epoch_us(bid_at) AS bid_at "
            "FROM auctions JOIN bids USING (auction_id) WHERE NOT closed AND category = 10",
        ),
        Query(
            "auction",
            f"the PWJoin paper's: number and best of an auction's bids; windows of {WINDOW_SECONDS} s, punctuations",
            auction_ours,
            auction_native,
            "It has no punctuations; windows alone decide what is kept, and when a group comes out",
            "SELECT auction_id, count(*) AS bids, max(price) AS best FROM auctions JOIN bids USING (auction_id) "
            f"WHERE NOT closed AND bid_at BETWEEN opened_at AND opened_at + INTERVAL {WINDOW_SECONDS} SECONDS "
            "GROUP BY ALL",
        ),
    )
}
