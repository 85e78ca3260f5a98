"""Videos of a policy and the window of `gipo play`, with the real encoder, renderers and display.

What a file holds is asked of ffmpeg, which decodes every frame of it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import HANG, TINY, Gipo, wait_for

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
pytest.importorskip("pygame")

SAMPLES = Path(__file__).parent / "bridge"
BRIDGED = TINY | {"learner.updates": 20, "eval.episodes": 1}


class Decoded:
    """A video as ffmpeg reads it: what its header says, and every frame [frames, height, width, 3]."""

    def __init__(self, path):
        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
        self.said = subprocess.run([ffmpeg, "-i", path], capture_output=True, text=True).stderr
        stream = re.search(r"Video: (.*)", self.said)[1]
        self.width, self.height = map(int, re.search(r", (\d+)x(\d+)[ ,]", stream).groups())
        self.fps = float(re.search(r"([\d.]+) fps", stream)[1])
        hours, minutes, seconds = re.search(r"Duration: (\d+):(\d+):([\d.]+)", self.said).groups()
        self.seconds = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
        self.is_plain = stream.startswith("h264") and "yuv420p" in stream
        raw = subprocess.run([ffmpeg, "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
                             capture_output=True, check=True).stdout
        self.frames = np.frombuffer(raw, np.uint8).reshape(-1, self.height, self.width, 3)
        data = Path(path).read_bytes()
        self.index_first = 0 < data.find(b"moov") < data.find(b"mdat")


@pytest.fixture(scope="module")
def runs(binary, tmp_path_factory):
    """A folder with the runs that are drawn; each is trained when it is first asked for."""
    gipo = Gipo(binary, tmp_path_factory.mktemp("video"))
    trained = {}

    def run(name, options):
        if name not in trained:
            trained[name] = gipo.train(name, options)
        return trained[name]

    gipo.run = run
    return gipo


@pytest.fixture(scope="module")
def cartpole(runs):
    return runs.run("cartpole", {})


@pytest.fixture(scope="module")
def hopper(runs):
    return runs.run("hopper", {"env.id": "Hopper-v5", "env.options.healthy_reward": 2.0, "env.time_limit": 40})


def draw(gipo, run, name, *arguments):
    done = gipo("eval", run, "--video", name, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), Decoded(gipo.folder / name)


def evaluated(gipo, run, *arguments):
    return json.loads(gipo("eval", run, "--json", *arguments).stdout)["eval_return"]


def refused(gipo, *arguments, **environment):
    """The one line, of a command that writes nothing."""
    before = gipo.entries()
    done = subprocess.run([gipo.binary, *map(str, arguments)], cwd=gipo.folder, capture_output=True, text=True,
                          timeout=HANG, env=os.environ | environment)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == "" and gipo.entries() == before
    assert done.stderr.startswith("gipo: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def differing(frames):
    """Whether each frame differs from the one before it, below the text."""
    below = frames[:, frames.shape[1] // 3 :].astype(int)
    return np.abs(np.diff(below, axis=0)).max(axis=(1, 2, 3)) > 20


def test_cartpole(runs, cartpole):
    found, video = draw(runs, cartpole, "cart.mp4")
    shown = found["drawn"][0]
    assert (video.width, video.height, video.fps) == (600, 400, 50)
    assert len(video.frames) == found["frames"] == shown["length"] + 1
    assert video.seconds == pytest.approx(len(video.frames) / 50, abs=0.02)
    assert video.is_plain and video.index_first
    assert differing(video.frames).mean() > 0.5
    # The text is white on dark ground: nothing of that is in the corner of the task's own picture.
    corner = video.frames[0][:60, :120]
    assert corner.max() > 200 and np.median(corner) < 110
    # The return that is drawn is what the engine gets, in the same episodes.
    mean = evaluated(runs, cartpole, "--episodes", 10)["mean"]
    assert np.mean(found["returns"]) == mean and shown["return"] == found["returns"][0]
    assert not list(runs.folder.glob(".*.part"))


def test_best_worst_and_all(runs, cartpole):
    found = {}
    for which in ("best", "worst", "all", "2"):
        found[which], video = draw(runs, cartpole, "some.mp4", "--episode", which, "--episodes", 4, "--fps", 400)
        lengths = [shown["length"] for shown in found[which]["drawn"]]
        assert len(video.frames) == sum(lengths) + len(lengths) and video.fps == 400
    returns = found["all"]["returns"]
    assert len(returns) == 4 and min(returns) < max(returns)
    assert [shown["return"] for shown in found["all"]["drawn"]] == returns
    assert found["best"]["drawn"][0]["return"] == max(returns)
    assert found["worst"]["drawn"][0]["return"] == min(returns)
    assert found["2"]["drawn"] == [found["all"]["drawn"][2]]


def test_sampled_actions_are_those_of_the_evaluation(runs, cartpole):
    found, _ = draw(runs, cartpole, "sampled.mp4", "--sampled", "--episode", "all", "--episodes", 3, "--seed", 7)
    assert [shown["return"] for shown in found["drawn"]] == found["returns"]
    assert np.mean(found["returns"]) == evaluated(runs, cartpole, "--sampled", "--episodes", 3, "--seed", 7)["mean"]


@pytest.mark.parametrize("task", ["Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"])
def test_other_classic_tasks_draw_the_evaluated_episode(runs, task):
    run = runs.run(task, {"env.id": task, "env.time_limit": 60})
    found, video = draw(runs, run, f"{task}.mp4", "--episodes", 3, "--episode", 1)
    assert found["drawn"][0]["length"] == 60 and len(video.frames) == 61
    assert found["drawn"][0]["return"] == pytest.approx(found["returns"][1], rel=1e-9)
    assert differing(video.frames).any()


def draws_mujoco():
    code = "import mujoco; mujoco.GLContext(8, 8).make_current()"
    return any(
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"MUJOCO_GL": gl}, capture_output=True).returncode == 0
        for gl in ("egl", "osmesa")
    )


needs_gl = pytest.mark.skipif(not draws_mujoco(), reason="neither EGL nor OSMesa works here")


@needs_gl
def test_hopper_with_its_options_and_in_real_time(runs, hopper):
    found, video = draw(runs, hopper, "hopper.mp4", "--size", "320x200", "--episode", "best", "--episodes", 3)
    shown = found["drawn"][0]
    # 125 steps in a second, of which every third is drawn.
    assert video.fps == pytest.approx(125 / 3, abs=0.01) and found["fps"] == 125 / 3
    assert len(video.frames) == len({*range(0, shown["length"], 3), shown["length"]})
    assert (video.width, video.height) == (320, 200)
    assert differing(video.frames).all()
    # Bit for bit: the options of the run are those of the picture.
    assert shown["return"] == max(found["returns"]) and shown["length"] <= 40


@needs_gl
@pytest.mark.parametrize("task", ["Ant-v5", "HalfCheetah-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedPendulum-v5",
                                  "InvertedDoublePendulum-v5", "Pusher-v5", "Reacher-v5", "Walker2d-v5"])
@pytest.mark.slow
def test_other_mujoco_tasks_draw_the_evaluated_episode(runs, task):
    run = runs.run(task, {"env.id": task, "env.time_limit": 30})
    found, video = draw(runs, run, f"{task}.mp4", "--episodes", 2, "--size", "160x120")
    assert found["drawn"][0]["return"] == pytest.approx(found["returns"][0], rel=1e-9)
    assert differing(video.frames).any()


@needs_gl
def test_osmesa_takes_over_where_egl_does_not_work(runs, hopper, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent")  # EGL's loader finds no driver
    broken = runs.folder / "broken"
    broken.mkdir(exist_ok=True)
    if osmesa_is_there():
        _, video = draw(runs, hopper, "osmesa.mp4", "--size", "64x64", "--episodes", 1)
        assert differing(video.frames).any()
    for name in ("libOSMesa.so.8", "libOSMesa.so", "libOSMesa.so.6"):
        (broken / name).touch()
    said = refused(runs, "eval", hopper, "--video", "none.mp4", LD_LIBRARY_PATH=str(broken))
    assert "EGL: " in said and "OSMesa: " in said and "libegl1" in said and "libosmesa6" in said


def osmesa_is_there():
    code = "import mujoco; mujoco.GLContext(8, 8).make_current()"
    environment = os.environ | {"MUJOCO_GL": "osmesa"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).returncode == 0


def test_bridged_task_is_made_as_its_worker_makes_it(runs):
    options = {"env.id": "gymnasium:FrozenLake-v1", "env.options.is_slippery": "true", "env.options.desc": '["SFF", "FFG"]',
               "env.time_limit": 12}
    run = runs.run("frozen", BRIDGED | options)
    found, video = draw(runs, run, "frozen.mp4", "--episode", "all", "--episodes", 5)
    assert [shown["return"] for shown in found["drawn"]] == found["returns"]  # slippery, and still the same
    assert all(shown["length"] <= 12 for shown in found["drawn"])
    assert video.fps == 4 and len(video.frames) == found["frames"]


DRAWN = '''
import gymnasium
import numpy as np


class Grey(gymnasium.Env):
    """A picture that gets brighter; 33 x 21 pixels, so that it is enlarged, and has odd sides."""

    talks, metadata = True, {"render_modes": ["rgb_array"], "render_fps": 8}
    observation_space = gymnasium.spaces.Dict({"at": gymnasium.spaces.Box(0, 1, (1,), np.float32)})
    action_space = gymnasium.spaces.Dict({"push": gymnasium.spaces.Box(-1, 1, (2,), np.float32), "kind": gymnasium.spaces.Discrete(3)})

    def __init__(self, render_mode=None, length=7, forgetful=False):
        assert length == 7 or render_mode is None, "the options of the run are given"
        self.render_mode, self.length, self.forgetful = render_mode, length, forgetful

    def reset(self, *, seed=None, options=None):
        super().reset(seed=None if self.forgetful else seed)
        self.at, self.pay = 0, self.np_random.uniform()
        if self.talks:
            print("what an environment prints is not in the way")
        return {"at": np.array([self.at / 10], np.float32)}, {}

    def step(self, action):
        self.at += 1
        return {"at": np.array([self.at / 10], np.float32)}, self.pay, self.at == self.length, False, {}

    def render(self):
        return np.full((21, 33, 3), 100 + 10 * self.at, np.uint8)


class Told(Grey):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"instruction": "make it brighter, slowly"}


class Blind(Grey):
    talks = False

    def __init__(self):
        super().__init__()


class Odd(Grey):
    talks = False

    def render(self):
        return "a text"


class Fails(Grey):
    def render(self):
        raise ValueError("no paint")
'''


@pytest.fixture(scope="module")
def drawn_py(runs):
    (runs.folder / "drawn.py").write_text(DRAWN)


def of_drawn(runs, name, **options):
    named = {f"env.options.{key}": value for key, value in options.items()}
    return runs.run("-".join([name, *options]), BRIDGED | {"env.id": f"python:drawn:{name}"} | named)


def test_own_class(runs, drawn_py):
    found, video = draw(runs, of_drawn(runs, "Grey", length=7), "grey.mp4")
    assert (video.width, video.height, video.fps) == (396, 252, 8) and len(video.frames) == 8
    below = video.frames[:, -20:, -20:].mean(axis=(1, 2, 3))
    assert below == pytest.approx([100 + 10 * step for step in range(8)], abs=4)
    assert found["drawn"][0]["return"] == pytest.approx(found["returns"][0], rel=1e-12)


def test_an_instruction_stands_below(runs, drawn_py):
    _, video = draw(runs, of_drawn(runs, "Told"), "told.mp4")
    corner = video.frames[:, -18:, :60]
    assert (corner.max(axis=(1, 2, 3)) > 200).all() and (corner.min(axis=(1, 2, 3)) < 80).all()  # light on dark, all along
    below = video.frames[:, -20:, -20:].mean(axis=(1, 2, 3))
    assert below == pytest.approx([100 + 10 * step for step in range(8)], abs=4)


def test_task_that_does_not_repeat_itself_is_named(runs, drawn_py):
    run = of_drawn(runs, "Grey", forgetful="true")
    done = runs("eval", run, "--video", "forgetful.mp4", "--episodes", 1)
    assert done.returncode == 0 and "does not repeat an episode of the same seed" in done.stderr, done.stderr
    assert "8 frames of 396x252, 8 a second" in done.stdout


def test_what_cannot_be_drawn_is_refused(runs, drawn_py, cartpole):
    said = refused(runs, "eval", of_drawn(runs, "Blind"), "--video", "none.mp4")
    assert 'python:drawn:Blind: it cannot be drawn: it takes no option render_mode = "rgb_array"' in said
    said = refused(runs, "eval", of_drawn(runs, "Odd"), "--video", "none.mp4")
    assert "render() returned 'a text'" in said
    done = runs("eval", of_drawn(runs, "Fails"), "--video", "none.mp4")
    assert done.returncode == 2 and "render raised ValueError" in done.stderr and "no paint" in done.stderr


@pytest.mark.parametrize(("arguments", "said"), [
    (["--video", "none.gif"], "video = none.gif is not accepted: wanted a name that ends in .mp4"),
    (["--video", "absent/none.mp4"], "video = absent/none.mp4: there is no folder absent"),
    (["--video", "folder.mp4"], "video = folder.mp4: that is a folder"),
    (["--video", "none.mp4", "--episode", "10"], "episode = 10 is not accepted: wanted best, worst, all or a number from 0 to 9"),
    (["--video", "none.mp4", "--episode", "last"], "episode = last is not accepted"),
    (["--video", "none.mp4", "--size", "640"], "size = 640 is not accepted: wanted WIDTHxHEIGHT, each 64 to 4096"),
    (["--video", "none.mp4", "--size", "640x8"], "size = 640x8 is not accepted"),
])  # fmt: skip
def test_wrong_arguments(runs, cartpole, arguments, said):
    (runs.folder / "folder.mp4").mkdir(exist_ok=True)
    assert said in refused(runs, "eval", cartpole, *arguments)


def test_options_of_a_video_want_one(runs, cartpole):
    for words in (["--episode", "best"], ["--fps", "10"], ["--size", "64x64"]):
        done = runs("eval", cartpole, *words)
        assert done.returncode == 2 and "--video" in done.stderr
    done = runs("eval", cartpole, "--video", "x.mp4", "--fps", "0")
    assert done.returncode == 2 and "from 0.1 to 1000" in done.stderr


def test_no_encoder(runs, cartpole):
    hidden = runs.folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "imageio_ffmpeg.py").write_text("raise ImportError('hidden')\n")
    said = refused(runs, "eval", cartpole, "--video", "none.mp4", PYTHONPATH=str(hidden), PATH="/nonexistent")
    assert "no ffmpeg" in said and "gipo[video]" in said


def test_encoder_that_fails_leaves_nothing(runs, cartpole):
    done = subprocess.run([runs.binary, "eval", cartpole, "--video", "failed.mp4"], cwd=runs.folder, capture_output=True,
                          text=True, timeout=HANG, env=os.environ | {"IMAGEIO_FFMPEG_EXE": "/bin/false"})
    assert done.returncode == 1 and "failed.mp4: the encoder failed" in done.stderr
    assert not [path for path in runs.folder.iterdir() if "failed" in path.name]


@pytest.mark.parametrize("wait", [0.0, 0.02, 0.3])  # right after the encoder's start, and in the middle of drawing
@pytest.mark.parametrize("end", [lambda number: os.killpg(number, signal.SIGINT), lambda number: os.kill(number, signal.SIGTERM)],
                         ids=["Ctrl-C", "SIGTERM"])
def test_interrupted_video_leaves_nothing(runs, cartpole, end, wait):
    process = subprocess.Popen([runs.binary, "eval", cartpole, "--video", "cut.mp4", "--episode", "all", "--episodes", "1000"],
                               cwd=runs.folder, stderr=subprocess.PIPE, start_new_session=True, text=True)
    wait_for(lambda: list(runs.folder.glob(".cut.mp4.*")), process)
    time.sleep(wait)
    end(process.pid)
    process.communicate(timeout=HANG)  # until all that it started has ended
    assert not [path for path in runs.folder.iterdir() if "cut.mp4" in path.name]


def test_python(runs, cartpole, monkeypatch):
    import gipo

    video = gipo.Run(cartpole).video(runs.folder / "py.mp4", episode="worst", episodes=3, size=(200, 300), fps=20)
    decoded = Decoded(video.path)
    assert (video.width, video.height, video.fps) == (decoded.width, decoded.height, decoded.fps) == (200, 300, 20)
    assert len(decoded.frames) == video.frames == video.episodes[0]["length"] + 1
    assert video._repr_html_().startswith("<video controls") and "data:video/mp4;base64,AAAA" in video._repr_html_()
    with pytest.raises(gipo.ConfigError, match="episode = 3 is not accepted"):
        gipo.Run(cartpole).video(runs.folder / "no.mp4", episode=3, episodes=3)
    for name, value in {"fps": 0, "episodes": 0, "seed": -1}.items():
        with pytest.raises(gipo.ConfigError, match=f"{name} = {value}(.0)? is not accepted: wanted"):
            gipo.Run(cartpole).video(runs.folder / "no.mp4", **{name: value})
    assert gipo.Run(cartpole).video(episodes=1).path == cartpole / "video.mp4"
    assert runs("doctor", cartpole).returncode == 0


PLAYS = """<p>nothing</p><script>
const video = document.querySelector("video"), said = document.querySelector("p");
video.onerror = () => said.textContent = video.error.message;
video.ontimeupdate = () => {
  if (video.currentTime > 0.1) said.textContent = `plays ${video.videoWidth}x${video.videoHeight} ${video.duration}`;
};
</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_plays_what_a_notebook_shows(runs, cartpole, tmp_path):
    import gipo

    video = gipo.Run(cartpole).video(tmp_path / "shown.mp4", episodes=1)
    page = tmp_path / "page.html"
    page.write_text(video._repr_html_() + PLAYS)
    done = subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000",
                           "--autoplay-policy=no-user-gesture-required", "--dump-dom", page.as_uri()],
                          capture_output=True, text=True, timeout=HANG, env=os.environ | {"HOME": str(tmp_path)})
    assert f"<p>plays 600x400 {video.frames / 50:g}</p>" in done.stdout, done.stdout[-500:]


def test_play_without_a_display(runs, cartpole):
    said = refused(runs, "play", cartpole, DISPLAY="", WAYLAND_DISPLAY="")
    assert "no display" in said and "--video" in said
    assert "no display" in refused(runs, "play", cartpole, DISPLAY=":9876", WAYLAND_DISPLAY="")


@pytest.fixture
def display():
    if not (shutil.which("Xvfb") and shutil.which("xdotool")):
        pytest.skip("Xvfb and xdotool are not installed")
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "800x600x24", "-nolisten", "tcp"],
                              pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as file:
        number = file.readline().strip()
    yield f":{number}"
    server.terminate()
    server.wait()


def test_play_hears_its_keys(runs, cartpole, display):
    environment = os.environ | {"DISPLAY": display, "PYTHONUNBUFFERED": "1"}

    def type_key(name):
        subprocess.run(["xdotool", "key", name], env=environment, check=True)

    def is_paused():  # in the title of the window
        named = ["xdotool", "search", "--class", ".", "getwindowname"]  # by class: not every title is found by its name
        return " paused " in subprocess.run(named, env=environment, capture_output=True, text=True, check=True).stdout

    with (runs.folder / "play.txt").open("w+") as out:
        process = subprocess.Popen([runs.binary, "play", cartpole, "--fps", "200"], cwd=runs.folder, env=environment,
                                   stdout=out, stderr=subprocess.STDOUT)
        said = lambda: (runs.folder / "play.txt").read_text()  # noqa: E731
        wait_for(lambda: "episode 1: return" in said(), process)
        expected = evaluated(runs, cartpole, "--episodes", 2)["mean"]
        returns = [float(number) for number in re.findall(r"episode [01]: return ([\d.]+)", said())]
        assert np.mean(returns) == expected
        assert not is_paused()
        type_key("space")
        wait_for(is_paused, process)
        lines = said().count("\n")
        time.sleep(3)
        assert said().count("\n") == lines, "a pause stands still"
        type_key("n")  # leaves an episode without its return
        type_key("space")
        wait_for(lambda: not is_paused() and said().count("\n") > lines, process)
        type_key("q")
        assert process.wait(HANG) == 0, said()
    numbers = [int(number) for number in re.findall(r"episode (\d+)", said())]
    assert len(numbers) < numbers[-1] + 1, "n has left one out"


@pytest.mark.slow
@needs_gl
def test_metaworld(runs):
    pytest.importorskip("metaworld", reason="scripts/setup.sh --metaworld installs it")
    options = {"env.id": "gymnasium:metaworld:Meta-World/MT1", "env.options.env_name": "door-open-v3", "env.time_limit": 50}
    run = runs.run("metaworld", BRIDGED | options)
    found, video = draw(runs, run, "metaworld.mp4", "--episodes", 2, "--size", "320x240", "--sampled")
    assert video.is_plain and video.index_first and (video.width, video.height, video.fps) == (320, 240, 40)
    assert len(video.frames) == found["frames"] == 26, "the task has 80 steps in a second: every second one is drawn"
    assert differing(video.frames).all(), "the arm moves in every step"
    red, green, blue = video.frames[:, 80:].reshape(-1, 3).astype(int).T
    assert np.mean((red > 90) & (green < red / 2) & (blue < red / 2)) > 0.02, "the red arm is in the picture"


def test_envpool_says_that_it_cannot(runs):
    from gipo.scene import make_drawn
    from gipo.runs import UserMistake

    with pytest.raises(UserMistake, match="EnvPool's environments cannot be drawn"):
        make_drawn({"id": "envpool:Pong-v5", "options": {}}, "envpool:Pong-v5")
