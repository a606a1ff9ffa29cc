"""The stubs describe the module."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import peregrine
import pyarrow


def test_stubs_have_the_signatures_of_the_module(tmp_path):
    allowed = tmp_path / "allowed"
    # The library within the package that the build makes.
    allowed.write_text(r"peregrine\.peregrine")
    command = [sys.executable, "-m", "mypy.stubtest", "peregrine", "--allowlist", allowed]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_help_has_the_texts_of_the_stubs():
    stubs = ast.parse(Path(importlib.util.find_spec("peregrine").origin).with_suffix(".pyi").read_text())
    functions = [part for part in stubs.body if isinstance(part, ast.FunctionDef)]
    texts = {part.name: (ast.get_docstring(part), getattr(peregrine, part.name).__doc__) for part in functions}
    texts["peregrine"] = (ast.get_docstring(stubs), peregrine.__doc__)
    for name, (text, shown) in texts.items():
        assert shown and shown.split() == text.split(), name


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
