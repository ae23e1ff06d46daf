"""One module per way of storing records, each with a class `Store`; `base.py` says what it must have."""
