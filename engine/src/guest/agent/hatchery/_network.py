"""Adapts the module `socket`, whose base class `_sockets.py` has replaced.

Builds for WASIX have sockets: between two ends in memory, and to what a job was granted. There only
what is refused says more.
"""

import errno

from hatchery import _system
from hatchery._sockets import refused
from hatchery._system import NO_NETWORK

NO_GRANT = f"{NO_NETWORK}, or let it connect to the hosts that it needs"


def adapt_socket(module):
    """Adds what the module lacks, and explains what is refused."""
    if not hasattr(module, "_socket"):
        return  # the program's own module
    _system.adapt(module)
    if hasattr(module._socket, "socketpair"):
        return explain_refusals(module)

    def of_ipv6(plain, convert):
        def call(family, address, /):
            if family != module.AF_INET6:
                return plain(family, address)
            import ipaddress

            try:
                return convert(ipaddress.IPv6Address(address))
            except ValueError:
                raise OSError(f"illegal IP address string passed to {plain.__name__}") from None

        return call

    module.inet_pton = of_ipv6(module.inet_pton, lambda address: address.packed)
    module.inet_ntop = of_ipv6(module.inet_ntop, str)


def explain_refusals(module):
    """Lets sockets and names fail with our message where the job was granted nothing."""
    open_socket, look_up = module.socket.__init__, module._socket.getaddrinfo

    def open_or_explain(self, *args, **kwargs):
        try:
            open_socket(self, *args, **kwargs)
        except PermissionError:
            raise refused(PermissionError, errno.EACCES, NO_GRANT, "connection") from None

    def look_up_or_explain(*args, **kwargs):
        try:
            return look_up(*args, **kwargs)
        except module.gaierror:
            try:
                module._socket.socket().close()
            except PermissionError:
                raise refused(module.gaierror, module.EAI_FAIL, NO_GRANT, "connection") from None
            raise

    module.socket.__init__ = open_or_explain
    module._socket.getaddrinfo = look_up_or_explain


ADAPT = {"socket": adapt_socket}
