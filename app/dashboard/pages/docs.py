"""Docs: Flyball's documents."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from flyball.app.dashboard import documents
from flyball.app.dashboard.layout import Page, render


def index(request: Request) -> Response:
    """List all documents."""
    return render(request, "docs.html", groups=documents.documents())


def document(request: Request) -> Response:
    """Show a document, or one of the documents' images."""
    path = request.path_params["path"]
    if path in documents.images():
        return FileResponse(documents.root() / path)
    if (shown := documents.by_path().get(path)) is None:
        raise HTTPException(404)
    return render(request, "document.html", document=shown, page=documents.page_of(path))


PAGE = Page(
    documents.ADDRESS,
    "Docs",
    (Route(documents.ADDRESS, index), Route(f"{documents.ADDRESS}/{{path:path}}", document)),
)
