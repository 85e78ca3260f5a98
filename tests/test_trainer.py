"""gipo.Trainer learns, acts, is saved and goes on; callbacks hear what they ask for and end runs."""

import warnings

import gipo as library
import gymnasium
import numpy as np
import pytest
from gipo.callbacks import (
    Callback, EverySteps, EveryUpdates, OnEpisode, OnNewBest, StopAtReturn, StopOnNoImprovement, together,
)  # fmt: skip

SMALL = {
    "policy__hidden": [16, 16], "learner__batch_size": 64, "replay__segment_length": 16, "eval__episodes": 2,
    "progress": False,
}  # fmt: skip


@pytest.fixture
def small(tmp_path):
    def make(env="CartPole-v1", config="classic/stale", **options):
        return library.Trainer(env, config, run__dir=tmp_path / "runs", **SMALL, **options)

    return make


def test_learns_on_and_on_like_one_run(small, tmp_path):
    trainer = small(seed=3)
    assert trainer.env_steps == 0 and trainer.learn(3000) is trainer
    assert trainer.env_steps == 3000 and trainer.run.summary["ended"] == "finished"
    assert trainer.run.path == tmp_path / "runs/CartPole-v1-3" and trainer.run.config["run"]["seed"] == 3
    trainer.learn(1000)
    assert trainer.env_steps == 4000 and trainer.policy.version == trainer.run.summary["updates"]
    same = library.train(
        "classic/stale", "CartPole-v1", env_steps=3000, seed=3, run__dir=tmp_path, name="again", **SMALL
    )
    library.resume(same, env_steps=4000, progress=False)
    assert same.summary["fingerprint"] == trainer.run.summary["fingerprint"]


def test_learns_cartpole(small):
    trainer = library.Trainer("CartPole-v1", progress=False, seed=1, run__dir=small().learn(1500).run.path.parent)
    assert trainer.learn(25_000).evaluate(10).mean > 400
    assert trainer.run.path.name == "CartPole-v1-1-2"  # the first name was taken


def test_predict_takes_one_observation_or_a_batch(small):
    trainer = small("Pendulum-v1").learn(1500)
    obs = np.array([1.0, 0.0, 0.5])
    action, state = trainer.predict(obs)
    assert state is None and action.shape == (1,) and action.dtype == np.float32
    np.testing.assert_allclose(trainer.predict(np.stack([obs, obs]))[0], [action, action], rtol=1e-6)  # rows round apart
    assert trainer.predict(obs, deterministic=False)[0] != action
    np.testing.assert_array_equal(trainer.policy.act(obs), action)


def test_saved_trainer_goes_on_with_the_same_bytes(small, tmp_path):
    trainer = small().learn(2000)
    trainer.save(tmp_path / "kept")
    loaded = library.Trainer.load(tmp_path / "kept", progress=False)
    trainer.learn(1000), loaded.learn(1000)
    assert loaded.run.path == tmp_path / "kept"
    assert loaded.run.summary["fingerprint"] == trainer.run.summary["fingerprint"]
    np.testing.assert_array_equal(loaded.evaluate(3).returns, trainer.evaluate(3).returns)
    with pytest.raises(library.ConfigError, match="kept exists"):
        trainer.save(tmp_path / "kept")
    (loaded.run.path / "summary.json").unlink()  # as after a kill
    assert loaded.env_steps > 2500 and loaded.learn(500).run.summary["ended"] == "finished"


def test_learns_on_an_environment_that_exists(small):
    trainer = small(gymnasium.make("MountainCar-v0"), seed=2).learn(1500)
    assert trainer.run.path.name == "MountainCar-v0-2" and 50 < trainer.evaluate(1).lengths[0] <= 200
    assert trainer.evaluate(1, "MountainCar-v0", time_limit=30).lengths.tolist() == [30]


def test_interrupted_learning_goes_on(small):
    trainer = small()

    def interrupt(figures):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.learn(20_000, interrupt)
    before = trainer.env_steps
    assert 0 < before < 20_000 and trainer.learn(500).env_steps >= before + 500


def test_mistakes_are_told(small, tmp_path):
    trainer = small()
    for call, said in [
        (lambda: trainer.run, "nothing has been learned yet"),
        (lambda: trainer.predict(np.zeros(4)), "nothing has been learned yet"),
        (lambda: trainer.save(tmp_path / "x"), "nothing has been learned yet"),
        (lambda: trainer.learn(0), "env_steps = 0"),
        (lambda: trainer.learn(1.5), "env_steps = 1.5"),
        (lambda: trainer.learn(total_timesteps=10), "'total_timesteps'; did you mean 'env_steps'"),
        (lambda: trainer.learn(10, tb_log_name="x"), "'tb_log_name'; it takes env_steps and callback"),
        (lambda: library.Trainer.load(tmp_path / "x"), "no such run folder"),
        (lambda: small("CartPoel-v1").learn(2000), "did you mean CartPole-v1"),
        (lambda: small(config="no/such").learn(2000), "no/such"),
        (lambda: small(surrogate__sigmaa=1).learn(2000), "surrogate__sigma"),
        (lambda: StopAtReturn(np.nan), "StopAtReturn: value = nan"),
        (lambda: StopOnNoImprovement(0), "evaluations = 0"),
        (lambda: EveryUpdates(0, print), "EveryUpdates: n = 0"),
        (lambda: EverySteps(1.5, print), "EverySteps: n = 1.5"),
    ]:
        with pytest.raises(library.ConfigError, match=said):
            call()
    for call, said in [
        (lambda: trainer.learn(2000, 3), "callback must be callable, not int"),
        (lambda: trainer.learn(2000, [3]), "callback must be callable, not int"),
        (lambda: OnNewBest(3), "OnNewBest: function must be callable"),
    ]:
        with pytest.raises(TypeError, match=said):
            call()
    assert not (tmp_path / "runs").exists()


class Count(Callback):
    """Counts what it hears."""

    def __init__(self):
        self.started, self.updates, self.evaluations, self.episodes = [], 0, [], 0

    def on_start(self, run):
        self.started.append(run.path.name)

    def on_update(self, figures):
        self.updates += 1

    def on_evaluation(self, figures):
        self.evaluations.append(figures["mean"])

    def on_episode(self, figures):
        self.episodes += 1
        return True


def test_callbacks_of_a_list_hear_of_every_moment(small):
    count, steps, updates, best, episodes = Count(), [], [], [], []
    trainer = small(eval__every_updates=50, log__every_updates=10)
    trainer.learn(4000, [
        count, EverySteps(1500, lambda f: steps.append(f["env_steps"])), OnEpisode(lambda f: episodes.append(f["return"])),
        EveryUpdates(100, lambda f: updates.append(f["update"])), OnNewBest(lambda f: best.append((f["mean"], f.policy()))),
    ])  # fmt: skip
    run = trainer.run
    assert count.started == [run.path.name]
    assert count.updates == len(run.metrics()["update"])
    np.testing.assert_array_equal(count.evaluations, run.evaluations()["mean"])
    assert count.episodes == len(episodes) and episodes == run.episodes()["return"].tolist()
    assert [s // 1500 for s in steps] == [1, 2] and updates == [100 * (i + 1) for i in range(len(updates))]
    assert len(updates) == run.summary["updates"] // 100
    means = run.evaluations()["mean"]
    assert [mean for mean, _ in best] == [m for i, m in enumerate(means) if m > max(means[:i], default=-np.inf)]
    assert best[-1][1].version == run.policy("best").version
    trainer.learn(500, count)
    assert count.started == [run.path.name] * 2


def test_callbacks_end_the_run_at_a_return_and_without_progress(small):
    trainer = small(eval__every_updates=20)
    trainer.learn(50_000, [StopAtReturn(1.0), lambda figures: None])
    assert trainer.run.summary["ended"] == "stopped" and trainer.env_steps < 5000
    before = len(trainer.run.evaluations()["mean"])
    still = StopOnNoImprovement(3, least=1e9)
    trainer.learn(50_000, still)
    assert trainer.run.summary["ended"] == "stopped" and still.since >= 3
    assert len(trainer.run.evaluations()["mean"]) <= before + 6


def test_no_improvement_is_counted_from_the_best():
    stop = StopOnNoImprovement(2, least=1.0)
    assert [stop.on_evaluation({"mean": m}) for m in (5, 5.5, 7, 6, 7.5)] == [True, True, True, True, False]
    assert (stop.best, stop.since) == (7, 2)


def test_moments_that_nobody_waits_for_cost_nothing():
    assert together(None) == (None, None, None, None)
    assert [f is None for f in together([StopAtReturn(1), OnEpisode(print)])] == [True, True, False, False]
    stop = together([lambda f: False, lambda f: heard.append(f)]).on_update
    heard = []
    assert stop({"update": 1}) is False and heard == [{"update": 1}]  # all hear, also after one that ends the run


def test_waiting_for_evaluations_that_do_not_come_warns(small):
    with pytest.warns(RuntimeWarning, match="eval__every_updates is 0"):
        small().learn(1500, StopAtReturn(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small().learn(1500, OnEpisode(lambda f: None))
