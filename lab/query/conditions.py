"""Rows of all types, and conditions that mean the same to Spark and to the engine."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
COLUMNS = {
    "i": (pa.int32(), [1, -7, None, 2**31 - 1, 3]),
    "n": (pa.int64(), [0, 2, 5, None, -3]),
    "f": (pa.float32(), [1.5, NAN, None, -0.0, INF]),
    "x": (pa.float64(), [0.0, NAN, 2.5, -INF, 1e300]),
    "d": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-3.00"), None, Decimal("99999999.99"), Decimal(0)]),
    "e": (pa.decimal128(4, 3), [Decimal("1.100"), None, Decimal("-1.5"), Decimal("9.999"), Decimal(0)]),
    "s": (pa.string(), ["", "a", "ä", None, "b"]),
    "t": (pa.string(), ["a", "a", "z", "", None]),
    "yes": (pa.bool_(), [True, False, None, True, False]),
    "raw": (pa.binary(), [b"", b"\xff", None, b"a", b"b"]),
    "day": (pa.date32(), [date(2024, 1, 1), None, date(1, 1, 1), date(9999, 12, 31), date(2024, 1, 2)]),
    "due": (pa.date32(), [date(2024, 1, 2), date(2024, 1, 1), date(1, 1, 1), None, date(2024, 1, 2)]),
    "moment": (pa.timestamp("us"), [datetime(2024, 1, 1), None, datetime(2000, 1, 1), None, datetime(1970, 1, 1)]),
    "later": (
        pa.timestamp("us"),
        [datetime(2024, 1, 1, 0, 1, 30), datetime(2024, 1, 1), datetime(2000, 1, 1, 1), None, datetime(1969, 12, 31)],
    ),
    "list": (pa.list_(pa.int64()), [[1], None, [], [2], [3]]),
    "small column": (pa.int8(), [1, -128, None, 127, 0]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = pa.record_batch([pa.array(values, kind) for kind, values in COLUMNS.values()], schema=SCHEMA)
#: Conditions that every SQL with NaN as the largest number understands alike.
SAME = [
    "i < n",
    "i = 1 OR n = 2",
    "i IS NULL OR n IS NOT NULL AND i <> n",
    "NOT i > 0",
    "n <> 0 AND i / n > 0.25",
    "i % 2 = -1",
    "x > f",
    "x = x",
    "f >= 1.5 AND x <= f",
    "f = 0",
    "d > e",
    "d + e * 2 >= 1.1",
    "d - 1 < n",
    "d = 1.1 OR d > 1e7",
    "s < t",
    "s IN ('a', 'b', '')",
    "s NOT IN ('a', t)",
    "i NOT BETWEEN -7 AND 2",
    "yes",
    "yes = FALSE",
    "yes > FALSE",
    "raw >= raw AND raw <> raw OR raw IS NULL",
    "yes AND NULL OR n = -3",
    "day < due",
    "day BETWEEN due AND due",
    "moment IS NULL",
    "moment >= later - INTERVAL 1 HOUR",
    "later BETWEEN moment + INTERVAL '30' MINUTE AND moment + INTERVAL '1 hour'",
    "later - moment > INTERVAL '90 minutes' OR later - moment <= -INTERVAL 5 SECONDS",
    "INTERVAL 1 MINUTE + INTERVAL 30 SECONDS + moment = later",
    "moment - INTERVAL '-90' SECONDS = later AND INTERVAL 1 DAY = INTERVAL 24 HOURS",
    "-n > 1",
    "n - -3 = 0",
    "n * 2 + 1 = 5",
    "(n + i) * 2 < i",
    "n % 4 = 1 OR n % -2 = 0",
    "i IN (1, 2.5, 3e0)",
    "(i < n) = yes",
    "x > .5 AND d > 1.",
]
