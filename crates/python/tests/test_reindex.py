"""Rebuilds, errors, and Ctrl-C."""

import inspect
import os
import shutil
import signal
import sys
import threading
import time

import peregrine
import pyarrow
import pytest
from conftest import generate


@pytest.fixture
def interrupt_after():
    """Returns a function that lets SIGINT arrive after some seconds."""
    # A shell lets its background jobs ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_deleted_chainstate_is_rebuilt(copy, chain):
    shutil.rmtree(copy / "regtest/chainstate")
    with pytest.raises(peregrine.Error) as raised:
        peregrine.utxo(copy, chain="regtest")
    assert (raised.value.kind, raised.value.file) == ("missing", copy / "regtest/chainstate")
    assert raised.value.remedies == ["rebuild-chainstate"]
    events = []
    report = peregrine.reindex(str(copy), chain="regtest", progress=events.append)
    names = ["height", "blocks", "transactions", "inputs", "hash_serialized_3", "total_amount_sat"]
    assert [report[name] for name in names] == [chain[name] for name in names]
    assert (report["block_hash"], report["coins"]) == (chain["hash"], chain["txouts"])
    assert report["script_inputs"] == chain["inputs"]
    assert report["chainstate"] == copy / "regtest/chainstate"
    stages = [event["stage"] for event in events if event["event"] == "stage"]
    assert (stages[0], stages[-1]) == ("plan", "commit")
    progress = [event for event in events if "blocks" in event]
    assert progress and all(event["blocks_total"] == chain["blocks"] for event in progress)
    rows = peregrine.utxo(copy, chain="regtest")
    pyarrow.table(rows)
    assert rows.report()["hash_serialized_3"] == chain["hash_serialized_3"]


def test_a_rebuild_to_a_height_has_the_coins_after_it(node, tmp_path):
    options = {"stop_at_height": 120, "output": tmp_path / "new", "engine": "cache", "assumevalid": "0"}
    report = peregrine.reindex(node, chain="regtest", **options)
    rows = peregrine.utxo(node, 120, chain="regtest", work_dir=tmp_path)
    pyarrow.table(rows)
    assert report["hash_serialized_3"] == rows.report()["hash_serialized_3"]
    assert (report["height"], report["matching"]) == (120, "cache")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chain": "bitcoin"}, "unknown chain"),
        ({"engine": "fast"}, "use join or cache"),
        ({"undo": "no"}, "use auto, trust or make"),
        ({"assumevalid": "1"}, "assumevalid"),
        ({"memory": 1000}, "memory must be at least 134217728 bytes"),
        ({"stop_at_height": 1_000_000}, "above the last"),
    ],
)
def test_what_makes_no_sense_is_refused(node, options, text):
    with pytest.raises(peregrine.Error, match=text) as raised:
        peregrine.reindex(node, **{"chain": "regtest", **options})
    assert raised.value.kind == "usage"


@pytest.mark.parametrize(
    ("options", "error"),
    [({"from_height": -1}, OverflowError), ({"to_height": 2**32}, OverflowError), ({"threads": 0}, ValueError)],
)
def test_numbers_out_of_range_raise_what_help_says(node, options, error):
    """Once, help named only `Error`."""
    with pytest.raises(error):
        peregrine.blocks(node, chain="regtest", **options)
    assert f"`{error.__name__}`" in inspect.getdoc(peregrine)


def test_errors_name_the_place(copy):
    damage(copy / "regtest/blocks/blk00000.dat", 0.9)
    with pytest.raises(peregrine.Error) as raised:
        peregrine.reindex(copy, chain="regtest")
    error = raised.value
    assert (error.kind, error.file) == ("damaged", copy / "regtest/blocks/blk00000.dat")
    assert error.height > 100 and error.offset > 0 and len(error.block_hash) == 64
    assert error.detail in str(error) and error.rule is None


def test_damage_that_is_found_late_ends_the_rows(node, copy):
    file = copy / "regtest/blocks/rev00000.dat"
    damage(file, 0.99)
    rows = peregrine.inputs(copy, chain="regtest", threads=4)
    found = []
    with pytest.raises(OSError, match="rev00000.dat"):
        for batch in pyarrow.RecordBatchReader.from_stream(rows):
            found += batch.to_pylist()
    # All blocks of the parts below the damage.
    last = found[-1]["height"]
    assert last > 100 and found == pyarrow.table(peregrine.inputs(node, 0, last, chain="regtest")).to_pylist()
    with pytest.raises(peregrine.Error) as raised:
        rows.report()
    assert (raised.value.kind, raised.value.file) == ("damaged", file)


def test_ctrl_c_interrupts_a_rebuild(copy, chain, interrupt_after):
    shutil.rmtree(copy / "regtest/chainstate")
    interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt) as raised:
        peregrine.reindex(copy, chain="regtest", threads=1)
    assert raised.value.__cause__.kind == "interrupted"
    assert not (copy / "regtest/chainstate").exists()
    report = peregrine.reindex(copy, chain="regtest")
    assert report["hash_serialized_3"] == chain["hash_serialized_3"]


def test_ctrl_c_interrupts_the_blocks_below_a_height(node, chain, tmp_path, interrupt_after):
    interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        peregrine.utxo(node, chain["height"], chain="regtest", threads=1, work_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_interrupts_a_library_that_waits_for_rows(tmp_path, interrupt_after):
    generate(tmp_path, "--size", "100MB", "--unsigned")
    rows = peregrine.inputs(tmp_path, chain="regtest", threads=1)
    batches = pyarrow.RecordBatchReader.from_stream(rows)
    interrupt_after(0.01)
    with pytest.raises(KeyboardInterrupt):
        try:
            batches.read_all()
        except OSError as error:
            # Python interrupts what follows the library's own exception.
            assert "interrupted" in str(error)
            time.sleep(1)
    with pytest.raises(peregrine.Error, match="interrupted"):
        rows.report()


def test_an_exception_of_the_callers_function_interrupts_a_rebuild(copy):
    def progress(event):
        raise RuntimeError(event["stage"])

    with pytest.raises(RuntimeError, match="plan") as raised:
        peregrine.reindex(copy, chain="regtest", progress=progress)
    assert raised.value.__cause__.kind == "interrupted"


@pytest.mark.parametrize("own_cause", [None, ValueError("mine")])
@pytest.mark.parametrize("has_finished", [False, True])
def test_an_exception_says_whether_the_rebuild_has_finished(copy, own_cause, has_finished):
    """Once, nothing said that it had, and a cause that the exception had was lost."""
    chainstate = copy / "regtest/chainstate"
    shutil.rmtree(chainstate)

    def progress(event):
        deadline = time.monotonic() + 60
        while has_finished and not chainstate.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise RuntimeError(event["stage"]) from own_cause

    with pytest.raises(RuntimeError, match="plan") as raised:
        peregrine.reindex(copy, chain="regtest", progress=progress)
    text = f"{chainstate}: the rebuild had finished" if has_finished else "the datadir is unchanged"
    cause = raised.value.__cause__
    if own_cause is None:
        assert cause.kind == "interrupted" and text in str(cause)
    else:
        assert cause is own_cause
        # Python 3.10 has no notes.
        assert sys.version_info < (3, 11) or text in raised.value.__notes__[0]
    assert chainstate.exists() == has_finished


def test_other_threads_run_during_a_rebuild(copy):
    counts = []
    options = {"chain": "regtest", "threads": 1}
    thread = threading.Thread(target=peregrine.reindex, args=[copy], kwargs=options)
    thread.start()
    while thread.is_alive():
        counts.append(len(counts))
        time.sleep(0.01)
    thread.join()
    assert len(counts) > 20


def damage(file, share):
    """Changes a byte of a file at this share of the bytes before the zeros at its end."""
    bytes_ = bytearray(file.read_bytes())
    bytes_[int(len(bytes_.rstrip(b"\0")) * share)] ^= 1
    file.write_bytes(bytes_)
