"""The estimators, one file each; importing them registers them."""

from longshot.methods.auto import Auto
from longshot.methods.base import METHODS, Method, load_plugins, make_method, settings_of
from longshot.methods.conditional import Conditional
from longshot.methods.exact import Exact
from longshot.methods.given_last import GivenLast
from longshot.methods.gld import GLD
from longshot.methods.itgis import ITGIS
from longshot.methods.leafwise import Leafwise
from longshot.methods.mhis import MHIS
from longshot.methods.naive import Naive
from longshot.methods.qld import QLD
from longshot.methods.splitting import Splitting

__all__ = [
    "GLD",
    "ITGIS",
    "METHODS",
    "MHIS",
    "QLD",
    "Auto",
    "Conditional",
    "Exact",
    "GivenLast",
    "Leafwise",
    "Method",
    "Naive",
    "Splitting",
    "load_plugins",
    "make_method",
    "settings_of",
]
