"""Environments that are seen as pictures, for tests of encoders."""

import gymnasium
import numpy as np


class Catch(gymnasium.Env):
    """A ball falls down a field of ten by ten; the paddle in the last row is to be under it when it arrives."""

    action_space = gymnasium.spaces.Discrete(3)  # left, stay, right

    def __init__(self, scale=1, as_dict=False):
        self.scale, self.as_dict = scale, as_dict
        image = gymnasium.spaces.Box(0, 255, (10 * scale, 10 * scale, 1), np.uint8)
        self.observation_space = image
        if as_dict:
            height, ball = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(100)
            self.observation_space = gymnasium.spaces.Dict(image=image, height=height, ball=ball)

    def seen(self):
        picture = np.zeros((10, 10, 1), np.uint8)
        picture[self.y, self.x] = 128
        picture[9, self.paddle] = 255
        picture = picture.repeat(self.scale, 0).repeat(self.scale, 1)
        if not self.as_dict:
            return picture
        return {"image": picture, "height": np.array([self.y / 9], np.float32), "ball": 10 * self.y + self.x}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.paddle = (int(v) for v in self.np_random.integers(10, size=2))
        self.y = 0
        return self.seen(), {}

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, 9))
        self.y += 1
        over = self.y == 9
        return self.seen(), (1.0 if self.x == self.paddle else -1.0) if over else 0.0, over, False, {}
