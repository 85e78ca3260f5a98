"""Tasks that cannot be learned without one of the seams: composed actions, a critic that sees more, masks."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

STEPS = 16


class Task(gymnasium.Env):
    """Episodes of STEPS independent steps; `draw` makes the next observation, `pay` says reward and success."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.draw(), {}

    def step(self, action):
        reward, right = self.pay(action)
        self.steps += 1
        return self.draw(), reward, False, self.steps == STEPS, {"is_success": right}


class Hybrid(Task):
    """A choice of five and three numbers have to be right together. `parts` leaves out one of them, to be drawn."""

    def __init__(self, parts="both"):
        self.observation_space = Dict({"choice": Discrete(5), "aim": Box(-1, 1, (3,), np.float32)})
        whole = {"choice": Discrete(5), "aim": Box(-1, 1, (3,), np.float32)}
        self.action_space = Dict(whole) if parts == "both" else whole[parts]
        self.parts = parts

    def draw(self):
        self.wanted = {"choice": int(self.np_random.integers(5)), "aim": self.np_random.uniform(-1, 1, 3).astype(np.float32)}
        return self.wanted

    def pay(self, action):
        given = {"choice": self.np_random.integers(5), "aim": self.np_random.uniform(-1, 1, 3)}
        given.update(action if self.parts == "both" else {self.parts: action})
        miss = float(np.mean((given["aim"] - self.wanted["aim"]) ** 2))
        chosen = int(given["choice"]) == self.wanted["choice"]
        return chosen - miss, chosen and miss < 0.05


class Noisy(Task):
    """The reward of the right choice drowns in a number that only the critic may see; `hidden`: nobody."""

    def __init__(self, hidden=False):
        fields = {"sign": Box(-1, 1, (1,), np.float32), "luck": Box(-np.inf, np.inf, (1,), np.float32)}
        self.hidden = hidden
        self.observation_space = fields["sign"] if hidden else Dict(fields)
        self.action_space = Discrete(2)

    def draw(self):
        self.sign, self.luck = self.np_random.choice([-1.0, 1.0]), 200 * self.np_random.standard_normal()
        sign, luck = np.array([self.sign], np.float32), np.array([self.luck], np.float32)
        return sign if self.hidden else {"sign": sign, "luck": luck}

    def pay(self, action):
        right = (action == 1) == (self.sign > 0)
        return self.luck + right, right


class Masked(Task):
    """Twenty choices of which three are valid at each step; one that is not ends the run."""

    def __init__(self, empty_at=None):
        self.observation_space = Dict({"aim": Discrete(20), "action_mask": Box(0, 1, (20,), np.int8)})
        self.action_space = Discrete(20)
        self.empty_at = empty_at

    def draw(self):
        valid = self.np_random.choice(20, 3, replace=False)
        self.aim, self.mask = int(valid[0]), np.zeros(20, np.int8)
        self.mask[valid] = self.steps != self.empty_at
        return {"aim": self.aim, "action_mask": self.mask}

    def pay(self, action):
        assert self.mask[action], f"{action} is not valid"
        return float(action == self.aim), action == self.aim
