"""Libraries that would start a thread and warn in each program that they can't."""


def adapt_tqdm(module):
    """Has progress bars go without the thread that looks after slow ones."""
    bar = getattr(module, "tqdm", None)
    if hasattr(bar, "monitor_interval"):
        bar.monitor_interval = 0


ADAPT = {"tqdm.std": adapt_tqdm}
