# Serves a reactor build's function `_reactor.turn` from now on. The build keeps a reference to that
# function, so its code is replaced.
def _attach(*parts):
    import _host, _reactor
    _reactor.agent_turn = _boot(_host.call, *parts).reactor_turn
    turn = lambda source, environ: agent_turn(source, environ)
    _reactor.turn.__code__ = turn.__code__
