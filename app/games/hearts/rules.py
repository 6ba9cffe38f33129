"""Options of Hearts, and parsing of game strings that set them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import pyspiel

from flyball.app.games.table import UnknownGame

CLEAN_FIRST_TRICK, MUST_BREAK, QUEEN_BREAKS = 1, 2, 4


@dataclass(frozen=True, slots=True)
class HeartsRules:
    """Rules of a table, named as in game strings. Options shared with OpenSpiel have OpenSpiel's defaults."""

    # each seat passes three cards: in a match left, right, across, then none, in the order ``DIRECTION_ORDER``; in a
    # game of one hand in a random direction
    pass_cards: bool = True
    no_pts_on_first_trick: bool = True  # the first trick gets no points from a seat that holds other cards
    must_break_hearts: bool = True  # hearts are led only once broken, or by a seat that holds no other suit
    qs_breaks_hearts: bool = True  # the queen of spades breaks hearts too
    moon_for_shooter: bool = False  # a moon scores -26 for its shooter and 0 for others, instead of 0 and 26
    hands: int = 1  # hands in a game; 0: a match ends with the hand in which a seat reaches ``limit``
    limit: int = 100  # points

    @property
    def game(self) -> str:
        """Game string of these rules, without defaults."""
        usual = asdict(HeartsRules())
        others = [f"{name}={str(value).lower()}" for name, value in asdict(self).items() if value != usual[name]]
        return f"hearts({','.join(others)})" if others else "hearts"

    @property
    def hand(self) -> str:
        """OpenSpiel's game string for one hand, without options that OpenSpiel lacks."""
        usual = HeartsRules()
        return replace(self, moon_for_shooter=usual.moon_for_shooter, hands=usual.hands, limit=usual.limit).game

    @property
    def option_set(self) -> int:
        """Options that the kernels of a hand need, as bits."""
        return (
            CLEAN_FIRST_TRICK * self.no_pts_on_first_trick
            | MUST_BREAK * self.must_break_hearts
            | QUEEN_BREAKS * self.qs_breaks_hearts
        )


def parse_rules(game: str) -> HeartsRules:
    """Return the rules of a game string, for instance ``hearts(hands=0)``. Raises ``UnknownGame``."""
    try:
        options: dict[str, Any] = pyspiel.game_parameters_from_string(game)
    except pyspiel.SpielError as error:
        raise UnknownGame(f"{game!r} is no game string ({error}).", hint="Write, for instance, 'hearts'.") from error
    name = options.pop("name")
    if name != "hearts":
        raise UnknownGame(
            f"Flyball has no rules of its own for {name!r}.",
            hint="Set engine = 'openspiel' in this configuration.",
        )
    usual = asdict(HeartsRules())
    for option, value in options.items():
        if option not in usual or type(value) is not type(usual[option]) or int(value) < 0:
            options_text = ", ".join(f"{name}={str(default).lower()}" for name, default in usual.items())
            raise UnknownGame(
                f"Flyball's own Hearts does not understand {option}={value}; its options and what they are if nothing "
                f"is said: {options_text}.",
                hint="Correct the game string, or set engine = 'openspiel' for an option that only OpenSpiel has.",
            )
    return replace(HeartsRules(), **options)
