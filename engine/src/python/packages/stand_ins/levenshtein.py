"""The machine code of Levenshtein, which is left out: medians of strings. The rest is Python."""


def _lacking(name):
    def function(*arguments, **named):
        raise NotImplementedError(f"Levenshtein.{name} is machine code, which the sandbox can't run")

    function.__name__ = function.__qualname__ = name
    return function


median, median_improve, quickmedian = map(_lacking, ("median", "median_improve", "quickmedian"))
seqratio, setmedian, setratio = map(_lacking, ("seqratio", "setmedian", "setratio"))
