"""The TensorBoard package reads the event file and finds there what metrics.jsonl says."""

import numpy as np
import pytest
from conftest import json_lines

NOT_SCALARS = {"update", "env_steps"}  # the step axis, and whole numbers beyond the reach of 32-bit floats


# With the large rewards the value loss is beyond the reach of 32-bit floats.
@pytest.mark.parametrize(
    "options",
    [{"run.mode": "lockstep"}, {"run.mode": "async"}, {"env.reward_scale": 1e30}],
    ids=["lockstep", "async", "large rewards"],
)
def test_all_scalars_equal_metrics(gipo, options):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = gipo.train("one", {"learner.updates": 500, "log.every_updates": 7} | options)
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    lines = json_lines(run / "metrics.jsonl")
    assert [line["update"] for line in lines] == [*range(7, 500, 7), 500]

    # A figure that is not finite is null in JSON and left out of TensorBoard.
    expected = {}
    assert any(line["value_loss"] is None for line in lines) == ("env.reward_scale" in options)
    for line in lines:
        for name, value in line.items():
            if value is not None and not isinstance(value, list) and name not in NOT_SCALARS:
                expected.setdefault(name, []).append((line["update"], np.float32(value)))
    assert set(events.Tags()["scalars"]) == set(expected)
    assert len(expected) > 50
    for name, values in expected.items():
        assert [(scalar.step, np.float32(scalar.value)) for scalar in events.Scalars(name)] == values, name
    assert sum(len(values) == len(lines) for values in expected.values()) > 30


def test_no_event_file_where_none_is_wanted(gipo):
    run = gipo.train("one", {"log.tensorboard": "false"})
    assert list(run.glob("events*")) == []
