"""One configuration for both languages: ``-t zh`` builds the Chinese handbook, without it the English one."""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext"), str(ROOT / "src"), str(ROOT)]

import attention_cem

CHINESE: bool = globals()["tags"].has("zh")

project = "Attention-CEM"
author = "The Attention-CEM authors"
version = release = attention_cem.__version__
language = "zh_CN" if CHINESE else "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "chinese_lines",
    "chinese_search",
    "two_languages",
    "house_docstrings",
    "generated_results",
    "freshness",
]
templates_path = ["_templates"]
locale_dirs = [str(HERE / "locale")]
myst_enable_extensions = ["amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# References to other packages (torch.Tensor, numpy arrays) and to names inside a module that are not public have no
# page here to lead to.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!attention_cem).*"),
    (r"py:.*", r"attention_cem\.\w+\.\w+\.\w+"),
    (r"py:func", r"attention_cem\.\w+"),
    (r"py:mod", r"attention_cem\.\w+\.\w+"),
]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "Attention-CEM"
html_static_path = ["_static"]
html_css_files = ["handbook.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_theme_options: dict[str, Any] = {
    "top_of_page_buttons": ["edit"],  # our template of that name holds the link to the other language
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#1f5f8b",
        "color-brand-content": "#1f5f8b",
        "color-brand-visited": "#5a4b8b",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7cc0ea",
        "color-brand-content": "#7cc0ea",
        "color-brand-visited": "#b3a4e6",
    },
}
