"""Committed benchmark records, the pages written from them, and host latencies; not installed."""
