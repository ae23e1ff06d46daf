"""One module per loader, each with a class `Loader`; `base.py` says what it must have."""
