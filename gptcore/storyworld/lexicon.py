"""The words of the generated world: people, places, things, moods, deeds, opinions.

Words of one group mean the same and are used interchangeably all over the books; each group names its opposite. A
task's train rows are written with a *part* of the words (:meth:`Words.narrow`) and its dev rows with all of them, so
that some dev rows hang on words whose meaning only the books tell. Order is the order written here, never a hash's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from gptcore.storyworld.topics import TOPICS, Topic


@dataclass(frozen=True)
class Person:
    """Someone with a name, and the pronouns that go with it."""

    name: str
    female: bool

    @property
    def he(self) -> str:
        return "she" if self.female else "he"

    @property
    def him(self) -> str:
        return "her" if self.female else "him"

    @property
    def his(self) -> str:
        return "her" if self.female else "his"


@dataclass(frozen=True)
class Group:
    """Words of one meaning; ``opposite`` names the group of the contrary meaning."""

    name: str
    words: tuple[str, ...]
    opposite: str


@dataclass(frozen=True)
class Verb:
    """One verb in its five forms."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


@dataclass(frozen=True)
class VerbGroup:
    """Verbs of one meaning."""

    name: str
    verbs: tuple[Verb, ...]
    opposite: str


@dataclass(frozen=True)
class Kind:
    """A kind of things: its members, the wider class above it, and what all of its members do."""

    name: str
    members: tuple[str, ...]
    above: str
    habits: tuple[tuple[str, str], ...]
    """(plural, singular) verb phrases that are true of each member and of no other kind."""
    made: bool
    """Made by hand: can be bought, broken, mended, owned."""


def _verb(entry: str) -> Verb:
    """``base:past[:participle[:ing]]``, regular where left out."""
    base, *given = entry.split(":")
    past = given[0] if given else (base + "d" if base.endswith("e") else base + "ed")
    participle = given[1] if len(given) > 1 else past
    ing = given[2] if len(given) > 2 else (base[:-1] if base.endswith("e") else base) + "ing"
    third = base + "es" if base.endswith(("s", "sh", "ch", "x", "o")) else base + "s"
    if base.endswith("y") and base[-2] not in "aeou":
        third = base[:-1] + "ies"
    return Verb(base, third, past, participle, ing)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _groups(table: str) -> tuple[Group, ...]:
    """Lines ``words of one meaning | words of the contrary meaning``."""
    groups = []
    for line in table.strip().splitlines():
        left, right = (tuple(side.split()) for side in line.split("|"))
        groups += [Group(left[0], left, right[0]), Group(right[0], right, left[0])]
    return tuple(groups)


def _verb_groups(table: str) -> tuple[VerbGroup, ...]:
    """The same lines for verbs; a side may be empty."""
    groups = []
    for line in table.strip().splitlines():
        left, right = (tuple(_verb(entry) for entry in side.split()) for side in line.split("|"))
        groups.append(VerbGroup(left[0].base, left, right[0].base if right else ""))
        if right:
            groups.append(VerbGroup(right[0].base, right, left[0].base))
    return tuple(groups)


def _kinds(table: str) -> tuple[Kind, ...]:
    """Lines ``kind: members | wider class | habit; habit`` (habits in the plural); ``*`` marks things made by hand."""
    kinds = []
    for line in table.strip().splitlines():
        head, above, habits = (part.strip() for part in line.split("|"))
        name, members = head.split(":")
        pairs = tuple((habit.strip(), _singular(habit.strip())) for habit in habits.split(";"))
        kinds.append(Kind(name.strip("* "), tuple(members.split()), above, pairs, name.strip().startswith("*")))
    return tuple(kinds)


def _singular(habit: str) -> str:
    """Third person singular of a verb phrase: "have wings" -> "has wings"."""
    verb, _, rest = habit.partition(" ")
    irregular = {"are": "is", "have": "has", "can": "can"}
    third = irregular.get(verb) or _verb(verb).third
    return f"{third} {rest}".strip()


WOMEN = _words(
    "Ann Clara Dora Edith Flora Grace Hilda Ida Jane Kate Lucy Mira Nora Olive Polly Ruth Sara Tess Vera Wanda"
)
MEN = _words(
    "Adam Ben Carl David Edgar Frank George Henry Ivan Jack Kurt Leo Mark Noah Oscar Paul Ralph Sam Tom Walter"
)
PEOPLE = tuple(Person(n, f) for pair in zip(WOMEN, MEN, strict=True) for n, f in zip(pair, (True, False), strict=True))
CALLINGS = _words("baker teacher miller farmer sailor weaver smith doctor")

REGIONS: Mapping[str, tuple[str, ...]] = {
    "the north": ("Oakford", "Ashby", "Thornwick"),
    "the south": ("Millbrook", "Fernhill", "Larkfield"),
    "the east": ("Saltmere", "Redcliff", "Gullhaven"),
    "the west": ("Stonebridge", "Foxley", "Deepwell"),
}
SPOTS = _words(
    "market mill harbour church school inn garden kitchen barn forest river bridge library bakery cellar tower field "
    "stable square beach"
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
SEASONS = _words("spring summer autumn winter")

KINDS = _kinds(
    """
    dog: collie spaniel terrier hound | animal | bark at strangers; guard the house
    bird: sparrow robin owl goose | animal | have feathers; lay eggs
    horse: pony mare stallion foal | animal | pull carts; eat hay
    fruit: apple pear plum cherry | plant | grow on trees; are good to eat
    flower: rose lily tulip violet | plant | have petals; smell sweet
    * tool: hammer rake spade axe | object | are made of iron; help workers
    * instrument: flute fiddle drum trumpet | object | make music; are played at dances
    * garment: coat scarf hat shirt | object | are made of cloth; keep people warm
    * vessel: cup jug bowl kettle | object | hold water; stand on the shelf
    * jewel: ring necklace brooch bracelet | object | are made of gold; shine in the sun
    * boat: ferry canoe barge raft | object | float on the river; carry sailors
    * seat: chair stool bench sofa | object | have legs; are good to sit on
    * light: lamp lantern candle torch | object | burn at night; make rooms bright
    * writing: letter map diary poem | object | are written with ink; tell news
    """
)

MOODS = _groups(
    """
    happy glad cheerful merry joyful | sad unhappy sorrowful gloomy miserable
    calm peaceful quiet serene | angry cross furious enraged
    brave bold fearless daring | afraid scared frightened fearful
    rested fresh lively awake | tired weary sleepy drowsy
    rich wealthy prosperous | poor penniless needy
    healthy well strong | ill sick unwell
    kind gentle friendly tender | cruel harsh unkind mean
    clever wise smart sensible | foolish silly stupid senseless
    """
)
QUALITIES = _groups(
    """
    big large huge enormous | small little tiny minute
    old ancient aged | new modern recent
    clean spotless tidy | dirty filthy grimy
    costly expensive valuable | cheap worthless inexpensive
    pretty beautiful handsome | ugly hideous unsightly
    sturdy solid tough | fragile flimsy frail
    """
)
DEEDS = _verb_groups(
    """
    buy:bought purchase acquire | sell:sold peddle trade
    mend repair fix restore | break:broke:broken smash wreck ruin
    find:found discover spot:spotted:spotted:spotting | lose:lost mislay:mislaid misplace
    hide:hid:hidden conceal bury:buried | show:showed:shown display reveal
    wash clean scrub:scrubbed:scrubbed:scrubbing | stain soil smear
    take:took:taken grab:grabbed:grabbed:grabbing seize | drop:dropped:dropped:dropping discard abandon
    make:made build:built construct | destroy demolish shatter
    """
)
GIFTS = tuple(_verb(entry) for entry in _words("give:gave:given hand pass deliver bring:brought send:sent"))
MOVES = tuple(
    _verb(entry) for entry in _words("walk stroll wander run:ran:run:running hurry:hurried rush go:went:gone")
)
ACTS = _verb_groups(
    """
    sleep:slept doze nap:napped:napped:napping |
    laugh giggle chuckle | weep:wept cry:cried sob:sobbed:sobbed:sobbing
    shout yell scream | whisper murmur mutter
    work toil labour | rest relax linger
    """
)
WORKS = _words("play song tale poem concert dance speech ballad comedy story")
PRAISE = _words(
    "wonderful charming delightful splendid superb excellent moving witty graceful brilliant touching funny thrilling "
    "magnificent sweet elegant warm inspired enchanting captivating marvellous pleasing radiant memorable"
)
BLAME = _words(
    "dreadful awful terrible dull boring tedious clumsy horrible shabby lifeless tiresome feeble bland dreary hollow "
    "vulgar sour crude messy pointless wretched stale limp forgettable"
)
LIKING = tuple(_verb(entry) for entry in _words("love adore enjoy admire praise applaud treasure cherish"))
LOATHING = tuple(
    _verb(entry)
    for entry in _words("hate loathe dislike detest scorn mock despise regret:regretted:regretted:regretting")
)


@dataclass(frozen=True)
class Words:
    """The part of the lexicon that one text may use."""

    kinds: tuple[Kind, ...] = KINDS
    moods: tuple[Group, ...] = MOODS
    qualities: tuple[Group, ...] = QUALITIES
    deeds: tuple[VerbGroup, ...] = DEEDS
    acts: tuple[VerbGroup, ...] = ACTS
    praise: tuple[str, ...] = PRAISE
    blame: tuple[str, ...] = BLAME
    liking: tuple[Verb, ...] = LIKING
    loathing: tuple[Verb, ...] = LOATHING
    spots: tuple[str, ...] = SPOTS
    people: tuple[Person, ...] = PEOPLE
    topics: tuple[Topic, ...] = TOPICS

    def narrow(self, rng: Random) -> Words:
        """Keep about half of the words of every group (at least two), and half of what can happen."""
        kinds = tuple(dataclasses.replace(k, members=_half(rng, k.members)) for k in self.kinds)
        return Words(
            kinds=kinds,
            moods=tuple(dataclasses.replace(g, words=_half(rng, g.words)) for g in self.moods),
            qualities=tuple(dataclasses.replace(g, words=_half(rng, g.words)) for g in self.qualities),
            deeds=tuple(dataclasses.replace(g, verbs=_half(rng, g.verbs)) for g in self.deeds),
            acts=tuple(dataclasses.replace(g, verbs=_half(rng, g.verbs)) for g in self.acts),
            praise=_half(rng, self.praise),
            blame=_half(rng, self.blame),
            liking=_half(rng, self.liking),
            loathing=_half(rng, self.loathing),
            spots=_half(rng, self.spots),
            topics=tuple(
                dataclasses.replace(topic, good=_half(rng, topic.good), bad=_half(rng, topic.bad))
                for topic in self.topics
            ),
        )

    def without(self, narrowed: Words) -> Words:
        """Leave out the clauses and the kinds' members that ``narrowed`` has: what its reader has never met."""

        def rest(items: tuple[str, ...], met: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(item for item in items if item not in met)

        return dataclasses.replace(
            self,
            kinds=tuple(
                dataclasses.replace(kind, members=rest(kind.members, met.members))
                for kind, met in zip(self.kinds, narrowed.kinds, strict=True)
            ),
            topics=tuple(
                dataclasses.replace(topic, good=rest(topic.good, met.good), bad=rest(topic.bad, met.bad))
                for topic, met in zip(self.topics, narrowed.topics, strict=True)
            ),
        )

    def topic(self, rng: Random, people: Sequence[Person]) -> Words:
        """What one chapter is about: some of ``people``, a few places, things, moods, qualities and deeds.

        A chapter that keeps to its people and words, as chapters do, is what teaches a reader to look back.
        """
        made = rng.sample([kind for kind in self.kinds if kind.made], 3)
        grown = rng.sample([kind for kind in self.kinds if not kind.made], 2)
        moods = ["happy", rng.choice(("calm", "brave", "rested", "rich", "healthy", "kind", "clever"))]
        qualities = rng.sample([group.name for group in self.qualities[::2]], 2)
        deeds = rng.sample([group.name for group in self.deeds[::2]], 2)
        return dataclasses.replace(
            self,
            people=tuple(rng.sample(people, 6)),
            kinds=tuple(dataclasses.replace(k, members=_half(rng, k.members)) for k in (*made, *grown)),
            moods=tuple(group for group in self.moods if group.name in moods or group.opposite in moods),
            qualities=tuple(g for g in self.qualities if g.name in qualities or g.opposite in qualities),
            deeds=tuple(group for group in self.deeds if group.name in deeds or group.opposite in deeds),
            praise=_half(rng, self.praise),
            blame=_half(rng, self.blame),
            spots=tuple(rng.sample(self.spots, 6)),
        )

    def mood(self, name: str) -> Group:
        return next(group for group in self.moods if group.name == name)

    def quality(self, name: str) -> Group:
        return next(group for group in self.qualities if group.name == name)

    def deed(self, name: str) -> VerbGroup:
        return next(group for group in self.deeds if group.name == name)

    def made(self) -> tuple[str, ...]:
        """Things that people own."""
        return tuple(thing for kind in self.kinds if kind.made for thing in kind.members)

    def grown(self) -> tuple[str, ...]:
        """Animals and plants."""
        return tuple(thing for kind in self.kinds if not kind.made for thing in kind.members)


_T = TypeVar("_T")


def _half(rng: Random, items: tuple[_T, ...]) -> tuple[_T, ...]:
    chosen = sorted(rng.sample(range(len(items)), max(2, len(items) // 2)))
    return tuple(items[i] for i in chosen)


def region_of(village: str) -> str:
    """The region that a village lies in."""
    return next(region for region, villages in REGIONS.items() if village in villages)


VILLAGES = tuple(village for villages in REGIONS.values() for village in villages)
