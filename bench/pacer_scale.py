"""The pacer and a learner's front door with many thousand actors, simulated.

    python bench/pacer_scale.py [--actors 10000] [--gpus 8]

Actors lease steps in blocks, two at a time and in turn, as the learner hands them out, and step at a pace of their own; a
report reaches the learner after a delay. The pacer lets steps begin while they are less than its slack ahead of what the
updates made so far are due, and an update waits until its steps are finished (train/pacer.h). What a message costs was
measured (below). Prints JSON: what each resource can carry, which is full first, how old the weights of actors get, and how
well the simulated pacer holds the dial.
"""

import argparse
import heapq
import json
import random

# By `bench/cluster.py --streams`: four actors and a learner on two busy cores of a Neoverse-V1, so that these are upper bounds.
MESSAGE_SECONDS = 160e-6  # for each report with its answer
BYTE_SECONDS = 1 / 459e6  # and for each byte
HEAD_BYTES = 200
WIRE_BYTES = 10e9 / 8  # of a card of 10 Gb/s, per second
WEIGHTS_SHARE = 0.25  # of the wire: a transfer is followed by a pause three times as long


def message_seconds(block, bytes_per_step):
    return MESSAGE_SECONDS + BYTE_SECONDS * (HEAD_BYTES + block * bytes_per_step)


def limits(a, block):
    """What each resource can carry, in env steps per second."""
    return {
        "actors": a.actors * a.rate * a.envs,
        "front door": block / message_seconds(block, a.bytes_per_step),
        "wire in": WIRE_BYTES / (a.bytes_per_step + HEAD_BYTES / block),
        "updates": a.gpus * a.samples_per_second / a.batch * a.env_steps_per_update,
    }


def simulate(a, block):
    """Leases, reports and updates as events, until the time is over."""
    chance = random.Random(1)
    pace = [a.rate * chance.uniform(0.9, 1.1) * a.envs for _ in range(a.actors)]  # env steps per second
    slack, message = 2 * block * a.actors, message_seconds(block, a.bytes_per_step) / a.cores
    update_seconds = a.batch / (a.gpus * a.samples_per_second)
    begun = finished = updates = turn = 0
    leases, steps, busy = [0] * a.actors, [0] * a.actors, [0.0] * a.actors
    reports, door, now, next_update, ahead, behind = [], 0.0, 0.0, 0.0, [], 0.0
    while now < a.seconds:
        for _ in range(a.actors):
            if begun + block > a.env_steps_per_update * updates + slack:
                break
            actor, turn = turn, (turn + 1) % a.actors
            if leases[actor] < 2:
                leases[actor] += 1
                begun += block
                busy[actor] = max(busy[actor], now) + block / pace[actor]
                heapq.heappush(reports, (busy[actor] + a.delay, actor))
        due = max(next_update, now) if finished >= a.env_steps_per_update * (updates + 1) else float("inf")
        if reports and max(door, reports[0][0]) + message <= due:
            arrived, actor = heapq.heappop(reports)
            door = max(door, arrived) + message
            behind = max(behind, door - arrived)
            now = max(now, door)  # it counts once it was taken
            leases[actor] -= 1
            steps[actor] += block
            finished += block
        else:
            now = due
            updates += 1
            next_update = now + update_seconds
            ahead.append(begun - a.env_steps_per_update * updates)
    return {
        "env_steps_per_second": round(finished / now), "updates_per_second": round(updates / now, 1),
        "env_steps_per_update": round(finished / updates, 3),
        "most_ahead_in_slacks": round(max(ahead[len(ahead) // 2 :]) / slack, 3),
        "slack_in_updates": round(slack / a.env_steps_per_update, 1),
        "door_most_behind_seconds": round(behind, 3),
        "least_actor_of_median": round(min(steps) / sorted(steps)[a.actors // 2], 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default, what in (
        ("actors", 10_000, "processes that collect"), ("envs", 1, "environments of each"), ("rounds", 16, "of steps in a report"),
        ("gpus", 8, "of the learner"), ("batch", 16_384, "samples of an update"), ("cores", 1, "that take reports"),
        ("bytes-per-step", 130, "130: HalfCheetah; 21200: a frame of 84x84x3"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what}; default {default}")
    for name, default, what in (
        ("rate", 20.0, "rounds of an actor per second"), ("delay", 0.1, "seconds from an actor to the learner"),
        ("parameters", 1e6, "numbers of the policy"), ("samples-per-second", 3e6, "that one GPU learns from"),
        ("env-steps-per-update", 512.0, "the dial"), ("seconds", 10.0, "to simulate"),
    ):
        parser.add_argument(f"--{name}", type=float, default=default, help=f"{what}; default {default:g}")
    a = parser.parse_args()
    block = a.rounds * a.envs
    carried = limits(a, block)
    carried["front door"] *= a.cores
    made = simulate(a, block)
    weights = a.actors * 4 * a.parameters / (WEIGHTS_SHARE * WIRE_BYTES)
    print(json.dumps({
        "env_steps_per_second_at_most": {name: round(value) for name, value in carried.items()},
        "first": min(carried, key=carried.get),
        "weights_to_all": {"seconds": round(weights, 2), "updates": round(weights * made["updates_per_second"])},
        "simulated": made,
    }, indent=1))


if __name__ == "__main__":
    main()
