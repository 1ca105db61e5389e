"""Queries with mistakes, and their error messages; `python -m lab.query.query_mistakes` writes these to a file."""

from __future__ import annotations

from lab import ROOT
from watersmeet.errors import QueryError
from watersmeet.query.lowering import DeclaredStream, lower
from watersmeet.query.parser import read

MESSAGES = ROOT / "tests" / "query" / "mistakes.txt"
STREAMS = {
    "auction": ["item_id", "opened_at", "seller", "reserve"],
    "bid": ["item_id", "bid_at", "price", "bidder"],
    "view": ["item_id", "seen_at"],
}
TIMES = {"auction": "opened_at", "bid": "bid_at", "view": "seen_at"}
QUERIES = """
SELECT price FROM auction A, bid B WHERE A.item_id = B.item_id AND rating > 3
SELECT item_id FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT A.prize FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT C.price FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT price, A.reserve AS price FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT * FROM auction, bids WHERE auction.item_id = bids.item_id
SELECT * FROM auction A, bid A WHERE A.item_id = A.item_id
SELECT * FROM auction A
SELECT * FROM auction A, bid B WHERE A.reserve < 5
SELECT * FROM auction A NATURAL JOIN bid B
SELECT * FROM auction A LEFT JOIN bid B USING (item_id) JOIN view USING (item_id)
SELECT * FROM auction A, (SELECT * FROM bid) B WHERE A.item_id = B.item_id
SELECT * FROM auction A, bid B WHERE A.item_id = B.item_id AND price > (SELECT max(price) FROM bid)
SELECT DISTINCT seller FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id ORDER BY seller
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id LIMIT 10
SELECT count(*) FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id AND max(price) > 3
SELECT seller, bidder, count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, median(price) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, sum(price - reserve) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, sum(DISTINCT price) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY 1
SELECT BUCKET(bid_at) AS b, count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY BUCKET(bid_at)
SELECT count(coalesce(price, 0)) FROM auction A LEFT JOIN bid B USING (item_id) GROUP BY A.item_id
SELECT rank() OVER (ORDER BY price) AS r FROM auction A, bid B WHERE A.item_id = B.item_id
RSTREAM(SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id)
ISTREAM(SELECT seller FROM auction A LEFT JOIN bid B USING (item_id))
INSERT INTO x SELECT 1
SELECT seller FROM auction TABLESAMPLE (5 ROWS) A, bid B WHERE A.item_id = B.item_id
SELECT seller FROM auction A (x, y), bid B WHERE A.item_id = B.item_id
SELECT seller, count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY ROLLUP (seller)
SELECT seller, count(*) FILTER (WHERE price > 1) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, first(price) IGNORE NULLS FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, last(price) RESPECT NULLS FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, array_agg(price ORDER BY bidder) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT /*+ BROADCAST(A) */ seller FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT * FROM auction [RANGE 5 MONTHS] A JOIN bid B USING (item_id)
SELECT * FROM auction [RANGE 5 MINUTES SLIDE] A JOIN bid B USING (item_id)
SELECT * FROM auction [RANGE 5 MINUTES SLIDE 1 MINUTE] A JOIN bid [RANGE 5 MINUTES SLIDE 2 MINUTES] B USING (item_id)
SELECT * FROM auction [ROWS 0] A JOIN bid B USING (item_id)
SELECT * FROM auction [LAST 5] A JOIN bid B USING (item_id)
SELECT * FROM auction [ROWS 5 A JOIN bid B USING (item_id)
SELECT * FROM auction A [ROWS 5] JOIN bid B USING (item_id)
SELECT * FROM auction [PARTITION BY seller ROWS 5] A JOIN bid B USING (item_id)
SELECT * FROM auction [AUTO] A JOIN bid [NOW] B USING (item_id)
SELECT (price FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT price FROM auction A, bid B WHERE A.item_id = B.item_id AND
SELECT price FRM auction
SELECT 'price FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT 1; SELECT 2
WITH x AS (SELECT 1) SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id SORT BY seller
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id OFFSET 3
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id DISTRIBUTE BY seller
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id CLUSTER BY seller
SELECT seller FROM auction A, bid B LATERAL VIEW explode(bidder) t AS x WHERE A.item_id = B.item_id
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id WINDOW w AS (PARTITION BY seller)
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id HAVING seller = 'x'
SELECT seller, count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller HAVING bidder = 'x'
SELECT count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY BUCKET(bid_at, '0 seconds')
SELECT count(*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY BUCKET(bid_at, '5 moons')
SELECT seller FROM db.auction A, bid B WHERE A.item_id = B.item_id
SELECT seller FROM auction A RIGHT ANTI JOIN bid B ON A.item_id = B.item_id
SELECT B.* FROM auction A, bid C WHERE A.item_id = C.item_id
SELECT * FROM auction [RANGE 0.5] A JOIN bid B USING (item_id)
SELECT * FROM auction [RANGE 5 MINUTES SLIDE 0 MINUTES] A JOIN bid B USING (item_id)
SELECT * FROM auction [ROWS 2.5] A JOIN bid B USING (item_id)
SELECT * FROM auction [PARTITION BY ROWS 5] A JOIN bid B USING (item_id)
SELECT * FROM auction [] A JOIN bid B USING (item_id)
SELECT * FROM auction A JOIN bid B USING (seller)
SELECT * FROM auction A JOIN bid B USING (bidder)
SELECT seller, count(NULL) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, count(price, bidder) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, max(price, 1) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, collect_list(price, bidder) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, mean(price, 1) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, count() FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, count(B.*) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, sum(1) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, sum(max(price)) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, count(DISTINCT price, bidder) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT seller, first(price, true) FROM auction A, bid B WHERE A.item_id = B.item_id GROUP BY seller
SELECT mean(price) FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id AND mean(price) > 3
SELECT seller FROM auction A, bid B WHERE A.item_id = B.item_id AND rank() OVER (ORDER BY price) = 1
SELECT seller FROM auction A LEFT SEMI JOIN bid B ON A.item_id = B.item_id WHERE B.price > 1
SELECT seller, B.price FROM auction A LEFT ANTI JOIN bid B ON A.item_id = B.item_id
SELECT B.* FROM auction A LEFT ANTI JOIN bid B ON A.item_id = B.item_id
SELECT 0x1F AS x FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT N'text' AS x FROM auction A, bid B WHERE A.item_id = B.item_id
SELECT A.item_id.x FROM auction A, bid B WHERE A.item_id = B.item_id AND A.nothing.x = 1

SELECT price
  FROM auction A, bid B
 WHERE A.item_id = B.item_id AND price > ratng
""".strip()


def message(query: str) -> str:
    """The error message of a query."""
    try:
        parsed = read(query, STREAMS)
        lower(query, parsed, {i.name: DeclaredStream(TIMES[i.stream]) for i in parsed.inputs})
    except QueryError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"there is no mistake in {query}")


def all_messages() -> str:
    single, several = QUERIES.split("\n\n")
    return "\n\n".join(map(message, [*single.splitlines(), several])) + "\n"


if __name__ == "__main__":
    MESSAGES.write_text(all_messages())
