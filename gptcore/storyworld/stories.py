"""Four-sentence stories with a right and a wrong ending (Story Cloze), and longer passages with questions (RACE).

Scripts come in twins: the same endings are right after one context and wrong after its twin, so that an ending alone
says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gptcore.storyworld import facts
from gptcore.storyworld.facts import Question, cast
from gptcore.storyworld.lexicon import Words


@dataclass(frozen=True)
class Tale:
    """Four sentences, an ending that follows, and one that does not."""

    lines: tuple[str, str, str, str]
    right: str
    wrong: str


@dataclass(frozen=True)
class Script:
    """Twin stories: common beginnings, then one of two turns, each with the endings that fit it.

    ``{a}`` and ``{b}`` are people, ``{he}``/``{his}``/``{him}`` the pronouns of ``{a}``, ``{t}`` a thing, ``{p}`` a
    spot, ``{good}`` and ``{bad}`` moods.
    """

    openings: tuple[str, ...]
    middles: tuple[str, ...]
    turns: tuple[tuple[str, ...], tuple[str, ...]]
    results: tuple[tuple[str, ...], tuple[str, ...]]
    endings: tuple[tuple[str, ...], tuple[str, ...]]


_GLAD = ("{A} was {good} that day.", "That night {a} felt {good}.")
_SAD = ("{A} was {bad} that day.", "That night {a} felt {bad}.")
SCRIPTS: tuple[Script, ...] = (
    Script(
        ("{A} lost {his} {t}.", "One morning {a} could not see {his} {t}."),
        ("{He} looked for it at the {p}.", "{He} went back to the {p} to search."),
        (("There {he} found the {t}.", "The {t} lay under a stone."), ("It was not there.", "The {t} was gone.")),
        (("{He} picked it up.", "{He} took it home."), ("{He} never saw it again.", "{He} came home without it.")),
        ((*_GLAD, "{A} kept the {t} safe after that."), (*_SAD, "{A} had to buy a new {t}.")),
    ),
    Script(
        ("{A} ran a race at the {p}.", "There was a race at the {p} and {a} took part."),
        ("{B} ran too.", "Many people came to see it."),
        (("{A} ran very fast.", "{A} passed everyone."), ("{A} fell on the road.", "{A} ran very slowly.")),
        (("{He} came in first.", "Nobody could catch {him}."), ("{He} came in last.", "Everyone passed {him}.")),
        ((*_GLAD, "{A} won the prize."), (*_SAD, "{B} won the prize.")),
    ),
    Script(
        ("{A} planted seeds by the {p}.", "In spring {a} made a garden."),
        ("{He} watered it each day.", "{He} waited for weeks."),
        (("The sun was warm.", "Soft rain fell."), ("A hard frost came.", "Goats got in at night.")),
        (("Green leaves came up.", "Flowers opened everywhere."), ("All the plants died.", "Nothing was left.")),
        ((*_GLAD, "{A} filled a basket for {b}."), (*_SAD, "{A} had nothing to give {b}.")),
    ),
    Script(
        ("{A} baked a cake.", "{A} made a cake for {b}."),
        ("{He} put it in the oven.", "{He} carried it to the oven."),
        (("{He} watched it well.", "{He} took it out in time."), ("{He} fell asleep.", "{He} forgot it for hours.")),
        (("It smelled sweet.", "It came out golden."), ("It was burnt black.", "The room was full of smoke.")),
        ((*_GLAD, "{B} ate every piece."), (*_SAD, "{A} threw the cake away.")),
    ),
    Script(
        ("{A} wanted to sail.", "{A} took a boat out on the river."),
        ("{B} came with {him}.", "{He} rowed far from the bank."),
        (("The water was still.", "The wind was kind."), ("A storm broke.", "High waves rose.")),
        (("The boat ran smoothly.", "They sang all the way."), ("The boat sank.", "Water filled the boat.")),
        ((*_GLAD, "{A} went sailing again the next day."), (*_SAD, "{A} never went sailing again.")),
    ),
    Script(
        ("{A} had a test at school.", "The teacher gave {a} a test."),
        ("It was the last one of the year.", "{B} had the same test."),
        (("{A} had learned a lot.", "{A} knew all the words."), ("{A} had not learned at all.", "{A} knew no words.")),
        (("Every answer was right.", "The teacher smiled."), ("Every answer was wrong.", "The teacher frowned.")),
        ((*_GLAD, "{A} passed the test."), (*_SAD, "{A} failed the test.")),
    ),
    Script(
        ("{A} had a dog.", "{A} kept an old dog."),
        ("It ran off to the {p}.", "One day it was ill."),
        (("{B} brought it back.", "The doctor helped it."), ("A cart hit it.", "Nobody could help it.")),
        (("It barked and jumped.", "It licked {his} hand."), ("It died that week.", "They dug a small grave.")),
        ((*_GLAD, "{A} took the dog for a walk."), (*_SAD, "{A} cried for the dog.")),
    ),
    Script(
        ("{A} and {b} were friends.", "{A} met {b} at the {p}."),
        ("They talked about the {t}.", "{B} had the {t} of {a}."),
        (("{B} spoke kindly.", "{B} gave it back with thanks."), ("{B} told a lie.", "{B} broke it and laughed.")),
        (("They shook hands.", "They shared some bread."), ("They shouted at each other.", "They had a quarrel.")),
        ((*_GLAD, "{A} asked {b} to come again."), (*_SAD, "{A} would not speak to {b} again.")),
    ),
    Script(
        ("{A} sang at the {p}.", "{A} gave a concert at the {p}."),
        ("Many people came.", "The whole village came."),
        (("{His} voice was clear.", "{He} sang like a bird."), ("{His} voice broke.", "{He} forgot the words.")),
        (("People clapped for a long time.", "They threw flowers."), ("People booed.", "They left early.")),
        ((*_GLAD, "{A} sang one more song."), (*_SAD, "{A} ran off the stage.")),
    ),
    Script(
        ("{A} worked for a rich man.", "{A} worked at the {p}."),
        ("{He} carried bags all week.", "At the end of the week {he} asked for {his} pay."),
        (("The man was fair.", "The man counted out the coins."), ("The man was a cheat.", "The man had no coins.")),
        (("{A} got all the money.", "{His} purse was full."), ("{A} got no money.", "{His} purse was empty.")),
        ((*_GLAD, "{A} bought a {t}."), (*_SAD, "{A} could not buy a {t}.")),
    ),
    Script(
        ("{A} walked in the forest.", "{A} went to look for berries."),
        ("It grew late.", "{He} came to a fork in the road."),
        (("{He} knew the way.", "A light showed the way."), ("{He} took the wrong road.", "{He} lost the path.")),
        (("{He} came home for supper.", "{B} met {him} at the door."), ("{He} went round and round.", "Night fell.")),
        ((*_GLAD, "{A} slept in {his} own bed."), (*_SAD, "{A} slept under a tree.")),
    ),
    Script(
        ("{A} went fishing.", "{A} sat by the river with a rod."),
        ("{He} waited all morning.", "{B} sat beside {him}."),
        (("Then the line went tight.", "The rod bent."), ("Nothing moved.", "The line broke.")),
        (("{He} pulled in a big fish.", "{He} caught three fish."), ("{He} caught nothing.", "The fish got away.")),
        ((*_GLAD, "{A} had fish for supper."), (*_SAD, "{A} had only bread for supper.")),
    ),
)


def tale(rng: Random, words: Words) -> Tale:
    """A random tale from the scripts that ``words`` may use."""
    allowed = words.scripts if words.scripts is not None else tuple(range(len(SCRIPTS)))
    script = SCRIPTS[rng.choice(allowed)]
    a, b = cast(rng, words, 2)
    turn = rng.randrange(2)
    good = rng.choice(words.mood("happy").words)
    bad = rng.choice(words.mood("sad").words)
    slots = {"a": a.name, "A": a.name, "b": b.name, "B": b.name, "he": a.he, "his": a.his, "him": a.him}
    slots |= {"He": a.he.capitalize(), "His": a.his.capitalize(), "t": rng.choice(words.made())}
    slots |= {"p": rng.choice(words.spots), "good": good, "bad": bad}
    parts = (script.openings, script.middles, script.turns[turn], script.results[turn])
    one, two, three, four = (rng.choice(part).format(**slots) for part in parts)
    ending = rng.randrange(len(script.endings[0]))
    right, wrong = (script.endings[side][ending].format(**slots) for side in (turn, 1 - turn))
    return Tale((one, two, three, four), right, wrong)


def chain(rng: Random, words: Words) -> tuple[str, Question]:
    """A passage in which something goes through several hands or someone through several spots, and where it ends."""
    people = cast(rng, words, 4)
    a, b, c, d = people
    if rng.random() < 0.5:
        thing = rng.choice(words.made())
        first, second = facts.gift(rng, words, a, b, thing), facts.gift(rng, words, b, c, thing)
        aside = facts.feeling(rng, words, d)
        question = rng.choice(
            [
                Question(f"Who has the {thing} in the end?", c.name, (a.name, b.name, d.name)),
                Question(f"Who had the {thing} first?", a.name, (b.name, c.name, d.name)),
            ]
        )
    else:
        one, two, three, four = rng.sample(words.spots, 4)
        first, second = facts.journey(rng, words, a, one, two), facts.journey(rng, words, a, two, three)
        aside = facts.journey(rng, words, b, two, four)
        ends = {f"Where is {a.name} in the end?": three, f"Where was {a.name} first?": one}
        text, answer = rng.choice(list(ends.items()))
        wrong = tuple(f"at the {spot}" for spot in (one, two, three, four) if spot != answer)
        question = Question(text, f"at the {answer}", wrong)
    told = [first.text, second.text]
    told.insert(rng.randrange(3), aside.text)
    return " ".join(told), question
