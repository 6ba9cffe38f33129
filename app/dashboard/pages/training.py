"""Training: curves of trainings, evaluations and the league."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from flyball.app.dashboard.layout import Page, feed_of, played_configs, render, to_config
from flyball.app.play.gauntlet import MEMBER

POINTS = 250
"""Most points of a curve."""


def training(request: Request) -> Response:
    """Show the page of one configuration. The curves are in folders, in the order in which a run records them."""
    key = request.path_params["key"]
    with feed_of(request).reading() as model:
        keys = list(played_configs(request))
        tags = list(model.curves[key].metrics) if key in model.curves else []
    groups: dict[str, list[tuple[str, str]]] = {}
    for tag in tags:
        folder, _, name = tag.rpartition("/")
        groups.setdefault(folder, []).append((name, tag))
    return render(request, "training.html", key=key, keys=keys, groups=groups, member=MEMBER)


def curves(request: Request) -> Response:
    """Return the curves of one configuration."""
    with feed_of(request).reading() as model:
        curves = model.curves.get(request.path_params["key"])
        return JSONResponse({} if curves is None else curves.metric_curves(POINTS))


PAGE = Page(
    "/training",
    "Training",
    (Route("/training", to_config), Route("/training/{key}", training), Route("/curves/metrics/{key}", curves)),
    keyed=True,
)
