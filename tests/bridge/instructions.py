"""A bandit of one picture and one instruction: both say what is right, and neither alone is enough."""

import gymnasium
import numpy as np

WORDS = ("high", "low")


class Told(gymnasium.Env):
    """The instruction says whether the first choice shall be among the upper or the lower half of 256, the side of the
    picture that is bright says it of the second. One step, reward 1 where both are right: 0.25 by chance."""

    def __init__(self, size=16):
        self.size = size
        spaces = {"image": gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8),
                  "state": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
                  "instruction": gymnasium.spaces.Box(-1, 2**31 - 1, (8,), np.int32)}  # fmt: skip
        self.observation_space = gymnasium.spaces.Dict(spaces)
        self.action_space = gymnasium.spaces.MultiDiscrete([256, 256])

    def _observation(self):
        image = np.full((self.size, self.size, 3), 20, np.uint8)
        half = self.size // 2
        image[:, half * self.side : half * self.side + half] = 230
        tokens = [1, *(3 + byte for byte in WORDS[self.word].encode())]
        return {"image": image, "state": np.zeros(2, np.float32),
                "instruction": np.array(tokens + [-1] * (8 - len(tokens)), np.int32)}  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word, self.side = int(self.np_random.integers(2)), int(self.np_random.integers(2))
        return self._observation(), {}

    def step(self, action):
        right = (action[0] >= 128) == (self.word == 0) and (action[1] >= 128) == (self.side == 0)
        return self._observation(), float(right), True, False, {"success": bool(right)}
