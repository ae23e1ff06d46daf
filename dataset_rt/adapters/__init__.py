"""Adapters for training frameworks; each is imported by name and needs its framework installed."""
