"""What the sandbox gives to programs that run in it.

Names that begin with an underscore are the agent's, which serves the host.
"""
