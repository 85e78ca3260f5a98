"""Robot tasks with cameras as environments of Gymnasium: LIBERO, Meta-World and robosuite. The gipo program carries this file
and gives it to its workers, so it imports nothing of gipo but tokeniser.py, whose text it
carries in place of that line: NumPy, Gymnasium and, when a task is made, its simulator.

An observation is a Dict: `image` and, where there is a second camera, `wrist_image`, of uint8, upright; `state`, what the
robot feels of itself; and `instruction`, if asked for, as bytes of UTF-8 with zeros behind, or as tokens. Actions are numbers,
or choices among bins, the tokens that a vision-language-action model gives. docs/robot-tasks.md has the user's view.
"""

import contextlib
import ctypes.util
import functools
import glob
import importlib.util
import inspect
import io
import json
import logging
import math
import os
import pathlib
import pickle
import re
import tempfile
import zipfile

import gymnasium
import numpy as np

from gipo.tokeniser import BYTES, Tokeniser

Mistake = ValueError  # in a worker, the exception whose words need no traceback

LIBERO_LIMITS = {"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520}
SETTLE = 10  # steps that let objects come to rest; no policy sees them
GRASP_OPEN = np.array([0, 0, 0, 0, 0, 0, -1.0])

META_WORLD_INSTRUCTIONS = {
    "reach-v3": "reach the goal", "push-v3": "push the puck to the goal", "pick-place-v3": "pick up the puck and hold it at the goal",
    "door-open-v3": "open the door", "drawer-open-v3": "open the drawer", "drawer-close-v3": "close the drawer",
    "button-press-topdown-v3": "press the button from above", "peg-insert-side-v3": "insert the peg into the hole",
    "window-open-v3": "open the window", "window-close-v3": "close the window", "handle-press-v3": "press the handle down",
}  # fmt: skip


def choose_drawing():
    """Before a simulator is imported: EGL where there is a graphics card, else OSMesa where it is installed."""
    if "MUJOCO_GL" not in os.environ:
        card = glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/dri/renderD*")
        os.environ["MUJOCO_GL"] = "osmesa" if not card and ctypes.util.find_library("OSMesa") else "egl"
    os.environ["PYOPENGL_PLATFORM"] = os.environ["MUJOCO_GL"]
    os.environ.setdefault("LP_NUM_THREADS", "0")  # software drawing shall not take the cores of other workers


def check_drawing(drawing):
    if drawing not in ("published", "fast"):
        raise Mistake(f"env.options.drawing is {drawing!r}: wanted published or fast")


@contextlib.contextmanager
def needs(package, setup):
    """Says what installs a simulator that is not there."""
    try:
        logging.disable(logging.WARNING)  # robosuite misses a file that nobody needs, and says so in every process
        yield
    except ImportError as error:
        raise Mistake(f"{error}; the Python that runs it needs the package {package}: in a clone of gipo, scripts/setup.sh "
                      f"{setup} installs it; env.python or GIPO_PYTHON names another Python") from None
    finally:
        logging.disable(logging.NOTSET)


def tokeniser_of(path):
    try:
        return Tokeniser(path, "env.options.tokeniser")
    except ValueError as error:
        raise Mistake(str(error)) from None


class Bins:
    """Actions as choices, as in OpenVLA: choice 0 is the largest of `count` - 1 centres between -1 and 1, and the last two are
    the smallest. Statistics with quantiles q01 and q99 of each dimension, if given, say what -1 and 1 mean."""

    def __init__(self, count, statistics, action_size):
        edges = np.linspace(-1, 1, count)
        self.count, self.edges, self.centres = count, edges, (edges[:-1] + edges[1:]) / 2
        self.low, self.high = -np.ones(action_size), np.ones(action_size)
        self.gripper = False
        if statistics is not None:
            self._read(statistics, action_size)

    def _read(self, path, action_size):
        try:
            data = json.loads(pathlib.Path(path).read_text())
            while "q01" not in data:  # a file of one data set may have its name around them
                data = next(iter(data.values())) if len(data) == 1 else data["action"]
            low, high = np.array(data["q01"], float), np.array(data["q99"], float)
            mask = np.array(data.get("mask", [True] * action_size), bool)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Mistake(f"env.options.statistics is {path!r}: wanted a JSON file with action.q01 and action.q99 "
                          f"({error!r})") from None
        if not low.shape == high.shape == mask.shape == (action_size,):
            raise Mistake(f"env.options.statistics is {path!r}: wanted {action_size} numbers in q01, q99 and mask")
        self.low, self.high = np.where(mask, low, -1), np.where(mask, high, 1)
        self.gripper = not mask[-1]  # OpenVLA's, which is 1 to open; the simulators' is -1

    def actions(self, choices):
        """The robot's, of choices [..., dimensions]."""
        x = self.centres[np.clip(self.count - 1 - np.asarray(choices), 0, self.count - 2)]
        x = (x + 1) / 2 * (self.high - self.low) + self.low
        if self.gripper:
            x[..., -1] = -np.sign(2 * x[..., -1] - 1)
        return x

    def choices(self, actions):
        """The nearest, of the robot's actions [..., dimensions]."""
        x = np.array(actions, float)
        if self.gripper:
            x[..., -1] = (1 - np.sign(x[..., -1])) / 2
        x = 2 * (x - self.low) / (self.high - self.low) - 1
        return self.count - np.digitize(np.clip(x, -1, 1), self.edges)


class RobotTask(gymnasium.Env):
    """What the simulators have in common. A simulator says how an episode begins and how one action is carried out, both
    with what is then seen: a dict with the images of its cameras, if they were to be drawn, and its state."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # of single actions
    render_mode = "rgb_array"

    def __init__(self, cameras, state_size, action_size, limit, *, size, chunk, instruction_bytes, instruction_tokens=0,
                 tokeniser=BYTES, action_bins=0, statistics=None):  # fmt: skip
        for name, value, least in (("size", size, 16), ("chunk", chunk, 1), ("instruction_bytes", instruction_bytes, 0),
                                   ("instruction_tokens", instruction_tokens, 0),
                                   ("action_bins", action_bins, 0)):  # fmt: skip
            if type(value) is not int or value < least:
                raise Mistake(f"env.options.{name} is {value!r}: wanted a whole number, {least} or more")
        if action_bins == 1:
            raise Mistake("env.options.action_bins is 1: wanted 0, for numbers, or 2 or more")
        if instruction_bytes and instruction_tokens:
            raise Mistake("env.options.instruction_bytes and env.options.instruction_tokens: wanted one of them")
        if statistics is not None and not action_bins:
            raise Mistake("env.options.statistics: wanted env.options.action_bins with it")
        self.bins = Bins(action_bins, statistics, action_size) if action_bins else None
        self.cameras, self.chunk, self.action_size = cameras, chunk, action_size
        self.metadata = {**self.metadata, "render_fps": self.metadata["render_fps"] / chunk}
        self._max_episode_steps = math.ceil(limit / chunk)
        self.limit, self.taken, self.seen = limit, 0, None
        spaces = {name: gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8) for name in cameras}
        spaces["state"] = gymnasium.spaces.Box(-np.inf, np.inf, (state_size,), np.float32)
        self.instruction_bytes, self.instruction_tokens = instruction_bytes, instruction_tokens
        self.tokeniser = tokeniser_of(tokeniser)
        if instruction_bytes:
            spaces["instruction"] = gymnasium.spaces.Box(0, 255, (instruction_bytes,), np.uint8)
        if instruction_tokens:
            spaces["instruction"] = gymnasium.spaces.Box(-1, 2**31 - 1, (instruction_tokens,), np.int32)
        self.observation_space = gymnasium.spaces.Dict(spaces)
        self.action_space = (gymnasium.spaces.MultiDiscrete([action_bins] * (chunk * action_size)) if action_bins
                             else gymnasium.spaces.Box(-1, 1, (chunk * action_size,), np.float32))  # fmt: skip

    def begin(self):
        """The start of an episode: what is seen."""
        raise NotImplementedError

    def move(self, action, draw):
        """One action: what is seen, the reward, and whether the task is done."""
        raise NotImplementedError

    def instruction(self):
        raise NotImplementedError

    def _observation(self, seen):
        self.seen = seen
        observation = {name: np.ascontiguousarray(seen[name]) for name in self.cameras}
        observation["state"] = np.asarray(seen["state"], np.float32)
        if self.instruction_bytes:
            observation["instruction"] = self._padded("bytes", list(self.instruction().encode()), 0).astype(np.uint8)
        if self.instruction_tokens:
            observation["instruction"] = self._padded("tokens", self.tokeniser.prompt(self.instruction()), -1)
        return observation

    def _padded(self, what, numbers, behind):
        most = getattr(self, f"instruction_{what}")
        if len(numbers) > most:
            raise Mistake(f"the instruction {self.instruction()!r} has {len(numbers)} {what}: wanted at most {most} "
                          f"(env.options.instruction_{what})")
        return np.array(numbers + [behind] * (most - len(numbers)), np.int32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        seen = self.begin()
        return self._observation(seen), {"instruction": self.instruction()}

    def step(self, action):
        actions = np.asarray(action).reshape(self.chunk, self.action_size)
        actions = np.clip(self.bins.actions(actions) if self.bins else actions.astype(np.float64), -1, 1)
        most = min(self.chunk, self.limit - self.taken)
        total, success = 0.0, False
        for k in range(most):
            seen, reward, success = self.move(actions[k], draw=k == most - 1)
            total += reward
            self.taken += 1
            if success and self.ends_with_success:
                break
        if any(name not in seen for name in self.cameras):
            seen = self.look()
        over = bool(success and self.ends_with_success)
        return self._observation(seen), total, over, not over and self.taken >= self.limit, {"success": bool(success)}

    ends_with_success = True

    def look(self):
        """What is seen now, with the images of the cameras."""
        raise NotImplementedError

    def render(self):
        """The first camera's last image, in whole multiples of its size."""
        if self.seen is None:
            return None
        image = self.seen[next(iter(self.cameras))]
        times = max(1, 384 // image.shape[0])
        return np.repeat(np.repeat(image, times, 0), times, 1)


def axis_angle(quaternion):
    """Of a quaternion x y z w."""
    w = float(np.clip(quaternion[3], -1, 1))
    norm = math.sqrt(1 - w * w)
    return np.zeros(3) if norm < 1e-8 else np.asarray(quaternion[:3]) * 2 * math.acos(w) / norm


class Robosuite(RobotTask):
    """What LIBERO and robosuite share. `env` is robosuite's own environment."""

    cameras_of = {"image": "agentview_image", "wrist_image": "robot0_eye_in_hand_image"}

    def __init__(self, env, limit, turned, **shape):
        self.env, self.turned = env, turned
        super().__init__(self.cameras_of, 8, env.action_dim, limit, **shape)

    def _make_current(self):
        self.env.sim._render_context_offscreen.gl_ctx.make_current()  # else environments show each other's pixels

    def _draw(self, on):
        """Whether cameras are read with the next observation."""
        observables = self.env._observables
        other = observables["robot0_eef_pos"]
        for name in self.cameras_of.values():
            camera = observables[name]
            if camera._enabled != on:
                camera._enabled = camera._active = on
                camera._sampled, camera._time_since_last_sample = other._sampled, other._time_since_last_sample

    def _seen(self, raw):
        state = [raw["robot0_eef_pos"], axis_angle(raw["robot0_eef_quat"]), raw["robot0_gripper_qpos"]]
        seen = {"state": np.concatenate(state)}
        for name, key in self.cameras_of.items():
            if key in raw:
                seen[name] = raw[key][::-1, ::-1] if self.turned else raw[key][::-1]
        return seen

    def _refreshed(self):
        self.env._post_process()
        self.env._update_observables(force=True)
        return self.env._get_observations()

    def look(self):
        self._make_current()
        self._draw(True)
        return self._seen(self._refreshed())

    def move(self, action, draw):
        self._make_current()
        self._draw(draw)
        raw, reward, _, _ = self.env.step(action)
        return self._seen(raw), float(reward), bool(self.env._check_success())

    def close(self):
        self.env.close()


def draw_plainly(env):
    """Neither several samples a pixel nor reflections: a tenth of the time where the processor draws."""
    import mujoco

    context = env.sim._render_context_offscreen
    env.sim.model._model.vis.quality.offsamples = 0
    context.gl_ctx.make_current()
    context.con.free()
    context._set_mujoco_context_and_buffers()
    context.scn.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0


class PlainArrays(pickle.Unpickler):
    """Reads pickles that hold arrays of NumPy, and executes nothing else."""

    allowed = {("_codecs", "encode"), ("numpy", "ndarray"), ("numpy", "dtype"),
               ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}  # fmt: skip

    def find_class(self, module, name):
        if (module, name) not in self.allowed:
            raise Mistake(f"the file of initial states asks for {module}.{name}: wanted arrays of NumPy alone")
        return super().find_class(module.replace("numpy.core", "numpy._core") if np.__version__ >= "2" else module, name)


def read_states(path):
    """Of PyTorch's archive with one array of NumPy in it."""
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
        return np.asarray(PlainArrays(io.BytesIO(archive.read(name))).load())


def language_of(name):
    """The instruction in a task's name, which begins with its scene where that is in capitals."""
    return re.sub(r"^[A-Z_]+SCENE\d+_", "", name).replace("_", " ")


@functools.cache
def libero_package():
    choose_drawing()
    with needs("hf-libero", "--libero"):
        spec = importlib.util.find_spec("libero")
        if spec is None:
            raise ImportError("No module named 'libero'")
        if "LIBERO_CONFIG_PATH" not in os.environ and not os.path.exists(os.path.expanduser("~/.libero/config.yaml")):
            folder = tempfile.mkdtemp(prefix="gipo-libero-")  # without a config it would ask for one on the terminal
            pathlib.Path(folder, "config.yaml").write_text("{}")
            os.environ["LIBERO_CONFIG_PATH"] = folder
        import libero.libero as package
    return package


@functools.cache
def libero_tasks():
    """Names of tasks by suite, from the package's own list, without what else its folder imports."""
    path = pathlib.Path(libero_package().__file__).parent / "benchmark" / "libero_suite_task_map.py"
    spec = importlib.util.spec_from_file_location("libero_suite_task_map", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.libero_task_map


def use_light_meshes(folder):
    """Every visual mesh for which the folder has a lighter one; what collides and what weighs stays as it is."""
    import mujoco
    import robosuite.utils.binding_utils as binding

    def lighter(match):
        found = re.search(r"/(robosuite)/models/assets/(.*)\.|/(libero)/assets/(.*)\.", match[1])
        path = found and folder / (found[1] or found[3]) / ((found[2] or found[4]) + ".msh")
        return f'file="{path}"' if path and path.exists() else match[0]

    def from_xml(cls, xml):
        return cls(mujoco.MjModel.from_xml_string(re.sub(r'file="([^"]+\.(?:msh|obj|stl))"', lighter, xml)))

    binding.MjSim.from_xml_string = classmethod(from_xml)


class Libero(Robosuite):
    def __init__(self, env, task, states, first, limit, **shape):
        self.task, self.states, self.first = task, states, first
        super().__init__(env, limit, True, **shape)

    def instruction(self):
        return language_of(self.task)

    def begin(self):
        k = int(self.np_random.integers(len(self.states))) if self.first is None else self.first
        before = np.random.get_state()  # the package draws where furniture stands from NumPy's own generator
        np.random.seed(0)
        self._make_current()
        self._draw(True)
        self.env.reset()
        np.random.set_state(before)
        self.env.sim.set_state_from_flattened(self.states[k])
        self.env.sim.forward()
        self.env._check_success()
        self._refreshed()
        for i in range(SETTLE):
            seen = self.move(GRASP_OPEN, draw=i == SETTLE - 1)[0]
        return seen


def libero(name, *, data=None, drawing="published", init_state=None, **shape):
    """A task of LIBERO: `libero_spatial/0` and so on."""
    suite, _, number = name.partition("/")
    package = libero_package()
    tasks = libero_tasks().get(suite) if suite in LIBERO_LIMITS else None
    if tasks is None or not number.isdecimal() or int(number) >= len(tasks):
        raise Mistake(f"wanted libero:SUITE/N, SUITE one of {', '.join(LIBERO_LIMITS)}, N from 0 to 9")
    task = tasks[int(number)]
    data = data or os.environ.get("GIPO_LIBERO_DATA") or None
    if data is not None:
        data = pathlib.Path(data).expanduser().resolve()
        if not (data / "assets").is_dir():
            raise Mistake(f"{data} (env.options.data, or GIPO_LIBERO_DATA) has no folder assets")
        package._assets_path_cache = str(data / "assets")
    elif not os.path.isdir(package.get_assets_path()):
        raise Mistake("LIBERO's meshes and textures are not there and could not be downloaded: env.options.data, or the "
                      "environment variable GIPO_LIBERO_DATA, names a folder with their folder assets")
    check_drawing(drawing)
    with needs("hf-libero", "--libero"):
        from libero.libero.envs import OffScreenRenderEnv

    if drawing == "fast" and data is not None and (data / "lite").is_dir():
        use_light_meshes(data / "lite")
    root = pathlib.Path(package.__file__).parent
    states = read_states(root / "init_files" / suite / f"{task}.pruned_init")
    if init_state is not None and init_state not in range(len(states)):
        raise Mistake(f"env.options.init_state is {init_state!r}: wanted a number from 0 to {len(states) - 1}")
    wrapper = OffScreenRenderEnv(bddl_file_name=str(root / "bddl_files" / suite / f"{task}.bddl"), camera_heights=shape["size"],
                                 camera_widths=shape["size"], hard_reset=drawing == "published", horizon=100000)  # fmt: skip
    if drawing == "fast":
        draw_plainly(wrapper.env)
    return Libero(wrapper.env, task, states, init_state, LIBERO_LIMITS[suite], **shape)


class RobosuiteTask(Robosuite):
    def __init__(self, env, name, limit, **shape):
        self.name = name
        super().__init__(env, limit, False, **shape)

    def instruction(self):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).lower()

    def begin(self):
        before = np.random.get_state()  # robosuite places objects with NumPy's own generator
        np.random.seed(int(self.np_random.integers(2**31)))
        self._make_current()
        self._draw(True)
        raw = self.env.reset()
        np.random.set_state(before)
        return self._seen(raw)


def robosuite(name, *, robot="Panda", drawing="published", limit=500, dense=False, **shape):
    """A task of robosuite with one arm: Lift, Stack, Door, ..."""
    choose_drawing()
    with needs("robosuite", "--libero"):
        import robosuite as package
    if name not in package.ALL_ENVIRONMENTS:
        raise Mistake(f"robosuite {package.__version__} has no such task; it has {', '.join(sorted(package.ALL_ENVIRONMENTS))}")
    check_drawing(drawing)
    env = package.make(name, robots=robot, controller_configs=package.load_controller_config(default_controller="OSC_POSE"),
                       has_renderer=False, has_offscreen_renderer=True, use_camera_obs=True, control_freq=20,
                       camera_names=["agentview", "robot0_eye_in_hand"], camera_heights=shape["size"], camera_widths=shape["size"],
                       reward_shaping=dense, ignore_done=True, hard_reset=False)  # fmt: skip
    if drawing == "fast":
        draw_plainly(env)
    return RobosuiteTask(env, name, limit, **shape)


class MetaWorld(RobotTask):
    """One or several tasks of Meta-World; every episode is of one of them. The policy sees a picture, hand and gripper."""

    def __init__(self, tasks, dense, limit, **shape):
        self.tasks, self.dense, self.ends_with_success = tasks, dense, not dense
        self.now = next(iter(tasks))
        super().__init__({"image": None}, 4, 4, limit, **shape)

    def instruction(self):
        return META_WORLD_INSTRUCTIONS.get(self.now, self.now.rpartition("-v")[0].replace("-", " "))

    def _seen(self, raw, draw=True):
        seen = {"state": raw[:4]}
        return seen | {"image": self.tasks[self.now].render()[::-1]} if draw else seen

    def begin(self):
        names = list(self.tasks)
        self.now = names[int(self.np_random.integers(len(names)))] if len(names) > 1 else names[0]
        env = self.tasks[self.now]
        env.seed(int(self.np_random.integers(2**31)))
        self.raw, _ = env.reset()
        return self._seen(self.raw)

    def move(self, action, draw):
        self.raw, reward, _, _, info = self.tasks[self.now].step(action.astype(np.float32))
        success = info["success"] > 0
        return self._seen(self.raw, draw), float(reward) if self.dense else float(success), success

    def look(self):
        return self._seen(self.raw)

    def close(self):
        for env in self.tasks.values():
            env.close()


def metaworld_pixels(name, *, drawing="published", camera="corner2", dense=False, limit=500, **shape):
    """Meta-World with a camera: `door-open-v3`, or several tasks of one policy, `door-open-v3+drawer-close-v3`."""
    choose_drawing()
    check_drawing(drawing)
    with needs("metaworld", "--metaworld"):
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS as known
    names = name.split("+")
    for task in names:
        if task not in known:
            raise Mistake(f"{task} is no task of metaworld; {', '.join(sorted(known))} are")
    if limit not in range(1, 501):
        raise Mistake(f"env.options.limit is {limit!r}: wanted a number of steps from 1 to 500, the package's own limit")

    def made(task):
        env = known[task](render_mode="rgb_array", camera_name=camera, width=shape["size"], height=shape["size"])
        env._set_task_called, env._freeze_rand_vec, env.seeded_rand_vec = True, False, True  # a new start by every seed
        if drawing == "fast":
            env.model.vis.quality.offsamples = env.model.vis.quality.shadowsize = 0
        return env

    return MetaWorld({task: made(task) for task in names}, dense, limit, **shape)


# Options of all tasks: what is seen, and what an action is.
SHAPE = {"size": 128, "chunk": 1, "instruction_bytes": 0, "instruction_tokens": 0, "tokeniser": BYTES, "action_bins": 0,
         "statistics": None}  # fmt: skip
MAKERS = {"libero": libero, "metaworld-pixels": metaworld_pixels, "robosuite": robosuite}


def make(source, name, options):
    """The environment SOURCE:NAME."""
    maker = MAKERS[source]
    options = {key: value for key, value in options.items() if (key, value) != ("render_mode", "rgb_array")}  # it has no other
    known = [p.name for p in inspect.signature(maker).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known += SHAPE
    for option in options:
        if option not in known:
            raise Mistake(f"env.options.{option}: {source} has no such option; it has {', '.join(known)}")
    return maker(name, **SHAPE | options)
