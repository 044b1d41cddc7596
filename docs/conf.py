"""One configuration for both languages: ``-t zh`` builds the Chinese handbook, without it the English one."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src"), str(HERE.parent)]

CHINESE = "tags" in globals() and globals()["tags"].has("zh")

project = "Attention-CEM"
author = "The Attention-CEM authors"
copyright = author
language = "zh_CN" if CHINESE else "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "attrs_block", "attrs_inline", "colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Attention-CEM"
