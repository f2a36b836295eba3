"""The documentation site: `sphinx-build -W -b html docs site`, with `pip install -e ".[docs]"`."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

from derivatrix.version import VERSION  # noqa: E402

project = "derivatrix"
author = "The derivatrix developers"
release = version = VERSION
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "diagrams",
    "docstrings",
    "mathml",
]
exclude_patterns = ["extensions", "gallery/*.py", "gallery/*.ipynb", "gallery/*.zip"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
html_math_renderer = "mathml"

highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "all"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"derivatrix {VERSION}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.highlight-output) > div.highlight > pre"

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "capture_repr": (),
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "reset_modules": ("matplotlib",),
    "remove_config_comments": True,
    "thumbnail_size": (420, 280),
    "within_subsection_order": "FileNameSortKey",
}
