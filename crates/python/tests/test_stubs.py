"""The stubs describe the module."""

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import peregrine
import pyarrow
import pytest


def test_the_package_has_licences_and_a_list_of_what_is_in_it():
    files = {path.name: path for path in importlib.metadata.files("peregrine-utxo")}
    assert "MIT" in files["LICENSE-MIT"].read_text() and "Apache" in files["LICENSE-APACHE"].read_text()
    crates = {component["name"] for component in json.loads(files["peregrine-python.cyclonedx.json"].read_text())["components"]}
    assert {"pyo3", "arrow-array", "peregrine-engine"} <= crates


def test_stubs_have_the_signatures_of_the_module(tmp_path):
    allowed = tmp_path / "allowed"
    # The library within the package that the build makes.
    allowed.write_text(r"peregrine\.peregrine")
    command = [sys.executable, "-m", "mypy.stubtest", "peregrine", "--allowlist", allowed]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_stubs_have_the_texts_of_help():
    """With UPDATE_DOCS, they are written into the stubs."""
    stubs = Path(__file__).parents[1] / "peregrine.pyi"
    text = stubs.read_text()
    parts = ast.parse(text).body
    functions = [part for part in parts if isinstance(part, ast.FunctionDef)]
    objects = [(parts[0], peregrine)] + [(part.body[0], getattr(peregrine, part.name)) for part in functions]
    lines = text.splitlines()
    # From the last to the first, so that the numbers of the lines above stay.
    for part, documented in reversed(objects):
        indent = " " * part.col_offset
        shown = [indent + line if line else "" for line in inspect.getdoc(documented).splitlines()]
        shown[0] = indent + '"""' + shown[0].strip()
        lines[part.lineno - 1 : part.end_lineno] = [*shown, indent + '"""']
    expected = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        stubs.write_text(expected)
    assert stubs.read_text() == expected, "make test-python with UPDATE_DOCS=1 writes them"


@pytest.mark.parametrize("name", ["utxo", "blocks", "transactions", "inputs", "outputs", "reindex"])
def test_help_names_all_arguments_and_columns(name, node):
    function = getattr(peregrine, name)
    listed = re.findall(r"^- `(\w+)`(?: \((.+?)\))?: ", inspect.getdoc(function), re.MULTILINE)
    arguments = inspect.signature(function).parameters
    assert [argument for argument, kind in listed if not kind] == list(arguments)
    if name == "reindex":
        return
    options = {option: True for option in ("addresses", "spent") if option in arguments}
    schema = pyarrow.schema(function(node, chain="regtest", **options))
    columns = [(column.name, TYPES[column.type] + " or null" * column.nullable) for column in schema]
    assert [(column, kind) for column, kind in listed if kind] == columns


TYPES = {
    pyarrow.binary(32): "32 bytes",
    pyarrow.binary(): "bytes",
    pyarrow.bool_(): "bool",
    pyarrow.dictionary(pyarrow.int8(), pyarrow.string()): "string",
    pyarrow.int32(): "int32",
    pyarrow.int64(): "int64",
    pyarrow.string(): "string",
    pyarrow.timestamp("ms", "UTC"): "timestamp",
}


def test_stubs_have_the_fields_of_reports_and_events(node, tmp_path):
    stubs = Path(importlib.util.find_spec("peregrine").origin).with_suffix(".pyi")
    parts = ast.parse(stubs.read_text()).body
    classes = {part.name: part for part in parts if isinstance(part, ast.ClassDef)}

    def fields(name):
        return [part.target.id for part in classes[name].body if isinstance(part, ast.AnnAssign)]

    rows = [peregrine.utxo(node, chain="regtest"), peregrine.outputs(node, chain="regtest", spent=True)]
    for each in rows:
        pyarrow.table(each)
    assert {name for each in rows for name in each.report()} == set(fields("RowsReport"))
    spent_to = rows[1].report()["spent_to"]
    assert (list(spent_to), list(spent_to["unspent"])) == (fields("SpentTo"), fields("UnspentOutputs"))
    events = []
    report = peregrine.reindex(node, output=tmp_path / "new", chain="regtest", progress=events.append)
    assert list(report) == fields("RebuildReport")
    assert {name for event in events for name in event} == set(fields("Event"))
