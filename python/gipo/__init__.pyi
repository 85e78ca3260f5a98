from gipo._core import ConfigError as ConfigError
from gipo._core import RunError as RunError
from gipo._core import version as version
from gipo.grid import grid_optimum as grid_optimum
from gipo.grid import grid_study as grid_study
from gipo.objective import Surrogate as Surrogate
from gipo.objective import certify as certify
from gipo.objective import diagnostics as diagnostics
from gipo.objective import gae as gae
from gipo.objective import normalise as normalise
from gipo.objective import surrogate as surrogate
from gipo.objective import surrogates as surrogates
from gipo.objective import vtrace as vtrace
from gipo.policy import Policy as Policy
from gipo.scores import Estimate as Estimate
from gipo.scores import aggregate as aggregate
from gipo.scores import iqm as iqm
from gipo.scores import performance_profile as performance_profile
from gipo.scores import probability_of_improvement as probability_of_improvement
from gipo.training import Run as Run
from gipo.training import export as export
from gipo.training import load as load
from gipo.training import resume as resume
from gipo.training import train as train
from gipo.video import Video as Video

__all__: list[str]
