"""Adapts pytest, which duplicates descriptors by default: WASI preview 1 can't."""


def adapt_capture(module):
    """Captures output from `sys.stdout` and `sys.stderr`, even where descriptors are requested.

    Output that bypasses them, for example by `os.write`, is not captured.
    """
    for wanted, given in (("FDCapture", "SysCapture"), ("FDCaptureBinary", "SysCaptureBinary")):
        if hasattr(module, wanted) and hasattr(module, given):
            setattr(module, wanted, getattr(module, given))


def adapt_faulthandler(module):
    """Disables crash reports: nothing in the sandbox outlives a crash."""
    if hasattr(module, "fault_handler_stderr_fd_key"):
        del module.pytest_configure, module.pytest_unconfigure


ADAPT = {"_pytest.capture": adapt_capture, "_pytest.faulthandler": adapt_faulthandler}
