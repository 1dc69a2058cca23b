"""Values as plain data: JSON in which containers keep who they are.

Both sides of a grading run have this code. A message has nodes, one for each value that isn't written
directly; `[3]` stands for the fourth node. So lists may share others, hold themselves and be nested as
deep as memory allows. Lists, dictionaries and other values that can change have a number on both sides,
and each message begins with what has changed of them, so that both sides see one list.

The judge's side builds nothing but the types below from what it receives, so that no method of the
candidate's classes ever runs there.
"""

_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
# Tests may patch what they are taken from.
_dumps, _loads = _json.dumps, _json.loads


def _imported(module, name):
    found = __import__(module)
    for part in module.split(".")[1:]:
        found = getattr(found, part)
    return getattr(found, name)


class Writer:
    """Writes the values of one message."""

    def __init__(self, shared, opaque):
        self._shared = shared
        # Returns the name and the parts of the node of what isn't plain.
        self._opaque = opaque
        self.nodes = []
        self._places = {}
        self._pending = []
        # What has been written lives until the message is sent, so that ids stay theirs.
        self._held = []
        self._changed = shared.changed()
        self._stale = {id(value) for value in self._changed}

    def message(self, head):
        """Returns the message as text: what has changed, and values at its head."""
        head = [self.value(item) for item in head]
        changed = [self.value(item) for item in self._changed]
        return _dumps(
            [head, self.nodes, changed, self._shared.forgotten()], ensure_ascii=True, separators=(",", ":")
        )

    def value(self, value):
        """Returns what stands for a value."""
        written = self._put(value)
        while self._pending:
            place, item = self._pending.pop()
            self.nodes[place] = self._node(item)
        return written

    def _put(self, value):
        kind = type(value)
        if value is None or kind is str or kind is bool or kind is float and value == value:
            return value
        if kind is int and _SMALLEST <= value <= _LARGEST:
            return value
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self.nodes)
            self.nodes.append(None)
            self._held.append(value)
            self._pending.append((place, value))
        return [place]

    def _all(self, items):
        return [self._put(item) for item in items]

    def _node(self, value):
        try:
            is_other = type(type(value)) is StandInClass
            kind = None if is_other else kind_of(value)
            if kind is not None:
                return self._changeable(kind, value)
            packer = None if is_other else _packer_of(value)
            name, *parts = (packer or self._opaque)(value)
        except NotPlain:
            name, *parts = self._opaque(value)
        return [name, *self._all(parts)]

    def _changeable(self, kind, value):
        number = self._shared.number_of(value)
        if number is not None and id(value) not in self._stale:
            return ["known", number]
        parts = kind.parts(value)
        number = self._shared.add(value, number)
        return [kind.name, number, *self._all(parts)]


def _packer_of(value):
    return _PACKERS.get(type(value)) or _NAMED.get(_named(type(value))) or _packer_by_base(value)


def _packer_by_base(value):
    kind = type(value)
    if kind.__module__ == "numpy" and any(base.__name__ == "generic" for base in kind.__mro__):
        if _dtype_kind(value) in "biufcUS":
            return lambda value: ("scalar", value.dtype.str, value.item())
    if _is_of_pytz(value):
        return lambda value: ("pytz", *value.__reduce__()[1])
    if isinstance(value, tuple) and hasattr(kind, "_fields") and kind.__bases__ == (tuple,):
        if type(kind._fields) is tuple and all(type(name) is str for name in kind._fields) and _is_bare(kind):
            _NAMED_TUPLES.setdefault((kind.__name__, kind.__module__, kind._fields), kind)
            return lambda value: (
                "named",
                kind.__name__,
                kind.__module__,
                kind._fields,
                tuple(tuple.__iter__(value)),
            )
    return None


# What every named tuple has, and those of `typing`.
_OF_NAMED_TUPLES = set(vars(_imported("collections", "namedtuple")("_", ""))) | {
    "__annotations__", "__annotations_cache__", "__annotate_func__", "__classdictcell__", "__firstlineno__",
    "__orig_bases__", "__static_attributes__",
}


def _is_bare(kind):
    """Returns whether a named tuple has nothing but its fields."""
    return vars(kind).keys() <= _OF_NAMED_TUPLES | set(kind._fields)


def _pack_int(value):
    return ("int", hex(value))


def _pack_type(value):
    if value.__module__ == "builtins" and getattr(_builtins, value.__name__, None) is value:
        return ("type", "builtins", value.__name__)
    if (value.__module__, value.__name__) in _NAMED or (value.__module__, value.__name__) in _LATER:
        return ("type", value.__module__, value.__name__)
    raise NotPlain("a class")


def _zone_of(value):
    zone = value.tzinfo
    if zone is not None and _named(type(zone)) not in _ZONES and not _is_of_pytz(zone):
        raise NotPlain("a time zone")
    return zone


def _is_of_pytz(zone):
    base = getattr(_sys.modules.get("pytz.tzinfo"), "BaseTzInfo", None)
    return base is not None and isinstance(zone, base)


def _make_zone(*args):
    pytz = __import__("pytz")
    return pytz._p(*args) if args else pytz.utc


def _pack_datetime(value):
    zone = _zone_of(value)
    return ("datetime", value.replace(tzinfo=None).isoformat(), value.fold, zone)


def _pack_time(value):
    zone = _zone_of(value)
    return ("time", value.replace(tzinfo=None).isoformat(), zone)


def _pack_text(value):
    return ("text", type(value).__module__.partition(".")[0], type(value).__name__, str(value))


def _make_text(module, name, text):
    if (module, name) not in _TEXTS:
        raise Malformed("the candidate sent an unknown type")
    return _imported(module, name)(text)


def _pack_match(value):
    parts = (value.re.pattern, int(value.re.flags), value.string, value.pos, value.endpos, value.regs)
    if _make_match(*parts).regs != value.regs:
        raise NotPlain("a match")
    return ("Match", *parts)


def _make_match(pattern, flags, string, first, last, spans):
    compiled, (start, end) = _imported("re", "compile")(pattern, flags), spans[0]
    for made in (
        compiled.search(string, first, last),
        compiled.match(string, start, last),
        compiled.fullmatch(string, start, end),
    ):
        if made is not None and made.regs == spans:
            return made
    raise NotPlain("a match")


def _pack_nan(value):
    # It equals itself only in a list, so who it is counts.
    names = (name for name in ("numpy", "math") if getattr(_sys.modules.get(name), "nan", None) is value)
    return ("nan", next(names, ""))


def _make_nan(name):
    return __import__(name).nan if name in ("numpy", "math") else float("nan")


_PACKERS = {
    int: _pack_int,
    float: _pack_nan,
    tuple: lambda value: ("tuple", *value),
    frozenset: lambda value: ("frozenset", *value),
    complex: lambda value: ("complex", value.real, value.imag),
    bytes: lambda value: ("bytes", value.hex()),
    range: lambda value: ("range", value.start, value.stop, value.step),
    slice: lambda value: ("slice", value.start, value.stop, value.step),
    type(...): lambda value: ("ellipsis",),
    type(NotImplemented): lambda value: ("not implemented",),
    type: _pack_type,
    type({}.keys()): lambda value: ("keys", *value),
    type({}.values()): lambda value: ("values", *value),
    type({}.items()): lambda value: ("items", *value),
}
_ZONES = (("datetime", "timezone"), ("zoneinfo", "ZoneInfo"))
_NAMED = {
    ("decimal", "Decimal"): lambda value: ("Decimal", str(value)),
    ("fractions", "Fraction"): lambda value: ("Fraction", value.numerator, value.denominator),
    ("datetime", "datetime"): _pack_datetime,
    ("datetime", "date"): lambda value: ("date", value.isoformat()),
    ("datetime", "time"): _pack_time,
    ("datetime", "timedelta"): lambda value: ("timedelta", value.days, value.seconds, value.microseconds),
    ("datetime", "timezone"): lambda value: ("timezone", value.utcoffset(None), value.tzname(None)),
    ("zoneinfo", "ZoneInfo"): lambda value: ("ZoneInfo", value.key),
    ("uuid", "UUID"): lambda value: ("UUID", value.int),
    ("pathlib", "PosixPath"): lambda value: ("Path", str(value)),
    ("pathlib._local", "PosixPath"): lambda value: ("Path", str(value)),
    ("re", "Match"): _pack_match,
    ("re", "Pattern"): lambda value: ("Pattern", value.pattern, int(value.flags)),
}


def _pack_timestamp(value):
    zone = None if value.tz is None else str(value.tz)
    return ("Timestamp", value.unit, int(value.asm8.astype("int64")), zone)


def _pack_index(value):
    return ("Index", _index_parts(value))


_NAMED |= {
    ("pandas", "Timestamp"): _pack_timestamp,
    ("pandas", "Timedelta"): lambda value: ("Timedelta", value.unit, int(value.asm8.astype("int64"))),
    ("pandas", "NaTType"): lambda value: ("NaT",),
    ("pandas", "NAType"): lambda value: ("NA",),
}
for _name in ("", "Range", "Multi", "Datetime", "Timedelta", "Period", "Categorical"):
    _NAMED["pandas", f"{_name}Index"] = _pack_index


def _named(kind):
    """Returns the key of a type in `_NAMED`: what module of pandas has it depends on the version."""
    module = kind.__module__
    return ("pandas" if module.startswith("pandas.") else module, kind.__qualname__)


def _make_datetime(text, fold, zone):
    made = _imported("datetime", "datetime").fromisoformat(text)
    return made.replace(fold=fold, tzinfo=zone)


def _make_timezone(offset, name):
    timezone = _imported("datetime", "timezone")
    made = timezone(offset)
    if not offset:
        made = timezone.utc
    return made if made.tzname(None) == name else timezone(offset, name)


def _make_timestamp(unit, number, zone):
    pandas = __import__("pandas")
    made = pandas.Timestamp(number, unit=unit).as_unit(unit)
    return made if zone is None else made.tz_localize("UTC").tz_convert(zone)


def _make_scalar(dtype, item):
    if type(dtype) is not str or dtype[1:2] not in set("biufcUS") or not dtype[2:].isdigit():
        raise Malformed("the candidate sent a number of an unknown type")
    return __import__("numpy").dtype(dtype).type(item)


def _make_type(module, name):
    if module == "builtins":
        found = vars(_builtins).get(name)
    elif (module, name) in _NAMED or (module, name) in _LATER:
        found = _imported(module, name)
    else:
        found = None
    if not isinstance(found, type):
        raise Malformed("the candidate sent an unknown type")
    return found


_NAMED_TUPLES = {}


def _make_named(name, module, fields, items):
    key = (name, module, tuple(fields))
    kind = _NAMED_TUPLES.get(key)
    if kind is None:
        kind = _imported("collections", "namedtuple")(name, fields, module=module)
        _NAMED_TUPLES[key] = kind
    return kind._make(items)


# Types of which a value is made of its text.
_TEXTS = [("ipaddress", f"IPv{version}{part}") for version in "46" for part in ("Address", "Network", "Interface")]
_TEXTS += [("pathlib", "PurePosixPath"), ("pathlib", "PureWindowsPath")]
_NAMED |= dict.fromkeys(_TEXTS, _pack_text)
_NAMED |= {("pathlib._local", name): _pack_text for _, name in _TEXTS[-2:]}


_UNPACKERS = {
    "int": lambda text: int(text, 16),
    "tuple": lambda *items: items,
    "frozenset": lambda *items: frozenset(_make_set(list(items))),
    "complex": complex,
    "bytes": lambda text: bytes.fromhex(text),
    "range": lambda start, stop, step: range(start, stop, step),
    "slice": slice,
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "type": _make_type,
    "keys": lambda *items: dict.fromkeys(items).keys(),
    "values": lambda *items: dict(enumerate(items)).values(),
    "items": lambda *items: dict(items).items(),
    "Decimal": lambda text: _imported("decimal", "Decimal")(text),
    "Fraction": lambda one, other: _imported("fractions", "Fraction")(one, other),
    "datetime": _make_datetime,
    "date": lambda text: _imported("datetime", "date").fromisoformat(text),
    "time": lambda text, zone: _imported("datetime", "time").fromisoformat(text).replace(tzinfo=zone),
    "text": _make_text,
    "timedelta": lambda *parts: _imported("datetime", "timedelta")(*parts),
    "timezone": _make_timezone,
    "ZoneInfo": lambda key: _imported("zoneinfo", "ZoneInfo")(key),
    "pytz": _make_zone,
    "UUID": lambda number: _imported("uuid", "UUID")(int=number),
    "Path": lambda text: _imported("pathlib", "Path")(text),
    "Pattern": lambda pattern, flags: _imported("re", "compile")(pattern, flags),
    "Match": _make_match,
    "nan": _make_nan,
    "scalar": _make_scalar,
    "Timestamp": _make_timestamp,
    "Timedelta": lambda unit, number: __import__("pandas").Timedelta(number, unit=unit).as_unit(unit),
    "NaT": lambda: __import__("pandas").NaT,
    "NA": lambda: __import__("pandas").NA,
    "Index": _make_index,
    "named": _make_named,
}


class Reader:
    """Reads the values of one message."""

    def __init__(self, shared, resolve, text):
        self._shared = shared
        # Returns what a node of another kind refers to.
        self._resolve = resolve
        try:
            parsed = _loads(text)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"the candidate sent an invalid message: {error}") from None
        if type(parsed) is not list or len(parsed) != 4 or not all(type(part) is list for part in parsed):
            raise Malformed("the candidate sent an invalid message")
        self.head, self._nodes, self._changed, self._forgotten = parsed

    def values(self):
        """Returns the values at the message's head, and changes what has changed.

        Raises:
            Malformed: It has another form.
        """
        try:
            return self._values()
        except Malformed:
            raise
        except (
            TypeError,
            ValueError,
            LookupError,
            OverflowError,
            ArithmeticError,
            AttributeError,
            RecursionError,
        ) as error:
            raise Malformed(f"the candidate sent an invalid value: {error}") from None

    def _values(self):
        self._made = [_MISSING] * len(self._nodes)
        self._unfilled = []
        self._numbered = []
        for place, node in enumerate(self._nodes):
            self._begin(place, node)
        for place in range(len(self._nodes)):
            self._finish(place)
        for value, kind, parts in self._unfilled:
            kind.fill(value, [self._get(part) for part in parts])
        for value, number in self._numbered:
            self._shared.add(value, number)
        for part in self._changed:
            self._get(part)
        for number in self._forgotten:
            self._shared.forget(number)
        return [self._get(part) for part in self.head]

    def _get(self, part):
        if type(part) is list:
            (place,) = part
            return self._made[place]
        if type(part) is dict:
            raise Malformed("the candidate sent an invalid value")
        return part

    def _begin(self, place, node):
        """Makes what has to be there before its parts are."""
        if type(node) is not list or not node or type(node[0]) is not str:
            raise Malformed("the candidate sent an invalid value")
        name = node[0]
        if name == "known":
            if not self._shared.has(node[1]):
                raise Malformed("the candidate sent a reference that it doesn't have")
            self._made[place] = self._shared.get(node[1])
            return
        kind = _BY_NAME.get(name)
        if kind is None:
            return
        number = node[1]
        if type(number) is not int:
            raise Malformed("the candidate sent an invalid value")
        if self._shared.has(number):
            value = self._shared.get(number)
            if getattr(kind_of(value), "name", None) != name:
                raise Malformed("the candidate sent an invalid value")
        elif kind.make is not None:
            value = kind.make()
        else:
            return
        self._made[place] = value
        self._unfilled.append((value, kind, node[2:]))
        self._numbered.append((value, number))

    def _finish(self, place):
        """Makes what consists of other values, and these first."""
        stack, open_places = [place], set()
        while stack:
            place = stack[-1]
            if self._made[place] is not _MISSING:
                stack.pop()
                continue
            name, *parts = self._nodes[place]
            needed = [inner for (inner,) in filter(_is_place, parts) if self._made[inner] is _MISSING]
            if not needed:
                stack.pop()
                self._made[place] = self._make(name, parts)
            elif place in open_places:
                raise Malformed("the candidate sent a value that is part of itself")
            else:
                open_places.add(place)
                stack += needed

    def _make(self, name, parts):
        if name in _MAKERS:
            number, *parts = parts
            value = _MAKERS[name]([self._get(part) for part in parts])
            kind_of(value)  # so that its kind is known
            self._numbered.append((value, number))
            return value
        parts = [self._get(part) for part in parts]
        maker = _UNPACKERS.get(name)
        return self._resolve(name, parts) if maker is None else maker(*parts)


def _is_place(part):
    return type(part) is list


def to_text(message):
    """Returns a message without values as text."""
    return _dumps(message, ensure_ascii=True, separators=(",", ":"))


from_text = _loads
