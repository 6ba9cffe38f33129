"""All legal answers to a turn of a text game."""

from flyball.app.language.text_game import Answers


def every_answer(answers: Answers) -> list[str]:
    complete, begun = [], [()]
    while begun:
        parts = begun.pop()
        options = answers.options(parts)
        if not options:
            complete.append("".join(parts))
        begun.extend((*parts, option) for option in reversed(options))
    return complete
