"""What leaves an operator: kinds of rows, and the columns that tell them apart."""

from __future__ import annotations

RESULT, LATE, VIOLATION, PUNCTUATION, STATS = 0, 1, 2, 3, 9
#: Columns of everything that leaves an operator, called as no column of a user is.
KIND, NOTE = "watersmeet kind", "watersmeet note"
