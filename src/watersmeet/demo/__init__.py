"""A join to watch: ``python -m watersmeet.demo`` joins the two streams of an auction house for a minute."""
