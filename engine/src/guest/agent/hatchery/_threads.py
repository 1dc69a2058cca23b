"""Adapts libraries that would start a thread and warn in each program that they can't."""


def adapt_tqdm(module):
    """Disables the thread with which progress bars monitor slow updates."""
    bar = getattr(module, "tqdm", None)
    if hasattr(bar, "monitor_interval"):
        bar.monitor_interval = 0


ADAPT = {"tqdm.std": adapt_tqdm}
