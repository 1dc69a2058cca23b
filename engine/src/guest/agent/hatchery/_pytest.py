"""Adapts pytest to a place where nothing outlives a crash."""


def adapt_faulthandler(module):
    """Disables crash reports: nothing in the sandbox outlives a crash."""
    if hasattr(module, "fault_handler_stderr_fd_key"):
        del module.pytest_configure, module.pytest_unconfigure


ADAPT = {"_pytest.faulthandler": adapt_faulthandler}
