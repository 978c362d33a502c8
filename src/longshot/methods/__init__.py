"""The estimators, one file each; importing them registers them."""

from longshot.methods.base import METHODS, Method, make_method, settings_of
from longshot.methods.itgis import ITGIS
from longshot.methods.mhis import MHIS
from longshot.methods.naive import Naive

__all__ = ["ITGIS", "METHODS", "MHIS", "Method", "Naive", "make_method", "settings_of"]
