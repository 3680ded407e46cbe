"""Formulas: pure functions of arrays. No file, no print, no random number, no solver."""

from nearkv.hardware.files import register_folder

register_folder("model", __file__, "llms")
