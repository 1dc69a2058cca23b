# Serves the turns of a command build. Reports the objects whose `__next__` does that, and the type
# that they have, and leaves the interpreter as it is: `os._exit` holds the interpreter's lock and
# finalises nothing.
class Turns:
    __slots__ = 'serve', 'word'
    def __init__(self, serve, word):
        self.serve, self.word = serve, word
    def __next__(self):
        if self.serve(self.word, None)[0]:
            raise StopIteration
def _enter(words, enter, *parts):
    import os, sys
    sys.path[:] = [path for path in sys.path if path]
    agent = _boot(call, *parts)
    turns = [Turns(agent.reactor_turn, word) for word in words]
    places = (id(one).to_bytes(4, 'little') for one in (Turns, *turns))
    call(bytes([enter]) + b''.join(places))
    os._exit(0)
