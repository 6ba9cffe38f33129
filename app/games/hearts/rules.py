"""The options of Hearts, and game strings that name them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import pyspiel

from app.games.table import UnknownGame

CLEAN_FIRST_TRICK, MUST_BREAK, QUEEN_BREAKS = 1, 2, 4


@dataclass(frozen=True, slots=True)
class HeartsRules:
    """The rules of a table, named as in a game string; those that OpenSpiel knows have its names and defaults."""

    # three cards are passed: in a match left, right, across, not at all, in turn, and in a game of one hand in a
    # direction drawn from its seed
    pass_cards: bool = True
    no_pts_on_first_trick: bool = True  # no points are played to the first trick by who has anything else
    must_break_hearts: bool = True  # hearts are led only once one has been played, or by who has nothing else
    qs_breaks_hearts: bool = True  # so does the queen of spades
    moon_for_shooter: bool = False  # who takes all 26 points has -26 and the others 0, instead of 0 and 26
    hands: int = 1  # how many make a game; 0 for a match that ends with the hand in which someone reaches ``limit``
    limit: int = 100  # points

    @property
    def game(self) -> str:
        """The game string that names these rules, without defaults."""
        usual = asdict(HeartsRules())
        others = [f"{name}={str(value).lower()}" for name, value in asdict(self).items() if value != usual[name]]
        return f"hearts({','.join(others)})" if others else "hearts"

    @property
    def hand(self) -> str:
        """The game string of one hand for OpenSpiel, which knows no matches, and only one way to count a moon."""
        usual = HeartsRules()
        return replace(self, moon_for_shooter=usual.moon_for_shooter, hands=usual.hands, limit=usual.limit).game

    @property
    def option_set(self) -> int:
        """The options that the kernels of a hand need, as a set of bits."""
        return (
            CLEAN_FIRST_TRICK * self.no_pts_on_first_trick
            | MUST_BREAK * self.must_break_hearts
            | QUEEN_BREAKS * self.qs_breaks_hearts
        )


def parse_rules(game: str) -> HeartsRules:
    """Return the rules that a game string names, for instance ``hearts(hands=0,qs_breaks_hearts=false)``.

    Raises ``UnknownGame`` for another game, or an option that only OpenSpiel plays.
    """
    try:
        options: dict[str, Any] = pyspiel.game_parameters_from_string(game)
    except pyspiel.SpielError as error:
        raise UnknownGame(f"{game!r} is no game string ({error}).", hint="Write, for instance, 'hearts'.") from error
    name = options.pop("name")
    if name != "hearts":
        raise UnknownGame(
            f"Flyball's own rules are those of Hearts, Othello and connect four, not of {name!r}.",
            hint="Set engine = 'openspiel' in this configuration.",
        )
    usual = asdict(HeartsRules())
    for option, value in options.items():
        if option not in usual or type(value) is not type(usual[option]) or int(value) < 0:
            known = ", ".join(f"{name}={str(default).lower()}" for name, default in usual.items())
            raise UnknownGame(
                f"Flyball's own Hearts does not understand {option}={value}; its options and what they are if nothing "
                f"is said: {known}.",
                hint="Correct the game string, or set engine = 'openspiel' for an option that only OpenSpiel has.",
            )
    return replace(HeartsRules(), **options)
