"""An actor around a control loop of your own, for a learner elsewhere. Needs grpcio, google-crc32c and numpy alone.

    actor = gipo_edge.RemoteActor("learner.lab:7400", certs="certs/robot-1")      docs/cluster.md
"""

from gipo_edge.actor import Refused, RemoteActor

__all__ = ["Refused", "RemoteActor"]
