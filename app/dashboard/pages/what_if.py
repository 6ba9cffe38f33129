"""What-if: the decisions that other settings would have changed."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flyball.app.api.runs import RunLocation, open_run
from flyball.app.api.supposing import WhatIfAnswer, WhatIfSpec
from flyball.app.config import RunSettings
from flyball.app.config.loading import parse
from flyball.app.core import FlyballError
from flyball.app.dashboard.jobs import PageJob, job_of, jobs_of, may_begin, stop_job_of
from flyball.app.dashboard.layout import Page, feed_of, render, whole_number
from flyball.app.journal.history import last_settings

JOB = "flyball.app.api.supposing:what_if"
DEADLINE_SECONDS = 600.0
MOST_SETTINGS = 8
SET, LAST = "set", "to"
"""Names in the query: assignments, the last position."""


async def what_if(request: Request) -> Response:
    """Show the form; with settings, also begin and show the comparison.

    The address then names the position up to which the journal is compared, so that it always gives the same answer.
    """
    feed, assignments = feed_of(request), _assignments(request)
    job: PageJob | None = None
    problem = ""
    if assignments and may_begin(request):
        try:
            parse(assignments)
            last = whole_number(request.query_params.get(LAST, ""))
            if last is None:
                query = [
                    *((SET, assignment) for assignment in assignments),
                    (LAST, await asyncio.to_thread(_head, feed.place)),
                ]
                return RedirectResponse(f"/what-if?{urlencode(query)}", status_code=303)
            job = jobs_of(request).begin(JOB, _spec(feed.place, assignments, last), DEADLINE_SECONDS)
        except FlyballError as error:
            problem = str(error)
    return await asyncio.to_thread(
        lambda: render(
            request,
            "what_if.html",
            assignments=[*assignments, ""],
            offered=list(_offered(feed.place)),
            problem=problem,
            **_shown(job),
        )
    )


async def part(request: Request) -> Response:
    """Show a comparison's progress or answer."""
    job = job_of(request)
    return await asyncio.to_thread(lambda: render(request, "what_if_part.html", **_shown(job)))


async def stop(request: Request) -> Response:
    """Stop a comparison."""
    await stop_job_of(request)
    return await part(request)


def _assignments(request: Request) -> tuple[str, ...]:
    """Return the settings of the query, without empty ones."""
    texts = (text.strip() for text in request.query_params.getlist(SET))
    return tuple(text for text in texts if text)[:MOST_SETTINGS]


def _head(place: RunLocation) -> int:
    with open_run(place) as reader:
        return reader.head


def _spec(place: RunLocation, assignments: tuple[str, ...], last: int) -> dict[str, Any]:
    return WhatIfSpec(**place.arguments, assignments=assignments, last=last).model_dump(mode="json")


def _offered(place: RunLocation) -> Iterator[tuple[str, str]]:
    """Iterate over the controllers' settings, with descriptions. A setting is ``KEY=VALUE``, with the run's value."""
    try:
        with open_run(place) as reader:
            settings = last_settings(reader) or RunSettings()
    except FlyballError:
        settings = RunSettings()
    yield from _leaves("feedback.", settings.feedback)
    yield f"min_quality={settings.min_quality}", RunSettings.model_fields["min_quality"].description or ""


def _leaves(prefix: str, settings: BaseModel) -> Iterator[tuple[str, str]]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(f"{prefix}{name}.", value)
        elif isinstance(value, int | float | str):
            yield f"{prefix}{name}={value}", field.description or ""


def _shown(job: PageJob | None) -> dict[str, Any]:
    """Return the values of the part that shows a comparison."""
    if job is None or job.function != JOB:
        return {"job": None, "answer": None, "by_config": [], "done": 0, "last": 0}
    result = job.result
    reports = job.reports
    answer = None if result is None else WhatIfAnswer.model_validate(result)
    counts: defaultdict[str, list[Any]] = defaultdict(list)
    for count in answer.counts if answer else ():
        counts[count.config].append(count)
    listed: defaultdict[str, list[Any]] = defaultdict(list)
    for difference in answer.differences if answer else ():
        listed[difference.config].append(difference)
    return {
        "job": job,
        "answer": answer,
        "by_config": [(config, counts[config], listed[config]) for config in sorted(counts)],
        "done": reports[-1]["position"] if reports else 0,
        "last": job.spec["last"],
    }


PAGE = Page(
    "/what-if",
    "What-if",
    (Route("/what-if", what_if), Route("/what-if/part", part), Route("/what-if/stop", stop)),
)
