"""Float arithmetic on lists: five bodies that attract each other, step by step."""

from measure import measure

# x, y, z, their speeds, and mass, of a sun and four planets in made-up units.
BODIES = [
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 39.5),
    (4.8, -1.2, -0.1, 0.6, 2.8, -0.02, 0.038),
    (8.3, 4.1, -0.4, -1.0, 1.8, 0.008, 0.011),
    (12.9, -15.1, -0.2, 1.1, 0.87, -0.01, 0.0017),
    (15.4, -25.9, 0.2, 0.98, 0.59, -0.03, 0.002),
]


def advance(bodies, steps, dt):
    pairs = [(a, b) for i, a in enumerate(bodies) for b in bodies[i + 1 :]]
    for _ in range(steps):
        for a, b in pairs:
            dx = a[0] - b[0]
            dy = a[1] - b[1]
            dz = a[2] - b[2]
            square = dx * dx + dy * dy + dz * dz
            pull = dt / (square * square**0.5)
            from_b = b[6] * pull
            from_a = a[6] * pull
            a[3] -= dx * from_b
            a[4] -= dy * from_b
            a[5] -= dz * from_b
            b[3] += dx * from_a
            b[4] += dy * from_a
            b[5] += dz * from_a
        for body in bodies:
            body[0] += dt * body[3]
            body[1] += dt * body[4]
            body[2] += dt * body[5]


def energy(bodies):
    total = 0.0
    for i, a in enumerate(bodies):
        total += a[6] * (a[3] ** 2 + a[4] ** 2 + a[5] ** 2) / 2
        for b in bodies[i + 1 :]:
            distance = sum((a[axis] - b[axis]) ** 2 for axis in range(3)) ** 0.5
            total -= a[6] * b[6] / distance
    return total


def work(scale):
    bodies = [list(body) for body in BODIES]
    advance(bodies, max(1, round(20_000 * scale)), 0.001)
    return f"{energy(bodies):.6f}"


measure(work)
