"""Writing with a schema that the source declares."""

from __future__ import annotations

from typing import Optional, Union

import numpy as np
import pytest

from dataset_rt import CacheWriteSuccess, write_cache
from tests.support import Source, manifest, numbered, read, refuse, write, writer

SPELLINGS = [
    (bool, "bool", False),
    (int, "int", False),
    (float, "float", False),
    (str, "string", False),
    ("bool", "bool", False),
    ("int", "int", False),
    ("float", "float", False),
    ("str", "string", False),
    ("string", "string", False),
    (int | None, "int", True),
    (None | str, "string", True),
    (Optional[float], "float", True),  # noqa: UP045 (older code declares it so)
    (Union[None, bool], "bool", True),  # noqa: UP007
    ("int | None", "int", True),
    ("str|None", "string", True),
    ("None | bool", "bool", True),
]


@pytest.mark.parametrize(("declared", "kind", "nullable"), SPELLINGS, ids=repr)
def test_a_schema_may_be_spelled_with_classes_or_their_names(tmp_path, declared, kind, nullable):
    value = {"bool": True, "int": 3, "float": 0.5, "string": "x"}[kind]
    path = write(tmp_path, [(b"", {"a": value})], schema={"a": declared})
    [column] = manifest(path)["metadata_schema"]
    assert (column["name"], column["kind"], bool(column.get("nullable"))) == ("a", kind, nullable)
    outcome = write_cache(
        Source("second", [(b"", {"a": None})], schema={"a": declared}), tmp_path, writer_config=writer()
    )
    assert isinstance(outcome[0], CacheWriteSuccess) is nullable, outcome


@pytest.mark.parametrize(
    ("declared", "part"),
    [
        (bytes, "bytes"),
        ("double", "'double'"),
        ("int | str", "'int | str'"),
        ("None", "'None'"),
        (int | str, "int | str"),
        (int | str | None, "int | str | None"),
        (None, "None"),
        (np.int64, "numpy.int64"),
        (5, "5"),
        (type("int", (), {}), "int"),
    ],
    ids=str,
)
def test_other_declared_types_are_refused(tmp_path, declared, part):
    message = refuse(tmp_path, [(b"", {"a": 1})], schema={"a": declared})
    assert "`a`" in message
    assert part in message


def test_a_declared_float_column_takes_ints_from_the_first_row(tmp_path):
    path = write(tmp_path, [(b"", {"a": 1}), (b"", {"a": 0.5})], schema={"a": float})
    assert [repr(sample.metadata["a"]) for sample in read(path)] == ["1.0", "0.5"]


def test_a_declared_schema_names_every_key(tmp_path):
    assert "`b` is missing" in refuse(tmp_path, [(b"", {"a": 1})], schema={"a": int, "b": int})
    assert "`b` is unexpected" in refuse(tmp_path, [(b"", {"a": 1, "b": 1})], schema={"a": int})
    message = refuse(tmp_path, [(b"", {"a": 1}), (b"", {"a": "x"})], schema={"a": int})
    assert message.startswith("sample 1: metadata column `a`: expected int")


@pytest.mark.parametrize("schema", [[("a", int)], 5, {1: int}], ids=["list", "int", "int-key"])
def test_a_schema_of_another_shape_is_refused(tmp_path, schema):
    assert "schema" in refuse(tmp_path, [(b"", {"a": 1})], schema=schema)


def test_methods_called_schema_and_version_are_not_declarations(tmp_path):
    class Framework(Source):
        def schema(self):
            raise AssertionError

        def version(self):
            raise AssertionError

    framework = Framework.__new__(Framework)
    framework.name, framework.items, framework.passes = "train", numbered(2), []
    [result] = write_cache(framework, tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
