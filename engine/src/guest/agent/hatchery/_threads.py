"""Adapts libraries that would warn in each program of what they can't do here, or need threads for no reason."""

import hatchery

# What matplotlib warns of where nothing can be written.
UNSAVED = "Could not save font_manager cache"


def adapt_tqdm(module):
    """Disables the thread with which progress bars monitor slow updates."""
    bar = getattr(module, "tqdm", None)
    if hasattr(bar, "monitor_interval"):
        bar.monitor_interval = 0


def adapt_matplotlib(module):
    """Lets it keep its list of fonts in memory, as in a job that may change no files."""
    if hasattr(module, "rcParams"):
        import logging

        fonts = logging.getLogger("matplotlib.font_manager")
        fonts.addFilter(lambda record: not str(record.msg).startswith(UNSAVED))


def adapt_anyio(module):
    """Lets functions for other threads run where there are none, as those of asyncio do."""
    backend = getattr(module, "AsyncIOBackend", None)
    if hatchery._has_threads or backend is None:
        return

    async def run_sync_in_worker_thread(cls, func, args, abandon_on_cancel=False, limiter=None):
        await cls.checkpoint()
        return func(*args)

    backend.run_sync_in_worker_thread = classmethod(run_sync_in_worker_thread)


ADAPT = {"tqdm.std": adapt_tqdm, "matplotlib": adapt_matplotlib, "anyio._backends._asyncio": adapt_anyio}
