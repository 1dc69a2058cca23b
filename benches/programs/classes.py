"""Classes, attributes and method calls: machines of a factory that pass parts to each other."""

from collections import deque

from measure import measure


class Part:
    __slots__ = ("number", "size", "steps")

    def __init__(self, number, size):
        self.number = number
        self.size = size
        self.steps = []


class Machine:
    """Works on one part at a time, for a number of ticks, and passes it on."""

    def __init__(self, name, duration):
        self.name = name
        self.duration = duration
        self.queue = deque()
        self.part = None
        self.left = 0
        self.done = 0
        self.targets = []

    def accept(self, part):
        self.queue.append(part)

    @property
    def is_idle(self):
        return self.part is None and not self.queue

    def tick(self):
        if self.part is None:
            if not self.queue:
                return
            self.part = self.queue.popleft()
            self.left = self.ticks_for(self.part)
        self.left -= 1
        if self.left <= 0:
            part, self.part = self.part, None
            self.done += 1
            part.steps.append(self.name)
            self.target(part).accept(part)

    def ticks_for(self, part):
        return self.duration

    def target(self, part):
        return self.targets[0]


class Saw(Machine):
    def ticks_for(self, part):
        return super().ticks_for(part) + part.size % 3


class Sorter(Machine):
    """Sends parts of different sizes to different machines."""

    def target(self, part):
        return self.targets[part.size % len(self.targets)]


class Inspector(Machine):
    """Sends every fifth part back to the first of its targets, once."""

    def target(self, part):
        again = part.number % 5 == 0 and part.steps.count(self.name) == 1
        return self.targets[0 if again else 1]


class Store(Machine):
    def accept(self, part):
        self.done += 1
        self.queue.append(len(part.steps) * part.size)

    def tick(self):
        pass

    @property
    def is_idle(self):
        return True


def factory():
    saw, sorter, store = Saw("saw", 1), Sorter("sorter", 1), Store("store", 0)
    lathes = [Machine(f"lathe {n}", 2 + n) for n in range(4)]
    inspector = Inspector("inspector", 1)
    saw.targets = [sorter]
    sorter.targets = lathes
    for lathe in lathes:
        lathe.targets = [inspector]
    inspector.targets = [saw, store]
    return [saw, sorter, *lathes, inspector, store]


def work(scale):
    machines = factory()
    for number in range(max(1, round(14_000 * scale))):
        machines[0].accept(Part(number, number * 7 % 13))
    ticks = 0
    while not all(machine.is_idle for machine in machines):
        for machine in machines:
            machine.tick()
        ticks += 1
    return f"{ticks} {sum(machines[-1].queue)} {[machine.done for machine in machines]}"


measure(work)
