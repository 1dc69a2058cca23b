"""Solves countdown by search over live sessions: which sum makes the target of six numbers?

A position is a session, a move is a program that takes two numbers and puts back a third. Each level of
the search runs every move on a fork of its position, and goes on with the positions that came closest.

`pip install hatchery-sandbox`, then `python3 examples/tree_search.py`
"""

from itertools import combinations

from hatchery_sandbox import Pool

NUMBERS, TARGET, WIDTH = [75, 50, 2, 3, 8, 7], 812, 12

RULES = """
def distance():
    # Also how close the best two numbers come: many solutions end with a product.
    near = [abs(target - n) for n in numbers]
    near += [abs(target - a * b) for i, a in enumerate(numbers) for b in numbers[:i]]
    return min(abs(target - n) for n in numbers), min(near)

def move(i, j, sign):
    a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
    if sign == '/' and a % b:
        raise ValueError('only whole numbers')
    made = {'+': a + b, '-': a - b, '*': a * b, '/': a // b if b else 0}[sign]
    if made in (0, a, b):
        raise ValueError('a move that leads nowhere')
    for place in sorted((i, j), reverse=True):
        del numbers[place]
    numbers.append(made)
    steps.append(f'{a} {sign} {b} = {made}')
    return distance()
"""


def moves(left):
    """All moves with so many numbers."""
    return [f"move({j}, {i}, {sign!r})" for i, j in combinations(range(left), 2) for sign in "+-*/"]


def search(root):
    positions, tried = [root], 0
    for left in range(len(NUMBERS), 1, -1):
        reached = []
        for position in positions:
            for explored in position.explore(moves(left), keep="succeeded"):
                tried += 1
                if explored.survivor is None:
                    continue
                exact, near = explored.outcome.value
                if exact == 0:
                    return explored.survivor.run("steps").value, tried
                reached.append((near, len(reached), explored.survivor))
        # Sessions that nobody has any more close; forks go on without their parents.
        positions = [session for *_, session in sorted(reached)[:WIDTH]]
    raise SystemExit("no solution was found")


with Pool(workers=2) as pool, pool.session() as root:
    root.run(f"numbers, target, steps = {NUMBERS}, {TARGET}, []\n{RULES}").raise_for_status()
    steps, tried = search(root)
    print(*steps, sep="\n")
    print(f"found {TARGET} after {tried} moves")
    assert steps[-1].endswith(f"= {TARGET}")
