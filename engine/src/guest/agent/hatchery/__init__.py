"""What the sandbox offers to the programs that run in it.

`from hatchery import host` provides the functions of the host. Names that begin with an underscore
belong to the agent, which serves the host.
"""

# Whether programs can start threads: the host sets it when it starts the agent.
_has_threads = False


def _limit_met(limit):
    """Is told of a limit of the sandbox that raises no exception in the program. Graders replace it."""
