"""Makes uses of the network fail with an `OSError` that helps, as if a cable were unplugged.

Builds for WASIX have sockets: between two ends in memory, and to what a job was granted. There only
what is refused says more.
"""

import errno

from hatchery import _system
from hatchery._system import NO_NETWORK

NO_GRANT = f"{NO_NETWORK}, or let it connect to the hosts that it needs"

# The methods of sockets that programs replace in tests.
METHODS = "bind connect connect_ex getpeername getsockname listen recvfrom recvmsg sendmsg sendto setsockopt"


def adapt_socket(module):
    """Makes the module `socket` refuse names and connections with our message."""
    if not hasattr(module, "_socket"):
        return  # the program's own module
    _system.adapt(module)
    if hasattr(module._socket, "socketpair"):
        return explain_refusals(module)

    def look_up(*args, **kwargs):
        raise refused(module.gaierror, module.EAI_FAIL, NO_NETWORK, "data")

    def gethostbyname(hostname, /):
        """Return the IP address of this machine, or the address itself."""
        if hostname in ("", "localhost", getattr(module, "gethostname", str)()):
            return "127.0.0.1"
        try:
            return module.inet_ntoa(module.inet_aton(hostname))
        except (AttributeError, OSError):
            look_up()

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

    def open_socket(self, *args, **kwargs):
        raise refused(OSError, errno.ENETUNREACH, NO_NETWORK, "data")

    for name in ("getaddrinfo", "getnameinfo", "gethostbyaddr", "gethostbyname", "gethostbyname_ex"):
        replaced = gethostbyname if name == "gethostbyname" else look_up
        setattr(module, name, replaced)
        setattr(module._socket, name, replaced)
    module.inet_pton = of_ipv6(module.inet_pton, lambda address: address.packed)
    module.inet_ntop = of_ipv6(module.inet_ntop, str)
    module.socket.__init__ = open_socket
    for name in METHODS.split():
        if not hasattr(module.socket, name):
            setattr(module.socket, name, _system.refusal(name, NO_NETWORK))


def refused(kind, number, text=NO_GRANT, remedy="connection"):
    """Returns the exception for what a job may not do, with what would help."""
    error = kind(number, text)
    error._hatchery_remedy = remedy
    return error


def explain_refusals(module):
    """Lets sockets and names fail with our message where the job was granted nothing."""
    open_socket, look_up = module.socket.__init__, module._socket.getaddrinfo

    def open_or_explain(self, *args, **kwargs):
        try:
            open_socket(self, *args, **kwargs)
        except PermissionError:
            raise refused(PermissionError, errno.EACCES) from None

    def look_up_or_explain(*args, **kwargs):
        try:
            return look_up(*args, **kwargs)
        except module.gaierror:
            try:
                module._socket.socket().close()
            except PermissionError:
                raise refused(module.gaierror, module.EAI_FAIL) from None
            raise

    module.socket.__init__ = open_or_explain
    module._socket.getaddrinfo = look_up_or_explain


ADAPT = {"socket": adapt_socket}
