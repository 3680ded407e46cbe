"""Everything between a question and its table: study, evaluation, search, figures, commands."""

from nearkv.hardware.files import register_folder

register_folder("trace", __file__, "traces")
register_folder("study", __file__, "studies")
