"""What the sandbox gives to programs that run in it.

`from hatchery import host` has the functions of the host. Names that begin with an underscore are
the agent's, which serves the host.
"""
