"""What happens in the village: fourteen matters, each with turns for the better and turns for the worse.

All clauses of one side of one matter go together: told one after another they make a story, and each bears the others
out. A clause of the other side contradicts them; a clause of another matter has nothing to do with them. ``{a}`` is the
person it is about, ``{he} {his} {him}`` the pronouns; clauses start small and end without a stop.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """One matter: how it starts, how it goes well, how it goes badly."""

    name: str
    """A noun phrase that says what the story is about."""
    starts: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]

    def side(self, well: bool) -> tuple[str, ...]:
        return self.good if well else self.bad


def _topics(table: str) -> tuple[Topic, ...]:
    """Blocks of four parts, name | starts | good | bad; clauses are set off by semicolons."""
    topics = []
    for block in table.strip().split("\n\n"):
        name, *parts = (" ".join(part.split()) for part in block.split("|"))
        starts, good, bad = (tuple(clause.strip() for clause in part.split(";")) for part in parts)
        topics.append(Topic(name, starts, good, bad))
    return tuple(topics)


TOPICS = _topics(
    """
    a race
    | {a} ran a race; {a} took part in the race; {a} stood at the line with the other runners
    | {a} came in first; {a} won the prize; {a} passed all the runners; no runner could catch {a}; {a} was the
      fastest; {a} flew along the track
    | {a} came in last; {a} fell on the track; all the runners passed {a}; {a} was the slowest; {a} hurt {his}
      knee; {a} gave up before the line

    a garden
    | {a} planted seeds; {a} made a garden; {a} dug a bed by the wall
    | green leaves came up for {a}; the roses of {a} opened; {a} picked many beans; soft rain watered the beds
      of {a}; the plants of {a} grew tall; {a} had peas to spare
    | frost killed the plants of {a}; goats ate the beans of {a}; the roses of {a} dried up; weeds choked the
      beds of {a}; {a} picked no peas; brown leaves fell for {a}

    a cake
    | {a} baked a cake; {a} mixed flour and eggs; {a} lit the oven
    | the cake of {a} came out golden; the dough of {a} rose well; the kitchen of {a} smelled sweet; {a} served
      warm slices; every crumb of {a} was eaten; {a} took it out in time
    | the cake of {a} was burnt black; the dough of {a} sank; smoke filled the kitchen of {a}; {a} threw the
      slices away; {a} forgot the oven; the crumbs of {a} tasted of salt

    a voyage
    | {a} went to sea; {a} set the sails; {a} took a boat out
    | the wind was kind to {a}; {a} sailed over still water; {a} reached the port; the crew of {a} sang on deck;
      calm waves carried {a}; {a} saw the land by noon
    | a storm struck {a}; high waves broke over {a}; the mast of {a} cracked; {a} was wrecked on the rocks; the
      crew of {a} were drowned; water filled the boat of {a}

    a test at school
    | {a} had a test; the teacher gave {a} a test; {a} sat down to write the test
    | {a} knew every answer; the teacher praised {a}; {a} got full marks; {a} passed the test; the sums of {a}
      were right; {a} had learned each page
    | {a} knew no answer; the teacher scolded {a}; {a} got no marks; {a} failed the test; the sums of {a} were
      wrong; {a} had not opened a page

    a puppy
    | {a} had a puppy; the puppy of {a} ran off; {a} kept a puppy in the yard
    | the puppy of {a} came back; the puppy licked the hand of {a}; {a} found the puppy asleep in the hay; the
      tail wagged for {a}; {a} fed the puppy its bone; the paw of the puppy healed for {a}
    | the puppy of {a} was never seen again; the puppy bit the hand of {a}; a cart ran over the puppy of {a};
      the puppy whined for {a}; {a} dug a grave for the puppy; the paw of the puppy bled for {a}

    a friend
    | {a} met an old friend; {a} called on a friend; a friend came to see {a}
    | {a} and the friend shook hands; the friend thanked {a}; {a} shared bread with the friend; the friend
      hugged {a}; {a} laughed with the friend; the friend kept the secret of {a}
    | {a} and the friend quarrelled; the friend insulted {a}; {a} shut the door on the friend; the friend lied
      to {a}; {a} shouted at the friend; the friend betrayed the secret of {a}

    a concert
    | {a} gave a concert; {a} sang in the hall; {a} went on the stage
    | the hall cheered {a}; the voice of {a} was clear; people threw flowers to {a}; {a} had to sing once more;
      {a} hit every note; the applause for {a} would not end
    | the hall booed {a}; the voice of {a} broke; people threw eggs at {a}; {a} ran off the stage; {a} missed
      every note; the hall was empty before {a} was done

    wages
    | {a} worked for wages; {a} asked for {his} wages; {a} carried bags for a merchant
    | the merchant paid {a}; {a} counted {his} coins; the purse of {a} was full; {a} earned gold; the merchant
      gave {a} silver too; {a} could pay {his} debts
    | the merchant cheated {a}; {a} got no coins; the purse of {a} was empty; {a} earned nothing; a thief took
      the silver of {a}; {a} sank into debts

    a walk in the woods
    | {a} walked in the woods; {a} went to look for berries; {a} took the path under the trees
    | {a} knew the path; {a} came home with berries; the moon lit the trees for {a}; {a} found the way out of
      the woods; a deer greeted {a}; {a} rested on soft moss
    | {a} lost the path; {a} found no berries; dark trees hid the way from {a}; {a} went round in the woods; a
      wolf chased {a}; thorns tore the legs of {a}

    a day of fishing
    | {a} went fishing; {a} sat with a rod by the stream; {a} threw out the line
    | {a} caught a trout; the net of {a} was heavy; a pike took the hook of {a}; {a} fried fresh fish; the rod
      of {a} bent again and again; {a} pulled in a salmon
    | {a} caught nothing; the net of {a} was torn; the hook of {a} hung still; {a} had no fish to fry; the rod
      of {a} snapped; the trout of {a} got away

    an illness
    | {a} lay in bed with a fever; a doctor was called to {a}; {a} had a cough
    | the fever of {a} went down; {a} got well; the medicine helped {a}; {a} left {his} bed; the doctor smiled
      at {a}; the cough of {a} was cured
    | the fever of {a} rose; {a} got worse; the medicine did not help {a}; {a} could not leave {his} bed; the
      doctor feared for {a}; the cough of {a} shook {him}

    a new house
    | {a} built a house; {a} laid bricks; {a} put up walls and a roof
    | the walls of {a} stood firm; the roof of {a} kept out the rain; {a} moved into dry rooms; the bricks of
      {a} held; neighbours admired the house of {a}; the chimney of {a} drew well
    | the walls of {a} fell down; the roof of {a} leaked; {a} slept in wet rooms; the bricks of {a} cracked;
      neighbours mocked the house of {a}; the chimney of {a} caught fire

    a stall at the fair
    | {a} had a stall at the fair; {a} brought goods to the fair; {a} set out ribbons for sale
    | buyers crowded the stall of {a}; {a} sold out by noon; {a} made a good bargain; the ribbons of {a} were
      all bought; customers praised the goods of {a}; {a} went home with an empty cart
    | no buyer came to the stall of {a}; {a} sold nothing; {a} made a bad bargain; the ribbons of {a} were
      stolen; customers blamed the goods of {a}; {a} went home with a full cart
    """
)
