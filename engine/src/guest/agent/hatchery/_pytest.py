"""pytest, which copies descriptors by default: WASI preview 1 can't."""


def adapt_capture(module):
    """Has output be captured from `sys.stdout` and `sys.stderr`, also where descriptors are wanted:
    what goes past them, as by `os.write`, is not captured."""
    for wanted, given in (("FDCapture", "SysCapture"), ("FDCaptureBinary", "SysCaptureBinary")):
        if hasattr(module, wanted) and hasattr(module, given):
            setattr(module, wanted, getattr(module, given))


def adapt_faulthandler(module):
    """Leaves out what is told of crashes: nothing in the sandbox outlives one."""
    if hasattr(module, "fault_handler_stderr_fd_key"):
        del module.pytest_configure, module.pytest_unconfigure


ADAPT = {"_pytest.capture": adapt_capture, "_pytest.faulthandler": adapt_faulthandler}
