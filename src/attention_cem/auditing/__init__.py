"""Challenge files, metrics, bounds, and the audit: the worst case over attacks that have receipts."""
