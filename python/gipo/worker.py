"""Environments of a run, in a process of their own. The gipo program carries this file and starts it with any Python
that has NumPy and the environment's package; it imports nothing else of gipo.

Descriptor 3 is a socket to the program, 4 the memory shared with it. First a description of the environments comes and
one of their spaces goes back; then the layout of the memory comes. From then on each byte that comes means that the
command of every slot is to be carried out, and one that goes back that it was. docs/bridge.md has the user's view.
"""

import copy
import difflib
import faulthandler
import hashlib
import importlib
import importlib.util
import json
import math
import mmap
import os
import pickle
import struct
import sys
import traceback
import types

try:
    import numpy as np
except ImportError:  # said by main, where it can be answered
    np = None

CHANNEL, MEMORY = 3, 4
NONE, STEP, STEP_AND_RESTART, STEP_AND_LEAVE, RESET, SEEDED_RESET = range(6)  # commands of a slot
TERMINATED, TRUNCATED, STARTED = 1, 2, 4  # bits of its answer
NO_SUCCESS = -1  # where info does not say
PARTS = ("choices", "low", "high")
OLD_GYM = ("that is the interface of gym before 0.26. Wrap the environment as shimmy.GymV21CompatibilityV0(env=...), from "
           "the package shimmy[gym-v21], or change it: reset(seed=None, options=None) returns observation and info, step "
           "returns observation, reward, terminated, truncated and info")


class Mistake(Exception):
    """What the user can mend, in words that need no traceback."""


class Misfit(Exception):
    """A part of what an environment returns that does not fit its space: which part it is, and what is wrong with it."""

    def __init__(self, part, text):
        super().__init__(part, text)
        self.part, self.text = part, text


class UserCode(Exception):
    """An exception of the environment's own code, which is its cause; the argument says what was called."""


def read_exactly(count):
    data = b""
    while len(data) < count:
        part = os.read(CHANNEL, count - len(data))
        if not part:
            os._exit(0)  # the program has ended
        data += part
    return data


def receive():
    return json.loads(read_exactly(struct.unpack("<I", read_exactly(4))[0]))


def answer(kind, value):
    text = json.dumps(value).encode()
    message = kind + struct.pack("<I", len(text)) + text
    while message:
        message = message[os.write(CHANNEL, message) :]


# Spaces. An observation becomes named arrays, in the order of gymnasium.spaces.flatten; an action is made from numbers.


def kind_of(space, where="the space"):
    """By name and not by class: EnvPool and others bring spaces of their own."""
    names = {base.__name__ for base in type(space).__mro__}
    for name in ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple"):
        if name in names:
            return name
    raise Mistake(
        f"{where} is {space}, a {type(space).__name__}: wanted Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or "
        "Tuple of these"
    )


def check_space(space, where):
    """Refuses a space that is of no use here, by the key under which it stands."""
    if kind_of(space, where) in ("Dict", "Tuple"):
        for key, part in parts_of(space):
            check_space(part, f"{where}[{key!r}]")


def parts_of(space):
    return list(space.spaces.items()) if kind_of(space) == "Dict" else list(enumerate(space.spaces))


def choices_of(space):
    """How many values each choice has, and the least of each."""
    choices = np.asarray(space.n if kind_of(space) == "Discrete" else space.nvec, dtype=np.int64)
    starts = np.broadcast_to(np.asarray(getattr(space, "start", 0), dtype=np.int64), choices.shape)
    return choices.ravel(), starts.ravel()


def held_as(dtype):
    """The type of a field for numbers of any type: networks read float32, so that doubles are not kept."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return np.dtype(np.float32)
    if dtype in (np.uint8, np.int32, np.int64):
        return dtype
    return np.dtype(np.uint8 if dtype.kind == "b" else np.int32 if np.can_cast(dtype, np.int32) else np.int64)


def part_name(keys):
    return "the observation" + "".join(f"[{key!r}]" for key in keys)


class Field:
    """One array of an observation: what an environment returns under some keys, as the program holds it."""

    bits = False  # its values are zeros and ones
    stack = 1  # above it: frames, in the first dimension

    def __init__(self, space, keys):
        kind, self.space_shape = kind_of(space), tuple(int(n) for n in space.shape or ())
        self.space = space
        self.keys, self.part = keys, part_name(keys)
        self.name, self.role = ".".join(map(str, keys)) or "observation", "policy"
        self.shape, self.choices = self.space_shape, None
        if kind in ("Discrete", "MultiDiscrete"):
            self.choices, self.starts = (values.reshape(self.shape) for values in choices_of(space))
            self.dtype = held_as(np.int64 if self.choices.max(initial=0) > np.iinfo(np.int32).max else np.int32)
        elif kind == "MultiBinary" or np.dtype(space.dtype).kind == "b":
            self.dtype, self.bits = np.dtype(np.uint8), True
        else:
            self.dtype = held_as(space.dtype)
        self.sorts = "biuf" if self.dtype.kind == "f" else "biu"  # of numbers that fit

    def become_mask(self):
        self.role, self.dtype, self.shape = "mask", np.dtype(np.uint8), (math.prod(self.space_shape),)

    def described(self):
        choices = [] if self.choices is None else self.choices.ravel().tolist()
        return {"name": self.name, "dtype": self.dtype.name, "shape": list(self.shape), "role": self.role,
                "choices": choices, "bits": self.bits, "stack": self.stack}

    def floats(self):
        """How many numbers networks read of it."""
        return 0 if self.role == "mask" else int(math.prod(self.shape) if self.choices is None else self.choices.sum())

    def zeros(self, batch=None):
        return np.zeros((() if batch is None else (batch,)) + self.shape, self.dtype)

    def fit(self, value, batch=None):
        """The value, of one observation or with a batch in front, as the program holds it."""
        before = () if batch is None else (batch,)
        array = as_array(value)
        if array.dtype.kind not in self.sorts or array.shape != before + self.space_shape:
            raise Misfit(self.part, f"is {in_words(value, array)}: wanted {self.dtype} of shape {before + self.space_shape}, "
                         "as its space says")
        if self.role == "mask":
            return (array != 0).reshape(before + self.shape)
        if self.choices is not None:
            index = array.astype(np.int64) - self.starts
            if not ((index >= 0) & (index < self.choices)).all():
                raise Misfit(self.part, f"is {array.tolist()}: wanted choices from {self.starts.tolist()} on, "
                             f"{self.choices.tolist()} of them")
            return index
        if self.dtype.kind != "f" and not np.can_cast(array.dtype, self.dtype):
            info = np.iinfo(self.dtype)
            if array.size and not (info.min <= int(array.min()) and int(array.max()) <= info.max):
                raise Misfit(self.part, f"is {array.dtype} from {array.min()} to {array.max()}: wanted {self.dtype}, "
                             f"{info.min} to {info.max}")
        return array.reshape(before + self.shape)


def as_array(value):
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.asarray(None)


def in_words(value, array):
    sort = f"{array.dtype} of shape {array.shape}"
    return sort if isinstance(value, np.ndarray) else f"{value!r:.200}" + (f", {sort}" if array.dtype.kind != "O" else "")


class InfoMask:
    """A mask of actions that comes with info: an array, or one for each part of the action, in its order."""

    name, role, part, choices, bits, stack = "action_mask", "mask", "info['action_mask']", None, False, 1

    def __init__(self, action_space, size):
        self.action_space, self.shape, self.dtype = action_space, (size,), np.dtype(np.uint8)

    described, floats = Field.described, Field.floats

    def fit(self, info, batch=None):
        value = info.get("action_mask") if hasattr(info, "get") else None
        shape = (() if batch is None else (batch,)) + self.shape
        if value is None:
            raise Misfit(self.part, f"is missing: wanted a mask of shape {shape}, as env.mask = info says")
        array = self.gather(self.action_space, value, shape[:-1])
        if array.shape != shape or array.dtype.kind not in "biu":
            raise Misfit(self.part, f"is {in_words(value, array)}: wanted uint8 of shape {shape}, one value for each choice "
                         "of the action")
        return array != 0

    def gather(self, space, value, before):
        """The masks of the parts of an action, one after the other; None leaves all choices of a part."""
        if value is None:
            return np.ones((*before, mask_size(space)), np.uint8)
        kind, parts = kind_of(space), []
        if kind == "Dict" and hasattr(value, "keys"):
            parts = [self.gather(part, value[key], before) for key, part in parts_of(space) if key in value]
        elif kind == "Tuple" and isinstance(value, (tuple, list)) and len(value) == len(space.spaces):
            parts = [self.gather(part, one, before) for part, one in zip(space.spaces, value)]
        elif isinstance(value, tuple):  # of a MultiDiscrete
            parts = [np.atleast_1d(as_array(one)) for one in value]
        try:
            return np.concatenate(parts, axis=-1) if parts else as_array(value)
        except ValueError:
            return as_array(None)


def mask_size(action_space):
    return sum(entry[0] for entry in action_entries(action_space))


class Group:
    """A Dict or Tuple of fields and groups."""

    def __init__(self, space, keys):
        self.kind, self.part = kind_of(space), part_name(keys)
        self.parts = [(key, tree_of(part, (*keys, key))) for key, part in parts_of(space)]
        self.keys = [key for key, _ in self.parts]
        self.known = self.needed = frozenset(self.keys)

    def check(self, value):
        if self.kind == "Dict":
            fits = hasattr(value, "keys") and self.needed <= set(value) <= self.known
        else:
            fits = isinstance(value, (tuple, list)) and len(value) == len(self.keys)
        if not fits:
            raise Misfit(self.part, f"is {value!r:.200}: wanted a {self.kind.lower()} with {self.keys}")


def tree_of(space, keys=()):
    return (Group if kind_of(space) in ("Dict", "Tuple") else Field)(space, keys)


def leaves_of(tree):
    return [tree] if isinstance(tree, Field) else [leaf for _, part in tree.parts for leaf in leaves_of(part)]


class Fields:
    """An observation space as a list of fields."""

    def __init__(self, space):
        self.tree = tree_of(space)
        self.all, self.info_mask = leaves_of(self.tree), None
        names = [field.name for field in self.all]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Mistake(f"the observation space has two fields of the name {twice[0]}: wanted other keys")

    def choose_mask(self, wanted, action_space):
        """By env.mask: which field says what actions are valid, or whether info does."""
        size, named = mask_size(action_space), {field.name: field for field in self.all}
        if wanted == "none" or wanted == "auto" and (size == 0 or "action_mask" not in named):
            return
        if size == 0:
            raise Mistake(f"env.mask = {wanted}: the action space {action_space} has no choices; wanted none")
        if wanted == "info":
            if "action_mask" in named:
                raise Mistake("env.mask = info: the observation has a field action_mask of its own; wanted auto")
            self.info_mask = InfoMask(action_space, size)
            self.all.append(self.info_mask)
            return
        field = named.get("action_mask" if wanted == "auto" else wanted)
        if field is None:
            raise Mistake(f"env.mask = {wanted}: the observation has no such field; wanted auto, none, info or one of "
                          f"{', '.join(named)}")
        if field.dtype.kind == "f" or field.choices is not None or math.prod(field.shape) != size:
            sort = "choices" if field.choices is not None else field.dtype
            raise Mistake(f"{field.part}, the mask of actions (env.mask), is {sort} of shape {field.space_shape}: wanted uint8 "
                          f"of shape ({size},), one value for each choice of the action; or env.mask = none")
        field.become_mask()

    def mark_frames(self, count):
        """By env.frame_stack: which fields hold frames."""
        for field in self.all if count > 1 else []:
            image = isinstance(field, Field) and field.role != "mask" and is_image(field.space, 1)
            if image and field.shape[0] == count:
                field.stack = count

    def let_missing(self):
        """What the policy does not see need not be there."""
        def set_needed(tree):
            if isinstance(tree, Field):
                return tree.role == "policy"
            needed = [key for key, part in tree.parts if set_needed(part)]
            tree.needed = frozenset(needed)
            return bool(needed)

        set_needed(self.tree)

    def plain_shape(self):
        """The shape of observations that are one array of float32, as most are; else None."""
        field = self.tree
        plain = len(self.all) == 1 and field is self.all[0] and field.dtype == np.float32 and len(field.shape) == 1
        return field.shape if plain else None

    def values(self, observation, batch=None, info=None):
        """An array for each field, of one observation or with a batch in front. Raises Misfit."""
        out = []
        self._collect(self.tree, observation, batch, out)
        if self.info_mask:
            out.append(self.info_mask.fit(info, batch))
        return out

    def _collect(self, tree, value, batch, out):
        if isinstance(tree, Field):
            out.append(tree.fit(value, batch))
            return
        tree.check(value)
        for key, part in tree.parts:
            if tree.kind == "Dict" and key not in value:
                out.extend(field.zeros(batch) for field in leaves_of(part))
            else:
                self._collect(part, value[key], batch, out)

    def described(self):
        return [field.described() for field in self.all]


def action_entries(space):
    """For each number that an action is made from: how many choices it has, 0 where it has none, and its bounds."""
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        return [entry for _, part in parts_of(space) for entry in action_entries(part)]
    if kind == "Box":
        low, high = (np.asarray(bound, dtype=np.float64).ravel().tolist() for bound in (space.low, space.high))
        return [(0, *(v if np.isfinite(v) else None for v in pair)) for pair in zip(low, high)]
    choices = [2] * math.prod(space.shape) if kind == "MultiBinary" else choices_of(space)[0].tolist()
    return [(n, 0, 0) for n in choices]


def describe_action(space):
    entries = action_entries(space)
    choices, low, high = ([entry[i] for entry in entries] for i in range(3))
    if not any(choices):
        return {"kind": "box", "choices": [], "low": low, "high": high}
    if all(choices):
        return {"kind": "discrete" if kind_of(space) == "Discrete" else "multi", "choices": choices, "low": [], "high": []}
    return {"kind": "composed", "choices": choices, "low": low, "high": high}


def action_dims(space):
    """How many numbers an action is made from."""
    return len(action_entries(space))


def action_maker(space, together=False):
    """A function from numbers [batch, dims] to the batch of actions: one after the other, or `together`, as Gymnasium's
    vector environments take them: each part of a Dict or Tuple with the batch in front.

    It copies: an environment may keep its action."""
    kind = kind_of(space)
    if kind in ("Dict", "Tuple"):
        makers, keys, begin = [], [], 0
        for key, part in parts_of(space):
            end = begin + action_dims(part)
            makers.append((action_maker(part, together), slice(begin, end)))
            keys.append(key)
            begin = end
        whole = tuple if kind == "Tuple" else lambda parts: dict(zip(keys, parts))
        if together:
            return lambda rows: whole(make(rows[:, at]) for make, at in makers)
        return lambda rows: [whole(parts) for parts in zip(*[make(rows[:, at]) for make, at in makers])]
    dtype, shape = np.dtype(space.dtype), tuple(space.shape or ())
    if kind == "Box":
        make = whole_numbers(space, dtype, shape) if dtype.kind in "iub" else (
            lambda rows: rows.astype(dtype).reshape(-1, *shape))
        # An element of an array would be a number; the space wants an array without dimensions.
        return make if shape or together else lambda rows: [np.asarray(action) for action in make(rows)]
    starts = 0 if kind == "MultiBinary" else choices_of(space)[1]
    return lambda rows: (rows + starts).astype(dtype).reshape(-1, *shape)


def whole_numbers(space, dtype, shape):
    """Rounded, and within bounds that a double may not hold: the largest of 64 bits."""
    low, high = (np.broadcast_to(np.asarray(bound, dtype=dtype), shape).ravel() for bound in (space.low, space.high))
    least, most = low.astype(np.float64), high.astype(np.float64)

    def make(rows):
        rounded = np.rint(rows)
        inside = (rounded > least) & (rounded < most)
        edge = np.where(rounded > least, high, low)
        return np.where(inside, np.where(inside, rounded, 0).astype(dtype), edge).reshape(-1, *shape)

    return make


class Slots:
    """The memory shared with the program: one row of each array per environment."""

    def __init__(self, count, fields, action, layout):
        memory = mmap.mmap(MEMORY, layout["bytes"])

        def at(offset, dtype, *shape):
            return np.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=offset).reshape(shape)

        def view(name, dtype, *shape):
            return at(layout[name], dtype, *shape)

        def views(name):  # one for each field
            return [at(offset, f.dtype, count, *f.shape) for offset, f in zip(layout[name], fields)]

        self.command = view("command", np.uint8, count)
        self.flags = view("flags", np.uint8, count)
        self.success = view("success", np.int8, count)
        self.seed = view("seed", np.int64, count)
        self.action = view("action", np.float64, count, action)
        self.reward = view("reward", np.float64, count)
        self.observation, self.start = views("observation"), views("start")


def gymnasium_maker(name, options, time_limit):
    try:
        import gymnasium
    except ImportError as error:
        raise Mistake(f"{error}; {sys.executable} needs the package gymnasium: install it there, or choose another "
                      "Python with env.python or GIPO_PYTHON") from None
    if time_limit is not None:
        options = {**options, "max_episode_steps": time_limit}

    def make(_):
        try:
            return gymnasium.make(name, disable_env_checker=True, **copy.deepcopy(options))
        except gymnasium.error.DependencyNotInstalled as error:
            said = str(error)
            if "box2d" in said.lower():
                said = (f"{said.partition(', run')[0]}: in a clone of gipo, scripts/setup.sh --box2d installs it; else "
                        "`pip install 'gipo[box2d]'`")
            raise Mistake(f"{said}; the Python is {sys.executable}") from None
        except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv, ModuleNotFoundError) as error:
            raise Mistake(f"gymnasium {gymnasium.__version__} does not make it: {error}") from None
        except (Exception, SystemExit) as error:
            raise UserCode("gymnasium.make") from error

    return make


def load_module(name):
    """A module by its name, or a file by its path."""
    sys.path.insert(0, os.getcwd())
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(os.path.basename(name)[:-3], name)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and (name + ".").startswith((error.name or "?") + ".")
        if absent or isinstance(error, FileNotFoundError) and error.filename == os.path.abspath(name):
            raise Mistake(f"there is no {name} in {os.getcwd()} or on PYTHONPATH") from None
        raise UserCode(f"importing {name}") from error


def refuse_many_agents(env, made_by):
    """PettingZoo's environments have all that is looked for, but for each agent."""
    if hasattr(env, "possible_agents") or hasattr(env, "agent_iter"):
        sort = "AEC" if hasattr(env, "agent_iter") else "parallel"
        raise Mistake(f"{made_by} returned {env!r:.200}, a PettingZoo environment ({sort}) for several agents: wanted a "
                      "gymnasium.Env, which has one. Write one around it that plays one of the agents and lets policies "
                      "of its own choose the actions of the others")


PICKLE = "environment.pkl"


def variable_of(env_id):
    """The environment variable that says where the pickle of an environment lies."""
    return "GIPO_ENVIRONMENT_" + env_id.rpartition("-")[2]


def read_pickle(attribute):
    path = os.environ.get(variable_of(attribute))
    if path is None:
        raise Mistake(f"its environment was given to gipo.train as a Python object, which {PICKLE} in the run folder "
                      f"holds. gipo.resume in Python goes on with it; here, {variable_of(attribute)}=RUN/{PICKLE} lets it "
                      "be loaded, which executes what is in it")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise Mistake(f"{path}, which holds the environment, cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest()[:12] != attribute.rpartition("-")[2]:
        raise Mistake(f"{path} holds another environment, or is damaged")
    return data


def pickled_factory(attribute):
    """Environments that gipo.train was given as objects, or what makes them, as one function of their number."""
    data = read_pickle(attribute)

    def make(number, **options):
        parts = pickle.loads(data)  # anew for each environment: they share nothing
        is_factory, part = parts[number % len(parts)]
        if options and not is_factory:
            raise Mistake(f"{', '.join(options)}: options of an environment that is made already")
        return part(**options) if is_factory else part

    return make


def factory_maker(name, options):
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise Mistake("wanted python:MODULE:FACTORY or python:FILE.py:FACTORY")
    if module_name == PICKLE:
        return maker_of(pickled_factory(attribute), attribute.rpartition("-")[0], options, numbered=True)
    factory = load_module(module_name)
    for part in attribute.split("."):
        factory = getattr(factory, part, None)
    if not callable(factory):
        raise Mistake(f"{module_name} has no class or function {attribute} that could make an environment")
    return maker_of(factory, attribute, options)


def maker_of(factory, attribute, options, numbered=False):
    """What makes an environment of a run, given its number there."""

    def make(number):
        try:
            # An environment may change what it was given.
            env = factory(*[number] * numbered, **copy.deepcopy(dict(options)))
        except Mistake:
            raise
        except (Exception, SystemExit) as error:
            raise UserCode(attribute) from error
        lacking = [n for n in ("reset", "step", "observation_space", "action_space") if not hasattr(env, n)]
        if lacking:
            raise Mistake(f"{attribute} returned {env!r:.200}: wanted an environment as gymnasium.Env is; this has no "
                          f"{', '.join(lacking)}")
        refuse_many_agents(env, attribute)
        return env

    return make


def robot_maker(source, name, options, text):
    """Of robot_tasks.py, whose text came with the setup."""
    tasks = types.ModuleType("gipo_robot_tasks")
    try:
        exec(compile(text, "robot_tasks.py", "exec"), tasks.__dict__)
    except ImportError as error:
        raise Mistake(f"{error}; {sys.executable} needs the packages of {source}: in a clone of gipo, scripts/setup.sh "
                      f"{'--metaworld' if source == 'metaworld-pixels' else '--libero'} installs them; env.python or "
                      "GIPO_PYTHON names another Python") from None
    tasks.Mistake = Mistake
    return maker_of(lambda **options: tasks.make(source, name, options), f"{source}:{name}", options)


def is_image(space, dimensions=0):
    """Whether encoders can read it as an image, with as many dimensions before it."""
    if kind_of(space) != "Box":
        return False
    count, kind = len(space.shape) - dimensions, np.dtype(space.dtype).kind
    return count in (2, 3) and held_as(space.dtype) == np.uint8 or count == 3 and kind == "f"


class FrameStack:
    """An environment whose images are its last frames, oldest first, in a new first dimension. Where an episode begins its
    first frame is there as often."""

    def __init__(self, env, count):
        self.env, self.count, self.frames = env, count, {}
        self.action_space = env.action_space
        self.observation_space = self._space(env.observation_space)
        if self.observation_space is env.observation_space:
            raise Mistake(f"env.frame_stack = {count}: the observation space {env.observation_space} has no image")

    def __getattr__(self, name):
        return getattr(self.__dict__["env"], name)

    def _space(self, space):
        kind = kind_of(space)
        if kind in ("Dict", "Tuple"):
            parts = [(key, self._space(part)) for key, part in parts_of(space)]
            if all(new is old for (_, new), (_, old) in zip(parts, parts_of(space))):
                return space
            return type(space)(dict(parts) if kind == "Dict" else tuple(part for _, part in parts))
        if not is_image(space):
            return space
        low, high = (np.repeat(np.asarray(bound)[None], self.count, 0) for bound in (space.low, space.high))
        return type(space)(low, high, dtype=space.dtype)

    def _stack(self, space, value, keys=()):
        kind = kind_of(space)
        try:
            if kind == "Dict":
                return {key: self._stack(space.spaces[key], part, (*keys, key)) if key in space.spaces else part
                        for key, part in value.items()}
            if kind == "Tuple":
                return tuple(self._stack(part, one, (*keys, i)) for i, (part, one) in enumerate(zip(space.spaces, value)))
        except (AttributeError, TypeError):
            return value  # does not fit its space, which is said where it is read
        if not is_image(space) or np.shape(value) != tuple(space.shape):
            return value
        now = np.asarray(value)[None]
        before = self.frames.get(keys)
        self.frames[keys] = np.repeat(now, self.count, 0) if before is None else np.concatenate([before[1:], now])
        return self.frames[keys]

    def reset(self, **arguments):
        result = self.env.reset(**arguments)
        if not (isinstance(result, tuple) and len(result) == 2):
            return result
        self.frames = {}
        return self._stack(self.env.observation_space, result[0]), result[1]

    def step(self, action):
        result = self.env.step(action)
        if not (isinstance(result, tuple) and len(result) == 5):
            return result
        return self._stack(self.env.observation_space, result[0]), *result[1:]


def stacked(env, count):
    return FrameStack(env, count) if count > 1 else env


def env_maker(setup):
    """A function that makes an environment of Gymnasium or of a factory, given its number among all."""
    source, _, name = setup["id"].partition(":")
    if source == "gymnasium":
        make = gymnasium_maker(name, setup["options"], setup["time_limit"])
    elif setup["robot_tasks"]:
        make = robot_maker(source, name, setup["options"], setup["robot_tasks"])
    else:
        make = factory_maker(name, setup["options"])
    return lambda number: stacked(make(number), setup["frame_stack"])


def is_limited(env):
    """Whether its episodes run out of time by themselves: Gymnasium's spec says so, or a wrapper like its TimeLimit."""
    if getattr(getattr(env, "spec", None), "max_episode_steps", None):
        return True
    wrapper = env
    while wrapper is not None and not getattr(wrapper, "_max_episode_steps", None):
        wrapper = getattr(wrapper, "env", None)
    return wrapper is not None


def fields_of(host, setup):
    fields = Fields(host.observation_space)
    fields.choose_mask(setup["mask"], host.action_space)
    fields.mark_frames(setup["frame_stack"])
    return fields


class Singles:
    """Environments of Gymnasium or of a factory, stepped one after the other."""

    def __init__(self, setup):
        make = env_maker(setup)
        self.envs = [make(setup["first"] + i) for i in range(setup["count"])]
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        check_space(self.observation_space, "the observation space")
        check_space(self.action_space, "the action space")
        self.actions = action_maker(self.action_space)
        self.fields = fields_of(self, setup)
        self.flat = self.fields.plain_shape() or "not flat"
        # The round of each environment's last reset, by which its steps are counted, and the present round.
        self.first, self.reset_at, self.round = setup["first"], [0] * setup["count"], 0
        of_gymnasium = setup["id"].startswith("gymnasium:")
        self.engine = f"gymnasium {sys.modules['gymnasium'].__version__}" if of_gymnasium else ""
        self.limited = is_limited(self.envs[0])

    def write(self, arrays, i, observation, info, moment):
        try:
            values = self.fields.values(observation, None, info)
        except Misfit as misfit:
            moment += f" {self.round - self.reset_at[i]}" if moment == "step" else ""
            raise Mistake(f"{misfit.part} of {moment} of environment {self.first + i} {misfit.text}") from None
        for array, value in zip(arrays, values):
            array[i] = value

    def reset(self, slots, i, seed):
        try:
            result = self.envs[i].reset() if seed is None else self.envs[i].reset(seed=seed)
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in str(error):
                raise Mistake(f"reset takes no seed ({error}): {OLD_GYM}") from None
            raise UserCode("reset") from error
        if not (isinstance(result, tuple) and len(result) == 2):
            old = "" if result is None or isinstance(result, tuple) else f"; an observation alone: {OLD_GYM}"
            raise Mistake(f"reset returned {result!r:.200}: wanted a tuple of observation and info{old}")
        self.write(slots.start, i, *result, "reset")
        self.reset_at[i] = self.round

    def carry_out(self, slots):
        actions, flat = self.actions(slots.action), self.flat
        observations, rewards, flags, successes = slots.observation[0], slots.reward, slots.flags, slots.success
        self.round += 1
        for i, command in enumerate(slots.command.tolist()):
            if command == NONE:
                self.reset_at[i] += 1
                continue
            if command >= RESET:
                self.reset(slots, i, int(slots.seed[i]) if command == SEEDED_RESET else None)
                flags[i] = STARTED
                continue
            try:
                result = self.envs[i].step(actions[i])
            except (Exception, SystemExit) as error:
                raise UserCode("step") from error
            try:
                observation, rewards[i], terminated, truncated, info = result
                success = info.get("success", info.get("is_success")) if info else None
            except (TypeError, ValueError, AttributeError):
                if isinstance(result, tuple) and len(result) == 4:
                    raise Mistake(f"step returned four values, {result!r:.200}: {OLD_GYM}") from None
                raise Mistake(f"step returned {result!r:.300}: wanted observation, reward, terminated, truncated and "
                              "info, the reward a number, info a dict") from None
            if getattr(observation, "shape", None) == flat:  # most observations: an array that is a row already
                observations[i] = observation
            else:
                self.write(slots.observation, i, observation, info, "step")
            successes[i] = NO_SUCCESS if success is None else bool(success)
            ends = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
            if command == STEP_AND_LEAVE or (ends and command == STEP_AND_RESTART):
                self.reset(slots, i, None)
                ends |= STARTED
            flags[i] = ends

    def close(self):
        for env in self.envs:
            if hasattr(env, "close"):
                env.close()


class Pool:
    """One EnvPool, made at the first reset: its seeds cannot be given later."""

    def __init__(self, setup):
        try:
            import envpool
        except ImportError as error:
            raise Mistake(f"{error}; {sys.executable} needs the package envpool: install it there, or choose another "
                          "Python with env.python or GIPO_PYTHON") from None
        name, options = setup["id"].partition(":")[2], dict(setup["options"])
        known = envpool.list_all_envs()
        if name not in known:
            near = difflib.get_close_matches(name, known)
            raise Mistake(f"EnvPool {envpool.__version__} does not know {name}"
                          f"{'; the nearest: ' + ', '.join(near) if near else ''}")
        if setup["time_limit"] is not None:
            options["max_episode_steps"] = setup["time_limit"]
        if setup["frame_stack"] > 1:
            options["stack_num"] = setup["frame_stack"]
        self.count, threads = setup["count"], options.pop("num_threads", min(setup["threads"], setup["count"]))
        try:
            spec = envpool.make_spec(name, num_envs=self.count, **options)
        except Exception as error:
            raise UserCode("envpool.make_spec") from error
        if spec.config.max_num_players > 1:
            raise Mistake(f"{name} has {spec.config.max_num_players} players: wanted an environment of one")
        self.observation_space, self.action_space = spec.gymnasium_observation_space, spec.gymnasium_action_space
        check_space(self.observation_space, "the observation space")
        check_space(self.action_space, "the action space")
        self.fields = fields_of(self, setup)
        self.actions = action_maker(self.action_space, together=True)
        self.engine, self.limited = f"EnvPool {envpool.__version__}", True
        self.pool = None
        self.make = lambda seeds: envpool.make(name, env_type="gymnasium", num_envs=self.count, num_threads=threads,
                                               seed=seeds, **options)

    def write(self, arrays, observation, info, moment):
        at = info["env_id"]
        try:
            values = self.fields.values(observation, len(at), info)
        except Misfit as misfit:
            raise Mistake(f"{misfit.part} of {moment} of environments {at.tolist()} {misfit.text}") from None
        for array, value in zip(arrays, values):
            array[at] = value

    def restart(self, slots, ids):
        if len(ids) == 0:
            return
        observation, info = self.pool.reset(ids.astype(np.int32))
        self.write(slots.start, observation, info, "reset")
        slots.flags[ids] |= STARTED

    def carry_out(self, slots):
        command = slots.command
        resets = np.flatnonzero(command >= RESET)
        steps = np.flatnonzero((command != NONE) & (command < RESET))
        if self.pool is None:
            self.pool = self.make(slots.seed.tolist())
        slots.flags[resets] = 0
        self.restart(slots, resets)
        if len(steps) == 0:
            return
        every = len(steps) == self.count
        result = self.pool.step(self.actions(slots.action if every else slots.action[steps]),
                                None if every else steps.astype(np.int32))
        observation, reward, terminated, truncated, info = result
        at = info["env_id"]
        self.write(slots.observation, observation, info, "step")
        slots.reward[at] = reward
        success = info.get("success", info.get("is_success"))
        slots.success[at] = NO_SUCCESS if success is None else np.asarray(success) > 0
        ends = terminated * TERMINATED | truncated * TRUNCATED
        slots.flags[at] = ends
        again = (command[at] == STEP_AND_LEAVE) | ((command[at] == STEP_AND_RESTART) & (ends != 0))
        self.restart(slots, at[again])

    def close(self):
        if self.pool is not None:
            self.pool.close()


def describe_space(space):
    """As JSON, which a policy's file keeps: gipo/spaces.py makes a space of it again."""
    kind = kind_of(space)
    if kind == "Dict":
        return {"kind": kind, "spaces": [[key, describe_space(part)] for key, part in parts_of(space)]}
    if kind == "Tuple":
        return {"kind": kind, "spaces": [describe_space(part) for _, part in parts_of(space)]}
    described = {"kind": kind, "shape": [int(n) for n in space.shape or ()], "dtype": np.dtype(space.dtype).name}
    if kind == "Box":
        return described | {"low": describe_bound(space.low), "high": describe_bound(space.high)}
    if kind == "MultiBinary":
        return described
    choices, starts = (values.tolist() for values in choices_of(space))
    if kind == "Discrete":
        return described | {"n": choices[0], "start": starts[0]}
    return described | {"nvec": choices, "start": starts}


def describe_bound(bound):
    """One number where all are the same, else row by row; null where there is no bound."""
    values = np.ravel(np.asarray(bound))
    if len(values) > 0 and (values == values[0]).all():
        values = values[:1]
    described = [value if np.isfinite(value) else None for value in values.tolist()]
    return described[0] if len(described) == 1 else described


def describe_spaces(host):
    """None where a key of a Dict is something that JSON does not hold."""
    spaces = {"observation": describe_space(host.observation_space), "action": describe_space(host.action_space)}
    try:
        return spaces if json.loads(json.dumps(spaces)) == spaces else None
    except TypeError:
        return None


def describe(host):
    if not any(field.floats() for field in host.fields.all):
        raise Mistake(f"the observation space {host.observation_space} holds no number")
    return {
        "fields": host.fields.described(),
        "action": describe_action(host.action_space),
        "engine": host.engine,
        "limited": host.limited,
        "spaces": describe_spaces(host),
    }


def choose_valid(host, slots):
    """Where a mask says which actions are valid, the first choice of each part that is one."""
    mask = next((array[0] for field, array in zip(host.fields.all, slots.start) if field.role == "mask"), None)
    if mask is None:
        return
    begin, dims = 0, [0] if kind_of(host.action_space) == "Discrete" else range(slots.action.shape[1])
    for d, count in zip(dims, describe_action(host.action_space)["choices"]):
        if count > 0:
            valid = np.flatnonzero(mask[begin : begin + count])
            slots.action[0, d] = valid[0] if len(valid) > 0 else 0
        begin += count


def try_out(host, slots):
    """A reset and a step of a first environment, so that what is wrong with it is found before a run begins."""

    def check(values, what):
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(np.ravel(values)))[0])
            raise Mistake(f"{what} holds {np.ravel(values)[at]} at index {at}: wanted finite numbers")

    def check_fields(arrays, moment):
        for field, array in zip(host.fields.all, arrays):
            check(array[0], f"{field.part} of {moment}")

    slots.command[0] = SEEDED_RESET
    host.carry_out(slots)
    check_fields(slots.start, "reset")
    choose_valid(host, slots)
    slots.command[0] = STEP
    host.carry_out(slots)
    check_fields(slots.observation, "step")
    check(slots.reward[0], "the reward of step")


def resident():
    """Bytes of memory: of this process alone, and of the programs and libraries that it shares with others."""
    found = {"RssAnon": 0, "RssFile": 0}
    try:
        with open("/proc/self/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in found:
                    found[name] = 1024 * int(value.split()[0])
    except OSError:
        pass
    return found["RssAnon"], found["RssFile"]


def measure(setup, slots):
    """What a worker takes of memory, and what each environment beside its first adds: one more is made to see."""
    before, programs = resident()
    try:
        other = host_of(setup)
        try_out(other, slots)
        after = resident()[0]
        other.close()
    except (Exception, SystemExit):  # a run that needs a second one will say why there is none
        after = before
    return {"worker": before, "worker_programs": programs, "each": max(0, after - before)}


def host_of(setup):
    return (Pool if setup["id"].startswith("envpool:") else Singles)(setup)


def users_traceback(error):
    """From the first frame that is not ours."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == read_exactly.__code__.co_filename:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def serve():
    sys.stdout.reconfigure(line_buffering=True)  # what is printed is seen at once
    setup = receive()
    setup["options"] = json.loads(setup["options"])
    if np is None:
        raise Mistake(f"{sys.executable} needs the package numpy: install it there, or choose another Python with "
                      "env.python or GIPO_PYTHON")
    np.seterr(over="ignore", invalid="ignore")  # what is not finite the program sees itself
    host = host_of(setup)
    described = describe(host)
    answer(b"S", described)
    dims = max(len(described["action"][name]) for name in PARTS)
    slots = Slots(setup["count"], host.fields.all, dims, receive())
    if setup["try_out"]:
        try_out(host, slots)
        answer(b"T", measure(setup, slots))
    carry_out = host.carry_out
    while os.read(CHANNEL, 1):
        carry_out(slots)
        os.write(CHANNEL, b".")
    host.close()


def main():
    faulthandler.enable()  # native code that crashes leaves the stack of Python that called it
    try:
        serve()
    except Mistake as mistake:
        answer(b"E", {"text": str(mistake)})
    except UserCode as error:
        cause = error.__cause__
        answer(b"E", {"text": f"{error} raised {type(cause).__name__}:\n{users_traceback(cause)}"})


if __name__ == "__main__":
    main()
