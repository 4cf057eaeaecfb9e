"""How Sphinx makes a site of README.md and these pages. tools/site runs it, from the top of the tree.

Two things are added to what Sphinx does. `man ecfs-put` in a page leads to that page of the manual, which tools/site puts
beside the pages, and so does a link to man/. A link to another part of the tree that is no page shows its words alone.
"""
import re
from pathlib import Path

from docutils import nodes

TOP = Path(__file__).resolve().parent.parent
MANUAL = {path.name for path in TOP.glob("man/*.[1-8]")}

project = "ecfs"
version = release = re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text()).group(1)
extensions = ["myst_parser"]
root_doc = "doc/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "doc/*.md"]
exclude_patterns = ["build*", ".*", "src", "tests", "man", "debian", "tools", "include", "examples", "python", "contrib", "scenarios"]
myst_heading_anchors = 4
nitpicky = True
# What pages show in a language that is only named for GitHub's sake.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = f"ecfs {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


def page_of(words):
    """The file in the manual that `man 5 ecfs.conf` shows, or None."""
    found = re.fullmatch(r"man (?:(\d) )?([\w.-]+)", words)
    if not found:
        return None
    number, name = found.groups()
    return next((page for page in sorted(MANUAL) if page[:-2] == name and number in (None, page[-1])), None)


def link_manual(app, tree, page):
    """Each literal that is a call of man(1) becomes a link."""
    up = "../" * page.count("/")
    for literal in list(tree.findall(nodes.literal)):
        found = page_of(literal.astext())
        if found and not isinstance(literal.parent, nodes.reference):
            link = nodes.reference("", "", internal=True, refuri=f"{up}manual/{found}.html")
            literal.replace_self(link)
            link += literal


def unlink_parts(app, env, node, content):
    """Words alone, for a link to a folder or file of the tree. Whatever else leads nowhere stays an error."""
    target = Path(app.srcdir, env.docname).parent / node.get("reftarget", "")
    if target.resolve() == TOP / "man":
        return nodes.reference("", "", content, internal=True, refuri="../" * env.docname.count("/") + "manual/index.html")
    return content if target.exists() else None


def setup(app):
    app.connect("doctree-resolved", link_manual)
    app.connect("missing-reference", unlink_parts)
