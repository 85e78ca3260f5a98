"""The TensorBoard package reads the event file and finds there what metrics.jsonl says."""

import math

import numpy as np
import pytest
from conftest import json_lines

NOT_SCALARS = {"update", "env_steps"}  # the step axis, and whole numbers beyond the reach of 32-bit floats


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_all_scalars_equal_metrics(gipo, mode):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = gipo.train("one", {"run.mode": mode, "learner.updates": 500, "log.every_updates": 7})
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    lines = json_lines(run / "metrics.jsonl")
    assert [line["update"] for line in lines] == [*range(7, 500, 7), 500]

    # A figure that is not finite is null in JSON and NaN or infinite in TensorBoard.
    names = {name for line in lines for name, value in line.items() if not isinstance(value, list)} - NOT_SCALARS
    assert set(events.Tags()["scalars"]) == names
    assert len(names) > 50
    compared = 0
    for name in names:
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == [line["update"] for line in lines], name
        for scalar, line in zip(scalars, lines):
            if line[name] is None:
                assert not math.isfinite(scalar.value), f"{name} at {scalar.step}"
            else:
                assert np.float32(scalar.value) == np.float32(line[name]), f"{name} at {scalar.step}"
                compared += 1
    assert compared > 0.9 * len(names) * len(lines)


def test_no_event_file_where_none_is_wanted(gipo):
    run = gipo.train("one", {"log.tensorboard": "false"})
    assert list(run.glob("events*")) == []
