"""Makes uses of the network fail with an `OSError`, as if a cable were unplugged."""

import errno

NO_NETWORK = (
    "the sandbox has no network: give the program its data as files (--input, --mount), or a host"
    " function that fetches it"
)


def adapt_socket(module):
    """Makes the module `socket` refuse names and connections with our message."""
    if not hasattr(module, "_socket"):
        return  # the program's own module

    def look_up(*args, **kwargs):
        raise module.gaierror(module.EAI_FAIL, NO_NETWORK)

    def open_socket(self, *args, **kwargs):
        raise OSError(errno.ENETUNREACH, NO_NETWORK)

    for name in ("getaddrinfo", "getnameinfo", "gethostbyaddr", "gethostbyname", "gethostbyname_ex"):
        setattr(module, name, look_up)
        setattr(module._socket, name, look_up)
    module.socket.__init__ = open_socket


def adapt_urllib(module):
    """Makes `urllib.request` fail for TLS addresses as it does for others."""
    handler = getattr(module, "UnknownHandler", None)
    if handler is None:
        return

    unknown_open = handler.unknown_open

    def refuse(self, request):
        if request.type == "https":
            raise module.URLError(OSError(errno.ENETUNREACH, NO_NETWORK))
        return unknown_open(self, request)

    handler.unknown_open = refuse


ADAPT = {"socket": adapt_socket, "urllib.request": adapt_urllib}
