"""The estimators, one file each; importing them registers them."""

from longshot.methods.base import METHODS, Method, load_plugins, make_method, settings_of
from longshot.methods.conditional import Conditional
from longshot.methods.gld import GLD
from longshot.methods.itgis import ITGIS
from longshot.methods.mhis import MHIS
from longshot.methods.naive import Naive
from longshot.methods.qld import QLD

__all__ = [
    "GLD",
    "ITGIS",
    "METHODS",
    "MHIS",
    "QLD",
    "Conditional",
    "Method",
    "Naive",
    "load_plugins",
    "make_method",
    "settings_of",
]
