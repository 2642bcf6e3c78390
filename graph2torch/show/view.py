"""What `view` prints: where to look, and how where no browser was opened."""

from __future__ import annotations

from graph2torch.text import printable
from graph2torch.view import View

from .page import Page


def show_view(found: View) -> None:
    page = Page()
    file = printable(str(found.file), 400)
    page.heading(found.file.name, f"at {found.url}" if found.served else file)
    if found.unopened:
        page.line(f"not opened, because {found.unopened}")
        if found.served:
            port = found.url.rstrip("/").rpartition(":")[2]
            page.line(f"from another machine: ssh -L {port}:localhost:{port} THIS_MACHINE, then http://localhost:{port}/ there")
        else:
            page.line("open the file in a browser, here or copied to another machine; --port 8000 serves it to this machine")
    if found.served:
        page.line("Ctrl-C ends it")
