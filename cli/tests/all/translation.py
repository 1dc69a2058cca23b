# Checks the translation of cells. Runs in the sandbox, after its source.

for cell in (
    "",
    "x = 1\n\nx % 2\n",
    "x = 5 \\\n%3",
    "x = (5\n%3)",
    "text = '''\n%time\n!ls\nwhat?\n'''",
    "f'''{\n%x}'''",
    "x != 3\nx %= 3\nx == 4",
    "# why?\n'a?'",
    "f(x)?",
    "% 3",
    "x = y?",
    "x = (\n%time y",
    # No prompts, and no indentation of the whole.
    "def f():\n    \'\'\'\n    >>> f()\n    \'\'\'\n",
    "text = \'\'\'\n>>> x\n... y\n  \n\'\'\'",
    "...\n... ",
    "# In [1]: x\nx",
    "    'x'\nprint(1)",
):
    assert translate(cell)[0] == cell, translate(cell)

for line, call in (
    ("%matplotlib inline", "run_line_magic('matplotlib', 'inline')"),
    ("%time  f('a')", "run_line_magic('time', \"f('a')\")"),
    ("%pip install x", "run_line_magic('pip', 'install x')"),
    ("!ls -l", "system('ls -l')"),
    ("!echo don't", 'system("echo don\'t")'),
    ("!!ls", "getoutput('ls')"),
    ("?open", "run_line_magic('pinfo', 'open')"),
    ("np.sum??", "run_line_magic('pinfo2', 'np.sum')"),
    ("%%time", "run_cell_magic('time', '', '')"),
    ("%%writefile a.py\nx = '\\n'\ny", r"""run_cell_magic('writefile', 'a.py', "x = '\\n'\ny\n")"""),
):
    assert translate(line)[0] == f"get_ipython().{call}", translate(line)

for cell, python in (
    ("x = %time f()", "x = get_ipython().run_line_magic('time', 'f()')"),
    ("a, b = %x", "a, b = get_ipython().run_line_magic('x', '')"),
    ("files = !ls", "files = get_ipython().getoutput('ls')"),
    # Lines keep their numbers and their indentation.
    (
        "if x:\n    %time f()\n    !ls \\\n  -l\ny",
        "if x:\n    get_ipython().run_line_magic('time', 'f()')\n"
        "    get_ipython().system('ls   -l')\n\ny",
    ),
    ("\n%%html\n<b>", "\nget_ipython().run_cell_magic('html', '', '<b>\\n')"),
    ("x\r\n%time y\r\n", "x\nget_ipython().run_line_magic('time', 'y')\n"),
    # Below the top it is a mistake, which the method reports.
    ("x\n%%html\ny", "x\nget_ipython().run_line_magic('%html', '')\ny"),
):
    assert translate(cell)[0] == python, translate(cell)

# Cells that are indented as a whole, and those copied from a terminal with its prompts.
for cell, python in (
    ("    a = 1\n    a + 2", "a = 1\na + 2"),
    ("\n\n  if a:\n      b\n \n  c", "\n\nif a:\n    b\n\nc"),
    ("\tx\n\t%pwd", "x\nget_ipython().run_line_magic('pwd', '')"),
    (">>> x = 1\n>>> x + 2\n3", "x = 1\nx + 2\n3"),
    ("  >>> for i in x:\n  ...     i\n  ...", "for i in x:\n    i\n"),
    ("# As documented:\n>>> x", "# As documented:\nx"),
    (">>> %time x\n>>> y?", "get_ipython().run_line_magic('time', 'x')\nget_ipython().run_line_magic('pinfo', 'y')"),
    (">>> %%html\n... <b>", "get_ipython().run_cell_magic('html', '', '<b>\\n')"),
    ("\ufeff%pwd", "get_ipython().run_line_magic('pwd', '')"),
    ("In [1]: 7", "7"),
    ("In [12]: def f():\n    ...:     return 8\n    ...: \n\nIn [13]: f()", "def f():\n    return 8\n\n\nf()"),
    ("for i in x:\n   ...:     i", "for i in x:\n    i"),
):
    assert translate(cell)[0] == python, translate(cell)
assert translate("%%html\n>>> x")[0] == call_of("run_cell_magic", "html", "", ">>> x\n")

# The bodies of these are translated too, and may be such cells themselves.
pwd = call_of("run_line_magic", "pwd", "") + "\n"
timed = call_of("run_cell_magic", "time", "", pwd)
captured = call_of("run_cell_magic", "capture", "out", timed)
assert translate("%%capture out\n%%time\n%pwd")[0] == captured

for cell, is_quiet in (
    ("plot(x);", True),
    ("plot(x); # shown\n\n# as above\n", True),
    ("';'", False),
    ("x; y", False),
    ("plot(x); #\ny", False),
    ("f(';')", False),
    ("%time f();", True),
    ("%%time\nf();", True),
    ("%%html\n<b>;", False),
    ("", False),
):
    assert translate(cell)[1] == is_quiet, cell
