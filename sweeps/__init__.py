"""Grids of design points, their evaluation, tables and files."""

from nearkv.hardware.files import register_folder

register_folder("trace", __file__, "traces")
register_folder("study", __file__, "studies")
