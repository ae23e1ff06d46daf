"""The public surface: names, defaults, documentation, and that both halves agree."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pydantic
import pytest

import dataset_rt
from dataset_rt import (
    CachedDataset,
    ReaderConfig,
    ShardCompression,
    WriterConfig,
    WriterProfilerConfig,
    _dataset_rt,
    api,
    batch,
    cache,
    config,
    dataset,
    errors,
    maintenance,
    profile,
    records,
    write_cache,
    writer,
)
from tests.support import ROOT, numbered, reader, write

NAMES = [
    "CacheInput",
    "CacheSource",
    "CachedDataset",
    "CachedSample",
    "CachedBatch",
    "ReaderConfig",
    "ReaderProfile",
    "WriterConfig",
    "ShardCompression",
    "WriterProfilerConfig",
    "write_arrays",
    "write_cache",
    "verify_cache",
    "VerifyReport",
    "Finding",
    "CacheWriteSuccess",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheSourcesDatasetSuccess",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "SizedTorchIterableDataset",
    "CacheChange",
    "CacheStats",
    "Lease",
    "RepairReport",
    "VacuumReport",
    "append_cache",
    "repair_cache",
    "cache_stats",
    "compact_cache",
    "delete_samples",
    "lease_generation",
    "vacuum_cache",
]

ERRORS = [name for name in errors.__all__ if not issubclass(getattr(errors, name), Warning)]

METHODS = [
    "from_cache_sources",
    "samples_metadata",
    "set_samples_metadata",
    "weight_table",
    "set_weight_table",
    "set_epoch",
    "state_dict",
    "load_state_dict",
    "order",
    "rows",
    "batches",
    "gather",
    "profile",
    "corrupt_samples",
    "filter",
    "select",
    "to_torch_iterable_dataset",
    "__len__",
    "__iter__",
    "__getitem__",
]


def signature(function):
    return [
        (name, parameter.kind.name, ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def test_every_public_name_is_there():
    assert sorted(api.__all__) == sorted(NAMES)
    assert sorted(dataset_rt.__all__) == sorted([*NAMES, "errors"])
    for name in NAMES:
        assert getattr(dataset_rt, name) is getattr(api, name)
    for name in METHODS:
        assert callable(getattr(CachedDataset, name))


def test_everything_public_says_what_it_is():
    for name in NAMES:
        public = getattr(dataset_rt, name)
        if inspect.isclass(public) or inspect.isroutine(public):
            assert inspect.getdoc(public), name
    modules = (_dataset_rt, api, batch, cache, config, dataset, errors, maintenance, profile, records, writer)
    for module in (dataset_rt, *modules):
        assert module.__doc__, module
    for name in METHODS:
        assert inspect.getdoc(getattr(CachedDataset, name)), name
    for name in errors.__all__:
        assert vars(getattr(errors, name))["__doc__"], name


def test_the_writer_is_called_as_in_the_published_release():
    assert signature(write_cache) == [
        ("sources", "POSITIONAL_OR_KEYWORD", ...),
        ("path", "POSITIONAL_OR_KEYWORD", ...),
        ("writer_config", "KEYWORD_ONLY", WriterConfig()),
        ("name", "KEYWORD_ONLY", None),
    ]
    assert signature(CachedDataset.from_cache_sources) == [
        ("sources", "POSITIONAL_OR_KEYWORD", ...),
        ("path", "POSITIONAL_OR_KEYWORD", ...),
        ("reader_config", "KEYWORD_ONLY", ...),
        ("writer_config", "KEYWORD_ONLY", WriterConfig()),
    ]
    assert signature(CachedDataset) == [
        ("paths", "POSITIONAL_OR_KEYWORD", ...),
        ("reader_config", "KEYWORD_ONLY", ...),
        ("generations", "KEYWORD_ONLY", None),
    ]


def test_defaults_are_the_documented_ones():
    assert WriterConfig().model_dump() == {
        "prefetch_size": 64,
        "num_threads": 4,
        "max_shard_bytes": 64 * 1024 * 1024,
        "shard_compression": {"algo": "none", "ratio": 1.0, "level": None, "dictionary_bytes": 0},
        "show_progress": True,
        "validate_cache": False,
        "profiler": {"enabled": False, "path": Path("dataset_rt_profile.json")},
    }
    assert ReaderConfig(seed=3).model_dump() == {
        "seed": 3,
        "prefetch_size": 64,
        "num_workers": 4,
        "shuffle": True,
        "replacement": True,
        "epoch_length": None,
        "rank": 0,
        "world_size": 1,
        "validate_cache": False,
        "verify": "first",
        "io": "auto",
        "populate_bytes": 1 << 30,
        "fall_back": False,
        "on_corrupt": "raise",
    }


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        (ReaderConfig, {}, "seed"),
        (ReaderConfig, {"seed": -1}, "seed"),
        (ReaderConfig, {"seed": 2**64}, "seed"),
        (ReaderConfig, {"seed": "x"}, "seed"),
        (ReaderConfig, {"seed": 1, "prefetch_size": 0}, "prefetch_size"),
        (ReaderConfig, {"seed": 1, "prefetch_size": 2**20 + 1}, "prefetch_size"),
        (ReaderConfig, {"seed": 1, "num_workers": 0}, "num_workers"),
        (ReaderConfig, {"seed": 1, "num_workers": 1025}, "num_workers"),
        (ReaderConfig, {"seed": 1, "verify": "often"}, "verify"),
        (ReaderConfig, {"seed": 1, "io": "io_uring"}, "io"),
        (ReaderConfig, {"seed": 1, "on_corrupt": "ignore"}, "on_corrupt"),
        (ReaderConfig, {"seed": 1, "num_worker": 3}, "num_worker"),
        (ReaderConfig, {"seed": 1, "rank": 1}, "rank"),
        (ReaderConfig, {"seed": 1, "world_size": 0}, "world_size"),
        (ReaderConfig, {"seed": 1, "epoch_length": -1}, "epoch_length"),
        (WriterConfig, {"prefetch_size": 0}, "prefetch_size"),
        (WriterConfig, {"num_threads": 0}, "num_threads"),
        (WriterConfig, {"num_threads": 1025}, "num_threads"),
        (WriterConfig, {"max_shard_bytes": 0}, "max_shard_bytes"),
        (WriterConfig, {"max_shard_bytes": 2**63}, "max_shard_bytes"),
        (WriterConfig, {"max_shards": 3}, "max_shards"),
        (ShardCompression, {"algo": "zip"}, "algo"),
        (ShardCompression, {"algo": "none", "ratio": 2.0}, "ratio"),
        (ShardCompression, {"algo": "lz4", "ratio": 0.0}, "ratio"),
        (ShardCompression, {"algo": "lz4", "ratio": float("inf")}, "ratio"),
        (ShardCompression, {"algo": "lz4", "ratio": float("nan")}, "ratio"),
        (ShardCompression, {"algo": "zstd", "level": 20}, "levels -7 to 19, found 20"),
        (ShardCompression, {"algo": "zstd", "level": -8}, "levels -7 to 19, found -8"),
        (ShardCompression, {"algo": "lz4", "level": 0}, "levels 1 to 12, found 0"),
        (ShardCompression, {"algo": "lz4", "level": 13}, "levels 1 to 12, found 13"),
        (ShardCompression, {"algo": "none", "level": 1}, "no levels, found 1"),
        (ShardCompression, {"algo": "zstd", "dictionary_bytes": 1023}, "dictionary_bytes"),
        (ShardCompression, {"algo": "zstd", "dictionary_bytes": 2**20 + 1}, "dictionary_bytes"),
        (ShardCompression, {"algo": "lz4", "dictionary_bytes": 4096}, "dictionary_bytes"),
        (WriterProfilerConfig, {"enabled": "perhaps"}, "enabled"),
    ],
    ids=str,
)
def test_an_option_outside_its_range_is_refused_by_name(kind, options, field):
    with pytest.raises(pydantic.ValidationError, match=field) as caught:
        kind(**options)
    assert isinstance(caught.value, ValueError)


def test_configurations_are_frozen_comparable_and_pickle():
    for frozen in (
        ReaderConfig(seed=2**64 - 1, epoch_length=5),
        WriterConfig(num_threads=2),
        ShardCompression(algo="zstd", level=-7, dictionary_bytes=2**20),
    ):
        with pytest.raises(pydantic.ValidationError):
            setattr(frozen, next(iter(type(frozen).model_fields)), 3)
        assert pickle.loads(pickle.dumps(frozen)) == frozen
        assert hash(frozen) == hash(frozen.model_copy())


def test_the_largest_seed_reaches_the_sampler(tmp_path):
    path = write(tmp_path, numbered(50))
    orders = [
        CachedDataset([path], reader_config=reader(seed=seed)).rows().tolist()
        for seed in (2**64 - 1, 2**64 - 2, 2**32 - 1, 0)
    ]
    assert len({tuple(order) for order in orders}) == 4


# Both halves


def fields_of_struct(file, struct):
    text = (ROOT / "src" / "python" / file).read_text(encoding="utf-8")
    [body] = re.findall(rf"struct {struct} \{{(.*?)\n\}}", text, re.DOTALL)
    return set(re.findall(r"^\s+(\w+):", body, re.MULTILINE))


@pytest.mark.parametrize(
    ("file", "struct", "kind"),
    [
        ("options.rs", "ReaderConfig", ReaderConfig),
        ("writer_config.rs", "Json", WriterConfig),
        ("writer_config.rs", "CompressionJson", ShardCompression),
        ("writer_config.rs", "ProfilerJson", WriterProfilerConfig),
    ],
)
def test_configurations_have_the_same_fields_in_rust(file, struct, kind):
    assert fields_of_struct(file, struct) == set(kind.model_fields)


def test_every_error_of_the_core_has_its_class_and_every_class_its_error():
    text = (ROOT / "src" / "python" / "errors.rs").read_text(encoding="utf-8")
    raised = set(re.findall(r'"(\w+Error)"', text))
    bases = {"DatasetRTError", "InvalidCacheError"}
    assert raised | bases == set(ERRORS)
    assert errors.__all__ == sorted(errors.__all__)


def test_attributes_are_declared_for_type_checkers_as_the_core_sets_them():
    text = (ROOT / "src" / "python" / "errors.rs").read_text(encoding="utf-8")
    set_by_core = {}
    for arm, name in re.findall(r'=> (\{(?:(?!=>).)*?)?"(\w+Error)"', text, re.DOTALL):
        set_by_core.setdefault(name, set()).update(re.findall(r'set_item\("(\w+)"', arm))
    assert set_by_core["CorruptRecordError"] == {"path", "sample_id", "offset", "subject", "expected", "found"}
    for name, fields in set_by_core.items():
        declared = {field for kind in getattr(errors, name).__mro__ for field in vars(kind).get("__annotations__", ())}
        assert declared == fields, name


def test_every_error_is_of_this_package_and_of_the_builtin_one_expects():
    expected = {
        "CacheNotFoundError": (ValueError, FileNotFoundError),
        "ManifestError": (ValueError, RuntimeError),
        "CacheExistsError": (ValueError, FileExistsError),
        "CacheIOError": (RuntimeError,),
        "CacheLockedError": (RuntimeError,),
        "OutOfMemoryError": (MemoryError,),
        "RowIndexError": (IndexError,),
        "ForkedDatasetError": (RuntimeError,),
        "ForkedIteratorError": (RuntimeError,),
        "InterruptedReadError": (RuntimeError,),
        "InternalError": (RuntimeError,),
        "DatasetRTError": (Exception,),
    }
    for name in ERRORS:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.DatasetRTError)
        for builtin in expected.get(name, (ValueError,)):
            assert issubclass(kind, builtin), name


@pytest.mark.parametrize("name", ERRORS)
def test_errors_survive_pickling_with_their_attributes(name):
    error = getattr(errors, name)("what: happened", path=Path("a"), rows=[1, 2], found=None)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error) == "what: happened"
    assert (copy.path, copy.rows, copy.found) == (Path("a"), [1, 2], None)


def test_the_stub_names_what_the_native_module_has():
    stub = ast.parse((ROOT / "dataset_rt" / "_dataset_rt.pyi").read_text(encoding="utf-8"))
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in vars(_dataset_rt) if not name.startswith("_")}
    assert public == set(classes) | functions
    inherited = set(dir(object)) | {"__new__", "__buffer__", "__release_buffer__"}
    for name, node in classes.items():
        stubbed = {part.name for part in node.body if isinstance(part, ast.FunctionDef)} - {"__buffer__", "__init__"}
        native = set(vars(getattr(_dataset_rt, name))) - inherited - {"__module__"}
        assert stubbed - {"__repr__"} == native, name
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("__"):
                arguments = [*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs][1:]
                found = list(inspect.signature(getattr(getattr(_dataset_rt, name), part.name)).parameters)[1:]
                assert [argument.arg for argument in arguments] == found, (name, part.name)


# Frameworks


def test_importing_the_package_imports_no_framework():
    script = """
        import sys
        import dataset_rt
        loaded = {"torch", "jax", "tensorflow", "pandas", "pyarrow", "sklearn"} & set(sys.modules)
        assert not loaded, loaded
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=ROOT)


def test_without_pytorch_the_adapter_says_what_to_install(tmp_path, monkeypatch):
    opened = CachedDataset([write(tmp_path, numbered(3))], reader_config=reader())
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.utils.data", None)
    with pytest.raises(ImportError, match="torch") as caught:
        opened.to_torch_iterable_dataset()
    assert "PyTorch" in str(caught.value)


def test_versions_agree():
    from importlib.metadata import version

    cargo = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{version("dataset-rt")}"\n' in cargo
