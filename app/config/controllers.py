"""Settings of the user's own controllers, and their knobs."""

from typing import Annotated, Literal, get_args

from pydantic import Field, JsonValue

from flyball.app.config.base import FrozenModel
from flyball.app.config.settings import Parameter

Knob = Literal[
    Parameter,
    "exploration_boost",
    "selfplay_rate",
    "training_intensity",
    "training_block",
    "curriculum_weight",
    "matchmaking",
    "promotion",
    "rollback",
    "quarantine",
    "allocation",
    "training_start",
]
"""A value that one controller sets. Knobs that FeedbackState holds have the names of its fields."""

KNOBS: tuple[Knob, ...] = get_args(Knob)

ControllerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""Names a controller of the user's own. In lower case, so that it is never the name of a built-in one."""


class ControllerSettings(FrozenModel):
    """A controller of the user's own, and the knobs it takes over."""

    use: str = Field(min_length=1, description="package.module:Class, or the name of an entry point")
    takes_over: tuple[Knob, ...] = Field((), description="knobs that it owns instead of a built-in controller")
    options: dict[str, JsonValue] = Field({}, description="passed to the controller unchanged")
