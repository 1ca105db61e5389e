"""The output of an operator: kinds of rows, and the columns that all of them have."""

from __future__ import annotations

RESULT, LATE, VIOLATION, PUNCTUATION, MALFORMED, STATS = 0, 1, 2, 3, 4, 9
#: Columns of all output rows; the prefix is reserved, so no column of a user has these names.
KIND, DETAIL = "watersmeet kind", "watersmeet detail"
