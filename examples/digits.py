"""Train on real handwritten digits from a cache, without and with class weights.

The 1,797 digits that come with scikit-learn are stored as PNG images with three metadata columns. Four
classes are then made rare in the training split, as they often are in real data, and a softmax classifier
learns from the dataset's iterator twice: once with every sample equally likely, once with weights that a
Polars expression computes from the class counts. Both are judged on the same untouched test split.

Everything is seeded, so on one machine the table is the same on every run; only the times differ.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from PIL import Image
from sklearn.datasets import load_digits

from dataset_rt import CachedDataset, CacheInput, CacheSourcesDatasetError, ReaderConfig, WriterConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RARE = (1, 3, 8, 9)
KEPT_OF_A_RARE_CLASS = 8
SEEDS = (1, 2, 3)
EPOCHS = 12
BATCH = 32
LEVELS = 16  # scikit-learn's digits have grey levels 0 to 16
SCALE = 15  # stored as 0 to 240, so that a PNG byte holds them exactly


@dataclass(frozen=True)
class Digits:
    """One split of the digits as a cache source: a PNG per sample, and what is known about it."""

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield one PNG payload with its label, split and mean ink per sample."""
        for pixels, label in zip(self.images, self.labels, strict=True):
            png = io.BytesIO()
            Image.fromarray(pixels * SCALE).save(png, format="PNG")
            ink = float(pixels.mean()) / LEVELS
            yield CacheInput(png.getvalue(), {"label": int(label), "split": self.name, "ink": ink})


def make_splits() -> tuple[Digits, Digits]:
    """Split the digits into an imbalanced training split and a test split with all classes in full."""
    pixels, targets = load_digits(return_X_y=True)
    images, labels = np.asarray(pixels, np.uint8).reshape(-1, 8, 8), np.asarray(targets, np.int64)
    shuffled = np.random.default_rng(0).permutation(len(labels))
    test, train = shuffled[:600], shuffled[600:]
    # How many of the same class stand before each training sample: a rare class keeps its first few.
    rank = np.array([np.count_nonzero(labels[train[:at]] == labels[row]) for at, row in enumerate(train)])
    train = train[~np.isin(labels[train], RARE) | (rank < KEPT_OF_A_RARE_CLASS)]
    return Digits("train", images[train], labels[train]), Digits("test", images[test], labels[test])


def weigh_classes(dataset: CachedDataset) -> pl.DataFrame:
    """Make every class equally likely, and return how the draws shift, one row per class."""
    table = dataset.samples_metadata()
    weighted = table.with_columns(weight=1.0 / pl.len().over("label").cast(pl.Float64))
    dataset.set_samples_metadata(weighted)
    return (
        weighted.group_by("label")
        .agg(samples=pl.len(), weight=pl.col("weight").sum())
        .sort("label")
        .select(
            "label",
            "samples",
            before=pl.col("samples") / pl.col("samples").sum(),
            after=pl.col("weight") / pl.col("weight").sum(),
        )
    )


def decode(png: bytes) -> NDArray[np.float64]:
    """Turn a stored PNG into a feature vector in [0, 1]."""
    return np.asarray(Image.open(io.BytesIO(png)), dtype=np.float64).ravel() / (SCALE * LEVELS)


def batches(dataset: CachedDataset) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Yield the next epoch of `dataset` as feature and label arrays."""
    features: list[NDArray[np.float64]] = []
    labels: list[int] = []
    for sample in dataset:
        features.append(decode(sample.data))
        labels.append(int(sample.metadata["label"]))
        if len(labels) == BATCH:
            yield np.stack(features), np.array(labels)
            features, labels = [], []
    if labels:
        yield np.stack(features), np.array(labels)


def train(dataset: CachedDataset, rate: float = 0.5) -> NDArray[np.float64]:
    """Fit softmax regression by stochastic gradient descent over `EPOCHS` epochs of `dataset`."""
    weights = np.zeros((65, 10))
    for _ in range(EPOCHS):
        for pixels, labels in batches(dataset):
            inputs = np.hstack([pixels, np.ones((len(pixels), 1))])
            logits = inputs @ weights
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
            odds[np.arange(len(labels)), labels] -= 1.0
            weights -= rate * inputs.T @ odds / len(labels)
    return weights


def recall_per_class(weights: NDArray[np.float64], test: CachedDataset) -> NDArray[np.float64]:
    """Return, for each digit, the share of its test images that are recognised."""
    right, seen = np.zeros(10), np.zeros(10)
    for pixels, labels in batches(test):
        guesses = (pixels @ weights[:-1] + weights[-1]).argmax(axis=1)
        np.add.at(seen, labels, 1)
        np.add.at(right, labels, guesses == labels)
    return right / seen


def run(base: Path) -> None:
    """Write the caches below `base`, train both classifiers and print what came out."""
    train_split, test_split = make_splits()
    started = time.perf_counter()
    result = CachedDataset.from_cache_sources(
        [train_split, test_split],
        base,
        reader_config=ReaderConfig(seed=0),
        writer_config=WriterConfig(show_progress=False),
    )
    if isinstance(result, CacheSourcesDatasetError):
        sys.exit(result.message)
    wrote_ms = (time.perf_counter() - started) * 1e3
    written = len(result.dataset)
    print(f"wrote    {written:,} digits as PNG into {len(result.results)} caches: {wrote_ms:.0f} ms")

    started = time.perf_counter()
    reopened = CachedDataset([base / "train", base / "test"], reader_config=ReaderConfig(seed=0))
    first = next(iter(reopened))
    reopened_ms = (time.perf_counter() - started) * 1e3
    print(f"reopened {len(reopened):,} digits, first one ({len(first.data)} bytes) here: {reopened_ms:.1f} ms")

    test = CachedDataset([base / "test"], reader_config=ReaderConfig(seed=0, shuffle=False))
    shares = None
    recalls: dict[str, list[NDArray[np.float64]]] = {"equal weights": [], "class weights": []}
    for seed in SEEDS:
        dataset = CachedDataset([base / "train"], reader_config=ReaderConfig(seed=seed))
        recalls["equal weights"].append(recall_per_class(train(dataset), test))
        dataset = CachedDataset([base / "train"], reader_config=ReaderConfig(seed=seed))
        shares = weigh_classes(dataset)
        recalls["class weights"].append(recall_per_class(train(dataset), test))
    if shares is not None:
        print_results(shares, recalls, len(test))


def print_results(shares: pl.DataFrame, recalls: dict[str, list[NDArray[np.float64]]], tested: int) -> None:
    """Print the class shares and the recall of both classifiers, averaged over the seeds."""
    means = {name: np.mean(rows, axis=0) for name, rows in recalls.items()}
    equal, weighted = means["equal weights"], means["class weights"]
    print(f"\n{'':7}{'training':>9}{'share of draws, weights':>26}{'test recall, weights':>24}")
    print(f"{'digit':7}{'samples':>9}{'equal':>15}{'by class':>11}{'equal':>13}{'by class':>11}")
    for label, samples, before, after in shares.iter_rows():
        mark = " rare" if label in RARE else ""
        print(f"{label:<7}{samples:>9}{before:>15.1%}{after:>11.1%}{equal[label]:>13.1%}{weighted[label]:>11.1%}{mark}")
    rare = list(RARE)
    common = [label for label in range(10) if label not in RARE]
    print(f"\nmean of {len(SEEDS)} seeds, {EPOCHS} epochs each, {tested} test digits")
    print(f"{'':25}{'equal weights':>15}{'class weights':>15}")
    for title, classes in (("recall, rare digits", rare), ("recall, other digits", common)):
        print(f"{title:25}{equal[classes].mean():>15.1%}{weighted[classes].mean():>15.1%}")
    spread = {name: [float(row.mean()) for row in rows] for name, rows in recalls.items()}
    print(f"{'balanced accuracy':25}{equal.mean():>15.1%}{weighted.mean():>15.1%}")
    ranges = "".join(f"{f'{min(v):.1%}..{max(v):.1%}':>15}" for v in spread.values())
    print(f"{'  over the seeds':25}{ranges}")


def main() -> None:
    """Run the demo in a temporary folder, or in the one given."""
    parser = argparse.ArgumentParser(description="train on cached digits, without and with class weights")
    parser.add_argument("--keep", type=Path, help="write the caches here and keep them for the next run")
    keep = parser.parse_args().keep
    if keep is not None:
        run(keep)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))


if __name__ == "__main__":
    main()
