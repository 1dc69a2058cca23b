"""Strings as keys of a dictionary: counting the words of a made-up text."""

import random
from collections import Counter

from measure import measure

SYLLABLES = ["ka", "lo", "mi", "ter", "san", "vu", "pel", "dri", "o", "ghe", "un", "bar"]


def text(words):
    draw = random.Random(7)
    made = []
    for _ in range(words):
        # The square makes some words frequent, as in a language.
        rank = int(draw.random() ** 2 * 4_000)
        word = ""
        while True:
            rank, place = divmod(rank, len(SYLLABLES))
            word += SYLLABLES[place]
            if not rank:
                break
        made.append(word.capitalize() if draw.random() < 0.1 else word)
    return " ".join(made)


TEXT = text(20_000)


def work(scale):
    total = 0
    for _ in range(max(1, round(14 * scale))):
        by_hand = {}
        for word in TEXT.split():
            word = word.lower()
            by_hand[word] = by_hand.get(word, 0) + 1
        counter = Counter(TEXT.lower().split())
        assert counter == by_hand
        longest = sorted(by_hand, key=lambda word: (-len(word), word))[:10]
        total += len(by_hand) + counter.most_common(1)[0][1] + len("".join(longest))
    return total


measure(work)
